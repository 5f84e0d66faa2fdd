//! Debug information of copies: units that are added to those of the image. They say of each copied instruction what the
//! image's own say of the original.
//!
//! ```text
//! units ─────────> added units: entries that refer to the originals', with the places of copies
//! line programs ─> added programs: the same header, rows of copied instructions
//! ```
//!
//! New contents follow the old contents of each section, so no position in them changes. Indexes of names and addresses know
//! nothing of added units; they are emptied, and debuggers read the units instead.

mod abbreviations;
mod attributes;
mod copied_code;
mod rows;
mod unit;

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

pub use copied_code::{CopiedCode, CopiedRun};

use super::lines::with_header_of;
use super::lists::{Key, UnitLists};
use super::patch::{close_unit, open_unit, push_offset};
use super::pieces::Pieces;
use super::sections::{DebugSections, Edits, OVER_AND_OVER, cannot_update, pack};
use crate::address_map::AddressMap;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::elf::file::ElfFile;
use unit::{AddedUnit, Scene, Target, add_unit};

/// Indexes that list units. They would lack the added units.
pub const INDEXES: [&str; 2] = [".gdb_index", ".debug_names"];

/// The sections of debug information with units for `copied`. `code` are the executable sections of `file`.
///
/// # Errors
/// Damaged sections, with their position; R10 for what cannot be expressed.
pub fn describe(file: &ElfFile<'_>, copied: &CopiedCode, code: Vec<Range<Address>>) -> Result<Edits> {
    let sections = DebugSections::read(file)?;
    let Some(info) = sections.get(".debug_info").filter(|_| !copied.is_empty()) else {
        return Ok(Edits::default());
    };
    let stays = Pieces::new(&AddressMap::default(), code, &[]);
    let stays = stays.limited(sections.iter().map(|section| section.bytes.len() as u64).sum());
    let scene = Scene { copied, stays: &stays };
    let mut dwarf = sections.dwarf();
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(|error| info.damaged(0, error))? {
        headers.push(header);
    }
    let added = headers
        .par_iter()
        .map(|header| add_unit(info, &dwarf, *header, &scene))
        .collect::<Result<Vec<_>>>()?;
    let added: Vec<AddedUnit> = added.into_iter().flatten().collect();
    if added.is_empty() {
        return Ok(Edits::default());
    }
    let lines = added_lines(&sections, &added, &scene)?;
    if stays.is_exhausted() {
        return Err(cannot_update(OVER_AND_OVER).into());
    }
    assemble(&sections, &added, &lines)
}

/// Line programs for the copies.
#[derive(Debug, Default)]
struct AddedLines {
    bytes: Vec<u8>,
    /// From the position of a program in the old section to that of its addition after the old section.
    places: BTreeMap<usize, usize>,
}

fn added_lines(sections: &DebugSections<'_>, units: &[AddedUnit], scene: &Scene<'_>) -> Result<AddedLines> {
    let mut lines = AddedLines::default();
    let Some(section) = sections.get(".debug_line") else { return Ok(lines) };
    let named = units.iter().flat_map(|unit| &unit.references).filter_map(|(_, target)| match target {
        Target::Lines(old) => Some(*old),
        Target::Ranges(_) | Target::Locations(_) => None,
    });
    lines.places = named.map(|old| (old, 0)).collect();
    let old: Vec<usize> = lines.places.keys().copied().collect();
    let programs = old
        .par_iter()
        .map(|&start| {
            with_header_of(section, start, |program, parameters, output| {
                let count = || scene.stays.count();
                rows::write((program.opcodes, program.lengths), parameters, scene.copied, &count, output)
            })
        })
        .collect::<Result<Vec<_>>>()?;
    for (place, mut program) in lines.places.values_mut().zip(programs) {
        *place = lines.bytes.len();
        lines.bytes.append(&mut program);
    }
    Ok(lines)
}

/// What is added to the section of lists for one version of DWARF.
#[derive(Debug, Default)]
struct AddedLists {
    bytes: Vec<u8>,
    /// Where the lists of each unit start; units of other versions have none.
    starts: BTreeMap<usize, usize>,
}

impl AddedLists {
    fn of(units: &[AddedUnit], is_new: bool, select: fn(&AddedUnit) -> &UnitLists) -> Self {
        let mut lists = Self::default();
        let chosen = units.iter().enumerate().filter(|(_, unit)| (unit.encoding.version >= 5) == is_new);
        let chosen: Vec<_> = chosen.filter(|(_, unit)| !select(unit).lists.is_empty()).collect();
        if chosen.is_empty() {
            return lists;
        }
        let length_at = is_new.then(|| {
            let length_at = open_unit(&mut lists.bytes, gimli::Format::Dwarf32);
            // Version, size of addresses, size of segments; no table of offsets.
            lists.bytes.extend_from_slice(&[5, 0, 8, 0, 0, 0, 0, 0]);
            length_at
        });
        for (number, unit) in chosen {
            lists.starts.insert(number, lists.bytes.len());
            lists.bytes.extend_from_slice(&select(unit).bytes);
        }
        if let Some(length_at) = length_at {
            close_unit(&mut lists.bytes, gimli::Format::Dwarf32, length_at);
        }
        lists
    }
}

fn assemble(sections: &DebugSections<'_>, units: &[AddedUnit], lines: &AddedLines) -> Result<Edits> {
    let ranges = [false, true].map(|is_new| AddedLists::of(units, is_new, |unit| &unit.ranges));
    let locations = [false, true].map(|is_new| AddedLists::of(units, is_new, |unit| &unit.locations));
    let length = |name: &str| sections.bytes(name).len();
    let offset = |number: usize, unit: &AddedUnit, target: Target| {
        let is_new = usize::from(unit.encoding.version >= 5);
        let list = |name: &str, lists: &AddedLists, own: &UnitLists, key: usize| {
            Some(length(name) + lists.starts.get(&number)? + own.position(Key::Index(key))?.0)
        };
        match target {
            Target::Ranges(key) => list(RANGES[is_new], &ranges[is_new], &unit.ranges, key),
            Target::Locations(key) => list(LOCATIONS[is_new], &locations[is_new], &unit.locations, key),
            Target::Lines(old) => Some(length(".debug_line") + lines.places.get(&old)?),
        }
    };
    let too_large = || cannot_update("a section would be larger than 4 GiB");
    let mut tables: BTreeMap<&[u8], usize> = BTreeMap::new();
    let (mut abbreviations, mut info, mut aranges) = (Vec::new(), Vec::new(), Vec::new());
    for (number, unit) in units.iter().enumerate() {
        let table = *tables.entry(&unit.abbreviations).or_insert_with(|| {
            let place = length(".debug_abbrev") + abbreviations.len();
            abbreviations.extend_from_slice(&unit.abbreviations);
            place
        });
        let place = length(".debug_info") + info.len();
        let format = unit.encoding.format;
        let length_at = open_unit(&mut info, format);
        push_header(&mut info, unit.encoding, table);
        let entries_at = info.len();
        info.extend_from_slice(&unit.entries);
        for &(at, target) in &unit.references {
            let value = offset(number, unit, target).ok_or_else(too_large)?;
            put_offset(&mut info[entries_at + at..], format, value).ok_or_else(too_large)?;
        }
        close_unit(&mut info, format, length_at);
        push_addresses(&mut aranges, u32::try_from(place).map_err(|_| too_large())?, unit);
    }
    let [old_ranges, new_ranges] = ranges;
    let [old_locations, new_locations] = locations;
    let appended = [
        (".debug_abbrev", abbreviations),
        (".debug_info", info),
        (".debug_line", lines.bytes.clone()),
        (RANGES[0], old_ranges.bytes),
        (RANGES[1], new_ranges.bytes),
        (LOCATIONS[0], old_locations.bytes),
        (LOCATIONS[1], new_locations.bytes),
    ];
    let mut edits = Edits::default();
    // Where units have no table of their addresses, readers take those of their entries.
    let aranges = sections.get(".debug_aranges").map(|_| (".debug_aranges", aranges));
    for (name, bytes) in appended.into_iter().chain(aranges).filter(|(_, bytes)| !bytes.is_empty()) {
        match sections.get(name) {
            Some(section) => {
                let contents = [section.bytes.as_ref(), &bytes].concat();
                edits.contents.push((section.section.index, pack(section.packing, contents)?));
            }
            None => edits.added.push((name, bytes)),
        }
    }
    let indexes = INDEXES.iter().filter_map(|name| sections.get(name));
    edits.contents.extend(indexes.map(|section| (section.section.index, Vec::new())));
    Ok(edits)
}

/// Sections of lists, up to DWARF 4 and from DWARF 5 on.
const RANGES: [&str; 2] = [".debug_ranges", ".debug_rnglists"];
const LOCATIONS: [&str; 2] = [".debug_loc", ".debug_loclists"];

/// What follows the length of a unit.
fn push_header(info: &mut Vec<u8>, encoding: gimli::Encoding, abbreviations: usize) {
    info.extend_from_slice(&encoding.version.to_le_bytes());
    if encoding.version >= 5 {
        info.extend_from_slice(&[gimli::constants::DW_UT_compile.0, 8]);
        push_offset(info, encoding.format, abbreviations);
    } else {
        push_offset(info, encoding.format, abbreviations);
        info.push(8);
    }
}

/// Writes a position at the start of `bytes`; none if it is too large for the format.
fn put_offset(bytes: &mut [u8], format: gimli::Format, value: usize) -> Option<()> {
    let (value, width) = ((value as u64).to_le_bytes(), usize::from(format.word_size()));
    let fits = value[width..].iter().all(|&byte| byte == 0);
    bytes.get_mut(..width).filter(|_| fits)?.copy_from_slice(&value[..width]);
    Some(())
}

/// The addresses of one unit. Source: DWARF 5, section 6.1.2.
fn push_addresses(aranges: &mut Vec<u8>, place: u32, unit: &AddedUnit) {
    let start = aranges.len();
    let length_at = open_unit(aranges, gimli::Format::Dwarf32);
    aranges.extend_from_slice(&[2, 0]);
    aranges.extend_from_slice(&place.to_le_bytes());
    aranges.extend_from_slice(&[8, 0]);
    // Pairs are aligned to their size from the start of the set.
    aranges.resize(start + (aranges.len() - start).next_multiple_of(16), 0);
    for part in &unit.covered {
        aranges.extend_from_slice(&part.start.0.to_le_bytes());
        aranges.extend_from_slice(&part.end.distance_from(part.start).to_le_bytes());
    }
    aranges.extend_from_slice(&[0; 16]);
    close_unit(aranges, gimli::Format::Dwarf32, length_at);
}
