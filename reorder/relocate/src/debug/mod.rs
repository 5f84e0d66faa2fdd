//! Debug information: dropped, left alone, or brought up to date.
//!
//! ```text
//! sections ──> units ──┬─> patches of entries, in place: addresses, expressions, references
//!   decompressed       └─> lists of ranges and locations ──┐
//! line programs, address ranges, indexes ──────────────────┴─> sections of other sizes ──> file
//! ```
//!
//! Entries of units keep their size, so that positions in `.debug_info` stay and name tables, packages of split units
//! and references between units stay right. Tables without fixed widths are rewritten.

pub(crate) mod abbreviations;
pub mod addresses;
pub mod aranges;
pub mod assemble;
pub mod copies;
pub mod expressions;
pub mod frames;
pub(crate) mod line_program;
pub mod lines;
pub mod lists;
pub mod macros;
pub mod mini;
pub mod patch;
pub mod pieces;
pub mod policy;
pub mod rebuild;
pub mod sections;
#[cfg(test)]
mod tests;
pub mod units;

pub(crate) use policy::apply_policy;
pub use policy::{DebugPolicy, has_debug, is_debug};

use gimli::UnitHeader;
use rayon::prelude::*;

use self::abbreviations::Tables;
use self::assemble::{ListSection, new_lists, old_lists};
use self::lines::Lines;
use self::lists::{Key, UnitLists};
use self::patch::{Patch, store};
use self::pieces::Pieces;
use self::sections::{DebugSection, DebugSections, Edits, OVER_AND_OVER, Slice, cannot_update, pack};
use self::units::{Reference, Target, UnitUpdate, update_unit};
use reorder_base::error::Result;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::Section;

/// New contents of all sections of debug information.
///
/// # Errors
/// Damaged sections, with their position; R10 for what cannot be expressed in the new layout.
pub fn update(file: &ElfFile<'_>, pieces: Pieces) -> Result<Edits> {
    let sections = DebugSections::read(file)?;
    let pieces = pieces.limited(sections.iter().map(|section| section.bytes.len() as u64).sum());
    let mut update = Update {
        file,
        sections: &sections,
        pieces: &pieces,
        lines: Lines::default(),
        edits: Edits::default(),
    };
    update.run()?;
    if pieces.is_exhausted() {
        return Err(cannot_update(OVER_AND_OVER).into());
    }
    let mut edits = update.edits;
    // The linker's relocations describe places that have moved, and tools do not read them.
    for section in file.sections.iter().filter(|section| policy::relocates_debug(file, section)) {
        edits.contents.push((section.index, Vec::new()));
    }
    Ok(edits)
}

struct Update<'update, 'data> {
    file: &'update ElfFile<'data>,
    sections: &'update DebugSections<'data>,
    pieces: &'update Pieces,
    lines: Lines,
    edits: Edits,
}

impl<'update> Update<'update, '_> {
    fn run(&mut self) -> Result<()> {
        if let Some(section) = self.sections.get(".debug_line") {
            self.lines = lines::move_lines(section, self.pieces)?;
            self.replace(section, self.lines.bytes.clone())?;
        }
        if let Some(section) = self.sections.get(".debug_aranges") {
            self.replace(section, aranges::move_aranges(section, self.pieces)?)?;
        }
        if let Some(section) = self.sections.get(".gdb_index") {
            self.replace(section, aranges::move_gdb_index(section, self.pieces)?)?;
        }
        if let Some(section) = self.sections.get(".debug_frame") {
            self.patch(section, &frames::move_frames(section, self.pieces)?)?;
        }
        if let Some(section) = self.sections.get(".gnu_debugdata") {
            self.patch(section, &mini::move_mini(section, self.pieces)?)?;
        }
        self.units()
    }

    fn units(&mut self) -> Result<()> {
        let (units, owners) = self.read_units()?;
        let (ranges, locations) = self.lists(&units)?;
        let mut patches: [Vec<Patch>; 2] = Default::default();
        let mut tables = Tables::default();
        let abbreviations = self.sections.get(".debug_abbrev");
        let is_reshaped = units.iter().any(|unit| unit.reshape.is_some());
        for (number, (unit, owner)) in units.iter().zip(&owners).enumerate() {
            let into = &mut patches[usize::from(*owner)];
            into.extend_from_slice(&unit.patches);
            for reference in &unit.references {
                let value = match (reference.target, abbreviations) {
                    (Target::Abbreviations, Some(section)) if is_reshaped => {
                        Some(tables.place(section, unit.abbreviations, unit.reshape.as_ref())?)
                    }
                    (Target::Abbreviations, _) => Some(unit.abbreviations),
                    _ => self.value(number, unit, *reference, &ranges, &locations),
                };
                let value = value.ok_or_else(|| {
                    let section = self.sections.get(SECTIONS_OF_UNITS[usize::from(*owner)]);
                    let what = "a reference to an unknown target";
                    section.map_or_else(
                        || cannot_update(what).into(),
                        |section| section.damaged(reference.at, what),
                    )
                })?;
                into.push(Patch { at: reference.at, width: reference.width, value: value as u64 });
            }
        }
        for (name, patches) in SECTIONS_OF_UNITS.iter().zip(&patches) {
            if let Some(section) = self.sections.get(name) {
                self.patch(section, patches)?;
            }
        }
        if let Some(section) = abbreviations.filter(|_| is_reshaped) {
            self.replace(section, tables.bytes)?;
        }
        if let Some(section) = self.sections.get(".debug_addr") {
            self.patch(
                section,
                &addresses::move_addresses(section, &units, self.pieces, |address| self.is_data(address))?,
            )?;
        }
        if let Some(section) = self.sections.get(".debug_macro") {
            self.patch(section, &macros::move_macros(section, &units, &self.lines.places)?)?;
        }
        Ok(())
    }

    fn is_data(&self, address: u64) -> bool {
        let holds = |section: &Section<'_>| {
            section.is_loaded() && address.checked_sub(section.address.0).is_some_and(|at| at < section.size)
        };
        !self.pieces.is_code(address) && self.file.sections.iter().any(holds)
    }

    /// All units, and the section of each.
    fn read_units(&self) -> Result<(Vec<UnitUpdate>, Vec<u8>)> {
        let mut dwarf = self.sections.dwarf();
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let mut headers: Vec<(u8, UnitHeader<Slice<'_>>)> = Vec::new();
        let broken = |name: &str, error: gimli::Error| match self.sections.get(name) {
            Some(section) => section.damaged(0, error),
            None => cannot_update(error.to_string()).into(),
        };
        let mut units = dwarf.units();
        while let Some(header) = units.next().map_err(|error| broken(".debug_info", error))? {
            headers.push((0, header));
        }
        let mut units = dwarf.type_units();
        while let Some(header) = units.next().map_err(|error| broken(".debug_types", error))? {
            headers.push((1, header));
        }
        let updates = headers
            .par_iter()
            .filter_map(|(owner, header)| {
                let section: &DebugSection<'_> = self.sections.get(SECTIONS_OF_UNITS[usize::from(*owner)])?;
                Some(update_unit(self.sections, section, &dwarf, *header, self.pieces))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((updates, headers.into_iter().map(|(owner, _)| owner).collect()))
    }

    /// The sections of lists: for each kind the old and the new form.
    fn lists(&mut self, units: &[UnitUpdate]) -> Result<([ListSection; 2], [ListSection; 2])> {
        let shared = || cannot_update("two units have different lists of one number");
        let ranges = [old_lists(units, select_ranges), new_lists(units, select_ranges).ok_or_else(shared)?];
        let locations =
            [old_lists(units, select_locations), new_lists(units, select_locations).ok_or_else(shared)?];
        let names = [".debug_ranges", ".debug_rnglists", ".debug_loc", ".debug_loclists"];
        for (name, lists) in names.into_iter().zip(ranges.iter().chain(&locations)) {
            match self.sections.get(name) {
                Some(section) => self.replace(section, lists.bytes.clone())?,
                None if lists.bytes.is_empty() => {}
                None => self.edits.added.push((name, lists.bytes.clone())),
            }
        }
        Ok((ranges, locations))
    }

    fn value(
        &self,
        number: usize,
        unit: &UnitUpdate,
        reference: Reference,
        ranges: &[ListSection; 2],
        locations: &[ListSection; 2],
    ) -> Option<usize> {
        let form = usize::from(unit.encoding.version >= 5);
        let location = |key: Key| locations[form].position(number, &unit.locations, key);
        match reference.target {
            Target::Ranges(key) => ranges[form].position(number, &unit.ranges, key).map(|at| at.0),
            Target::Locations(key) => location(key).map(|at| at.0),
            Target::Views(key) => location(key).map(|at| at.1),
            Target::RangesBase => ranges[form].base(number),
            Target::LocationsBase => locations[form].base(number),
            Target::Lines(old) => self.lines.places.get(&old).copied(),
            Target::Abbreviations => None,
        }
    }

    fn patch(&mut self, section: &DebugSection<'_>, patches: &[Patch]) -> Result<()> {
        let mut bytes = section.bytes.to_vec();
        store(section, &mut bytes, patches)?;
        self.replace(section, bytes)
    }

    fn replace(&mut self, section: &DebugSection<'_>, contents: Vec<u8>) -> Result<()> {
        if contents != section.bytes.as_ref() {
            self.edits.contents.push((section.section.index, pack(section.packing, contents)?));
        }
        Ok(())
    }
}

fn select_ranges(unit: &UnitUpdate) -> (&UnitLists, Option<usize>) {
    (&unit.ranges, unit.ranges_base)
}

fn select_locations(unit: &UnitUpdate) -> (&UnitLists, Option<usize>) {
    (&unit.locations, unit.locations_base)
}

const SECTIONS_OF_UNITS: [&str; 2] = [".debug_info", ".debug_types"];
