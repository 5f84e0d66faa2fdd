//! The added unit for one unit of the image: entries of what has copies, each with the places of the copies.
//!
//! An entry refers to the entry of the original, from which readers take names and types. Where that is one instance of an
//! inlined function, it refers to the same abstract one.

use std::ops::Range;

use gimli::{DwAt, DwForm, DwTag, Encoding, Format, constants};

use super::super::lists::{Bases, Entry, Key, UnitLists, Writing};
use super::super::pieces::Pieces;
use super::super::sections::{DebugSection, OVER_AND_OVER, Slice, cannot_update};
use super::abbreviations::{Abbreviations, Shape};
use super::attributes::{Attributes, Origin, names_no_entry};
use super::copied_code::CopiedCode;
use reorder_base::address::NewAddress;
use reorder_base::error::Result;
use reorder_base::leb128::write_unsigned;

/// A place in the unit whose value is known when all units are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A list of ranges, by number.
    Ranges(usize),
    /// A list of locations.
    Locations(usize),
    /// The line program for the copies of the one at this position.
    Lines(usize),
}

/// A unit for copies, without its header.
#[derive(Debug)]
pub(super) struct AddedUnit {
    pub(super) encoding: Encoding,
    /// Its entries.
    pub(super) entries: Vec<u8>,
    /// Its table of abbreviations.
    pub(super) abbreviations: Vec<u8>,
    pub(super) ranges: UnitLists,
    pub(super) locations: UnitLists,
    /// Places in `entries`, each as wide as the positions of its format.
    pub(super) references: Vec<(usize, Target)>,
    /// All code of the unit.
    pub(super) covered: Vec<Range<NewAddress>>,
}

/// Where everything is.
pub(super) struct Scene<'run> {
    pub(super) copied: &'run CopiedCode,
    /// The image's own code, which stays; counts what is written.
    pub(super) stays: &'run Pieces,
}

/// Makes the unit for the copies of `header`'s code; none if there are none.
///
/// # Errors
/// A damaged unit; R10 for what cannot be expressed.
pub(super) fn add_unit<'data>(
    section: &'data DebugSection<'data>,
    dwarf: &gimli::Dwarf<Slice<'data>>,
    header: gimli::UnitHeader<Slice<'data>>,
    scene: &Scene<'_>,
) -> Result<Option<AddedUnit>> {
    let start = header.offset().0;
    let broken = |error: gimli::Error| section.damaged(start, error);
    if header.address_size() != 8 {
        return Err(section.damaged(start, format!("addresses of {} bytes", header.address_size())));
    }
    let unit = dwarf.unit(header).map_err(broken)?;
    let encoding = unit.encoding();
    let mut walk = Walk {
        section,
        scene,
        start,
        bases: Bases { dwarf, unit: &unit, uses: Vec::new() },
        abbreviations: Abbreviations::default(),
        lists: 0,
        added: AddedUnit {
            encoding,
            entries: Vec::new(),
            abbreviations: Vec::new(),
            ranges: UnitLists::default(),
            locations: UnitLists::default(),
            references: Vec::new(),
            covered: Vec::new(),
        },
    };
    let has_copies = walk.entries()?;
    let Walk { abbreviations, mut added, .. } = walk;
    added.abbreviations = abbreviations.table();
    match scene.stays.is_exhausted() {
        true => Err(cannot_update(OVER_AND_OVER).into()),
        false => Ok(has_copies.then_some(added)),
    }
}

struct Walk<'unit, 'data> {
    section: &'data DebugSection<'data>,
    scene: &'unit Scene<'unit>,
    /// Position of the unit.
    start: usize,
    bases: Bases<'unit, 'data>,
    abbreviations: Abbreviations,
    /// Lists written so far.
    lists: usize,
    added: AddedUnit,
}

impl<'unit, 'data> Walk<'unit, 'data> {
    /// Writes all entries; false when the unit has no code with copies.
    fn entries(&mut self) -> Result<bool> {
        let (unit, section, start) = (self.bases.unit, self.section, self.start);
        let mut raw = unit.entries_raw(None).map_err(|error| section.damaged(start, error))?;
        // For each open entry, whether it was written.
        let mut open: Vec<bool> = Vec::new();
        let mut is_root = true;
        let mut is_split = false;
        while !raw.is_empty() {
            let place = start + raw.next_offset().0;
            let broken = |error: gimli::Error| section.broken(place, error);
            let Some(abbreviation) = raw.read_abbreviation().map_err(broken)? else {
                self.close(open.pop());
                continue;
            };
            let mut attributes = Attributes::default();
            for specification in abbreviation.attributes() {
                let at = start + raw.next_offset().0;
                let attribute = raw.read_attribute(*specification).map_err(broken)?;
                let bytes = at..start + raw.next_offset().0;
                let constant = specification.implicit_const_value();
                attributes.take(&attribute, constant, bytes, is_root, &self.bases).map_err(broken)?;
            }
            let tag = abbreviation.tag();
            let is_written = match is_root {
                true => {
                    is_split = attributes.is_split;
                    self.root(place, &attributes)?
                }
                // Its entries are in a file that is not read here; a skeleton has lines alone.
                false if is_split => false,
                false => {
                    // The unit itself is open and written.
                    let is_inside = open.len() > 1 && open.last() == Some(&true);
                    self.entry(place, tag, &attributes, is_inside)?
                }
            };
            if is_root && !is_written {
                return Ok(false);
            }
            is_root = false;
            if abbreviation.has_children() {
                open.push(is_written);
            } else {
                self.close(Some(is_written && has_children(tag)));
            }
        }
        while let Some(is_written) = open.pop() {
            self.close(Some(is_written));
        }
        Ok(true)
    }

    fn close(&mut self, is_written: Option<bool>) {
        if is_written == Some(true) {
            self.added.entries.push(0);
        }
    }

    fn root(&mut self, place: usize, attributes: &Attributes) -> Result<bool> {
        let parts = self.parts(place, attributes)?;
        if parts.is_empty() {
            return Ok(false);
        }
        self.added.covered = parts.clone();
        let lines = attributes.lines.map(Target::Lines);
        let mut shapes: Vec<Shape> = vec![(constants::DW_AT_low_pc, constants::DW_FORM_addr, None)];
        let ranges = self.push_ranges(&parts, place)?;
        let references: Vec<(DwAt, Target)> = [(constants::DW_AT_ranges, ranges)]
            .into_iter()
            .chain(lines.map(|lines| (constants::DW_AT_stmt_list, lines)))
            .collect();
        shapes.extend(references.iter().map(|(name, _)| (*name, self.offset_form(), None)));
        self.push_entry(constants::DW_TAG_compile_unit, &shapes, &[0; 8], &references, attributes);
        Ok(true)
    }

    /// Writes one entry below the root, if it has copies. `is_inside`: the entry that it belongs to was written.
    fn entry(&mut self, place: usize, tag: DwTag, attributes: &Attributes, is_inside: bool) -> Result<bool> {
        let is_function = tag == constants::DW_TAG_subprogram;
        if !is_function && !is_inside {
            return Ok(false);
        }
        let mut references: Vec<(DwAt, Target)> = Vec::new();
        match tag {
            constants::DW_TAG_subprogram
            | constants::DW_TAG_inlined_subroutine
            | constants::DW_TAG_lexical_block
            | constants::DW_TAG_try_block
            | constants::DW_TAG_catch_block => {
                let parts = self.parts(place, attributes)?;
                if parts.is_empty() {
                    return Ok(false);
                }
                let ranges = self.push_ranges(&parts, place)?;
                references.push((constants::DW_AT_ranges, ranges));
            }
            constants::DW_TAG_variable | constants::DW_TAG_formal_parameter if attributes.is_located() => {}
            _ => return Ok(false),
        }
        for (name, position) in &attributes.lists {
            references.push((*name, self.push_locations(*position, place)?));
        }
        let origin = match attributes.origin {
            Some(Origin::Unit(offset)) => {
                Some((constants::DW_AT_abstract_origin, self.start.saturating_add(offset)))
            }
            Some(Origin::Section(offset)) => Some((constants::DW_AT_abstract_origin, offset)),
            // Readers would take the children of an abstract instance for those of the copy.
            None if is_function => Some((constants::DW_AT_specification, place)),
            None if !has_children(tag) => Some((constants::DW_AT_abstract_origin, place)),
            None => None,
        };
        let mut shapes: Vec<Shape> = Vec::new();
        let mut first = Vec::new();
        if let Some((name, origin)) = origin {
            shapes.push((name, constants::DW_FORM_ref_addr, None));
            let width = if self.added.encoding.version <= 2 { 8 } else { self.word() };
            let origin = (origin as u64).to_le_bytes();
            if origin[width..].iter().any(|&byte| byte != 0) {
                let reason = format!("the entry at {place:#x} of {} is beyond 4 GiB", self.section.name);
                return Err(cannot_update(reason).into());
            }
            first.extend_from_slice(&origin[..width]);
        }
        shapes.extend(references.iter().map(|(name, _)| (*name, self.offset_form(), None)));
        self.push_entry(tag, &shapes, &first, &references, attributes);
        Ok(has_children(tag))
    }

    /// Appends an entry: its first bytes, offsets, and what is repeated.
    fn push_entry(
        &mut self,
        tag: DwTag,
        shapes: &[Shape],
        first: &[u8],
        references: &[(DwAt, Target)],
        attributes: &Attributes,
    ) {
        let repeated = attributes.repeated.iter();
        let shapes: Vec<Shape> = shapes
            .iter()
            .copied()
            .chain(repeated.clone().map(|attribute| (attribute.name, attribute.form, attribute.constant)))
            .collect();
        let code = self.abbreviations.code(tag, has_children(tag), &shapes);
        let word = self.word();
        let entries = &mut self.added.entries;
        write_unsigned(entries, code);
        entries.extend_from_slice(first);
        for (_, target) in references {
            self.added.references.push((entries.len(), *target));
            entries.extend_from_slice(&[0; 8][..word]);
        }
        for attribute in repeated {
            entries.extend_from_slice(self.section.bytes.get(attribute.bytes.clone()).unwrap_or_default());
        }
    }

    /// The form of positions in other sections.
    fn offset_form(&self) -> DwForm {
        match (self.added.encoding.version, self.added.encoding.format) {
            (..=3, Format::Dwarf32) => constants::DW_FORM_data4,
            (..=3, Format::Dwarf64) => constants::DW_FORM_data8,
            _ => constants::DW_FORM_sec_offset,
        }
    }

    /// Bytes of a position in another section.
    fn word(&self) -> usize {
        usize::from(self.added.encoding.format.word_size())
    }

    /// Where the copies of an entry's code are.
    fn parts(&mut self, place: usize, attributes: &Attributes) -> Result<Vec<Range<NewAddress>>> {
        let mut ranges: Vec<(u64, u64)> = attributes.bounds().into_iter().collect();
        if let Some(position) = attributes.ranges {
            let entries = self.bases.ranges(position).map_err(|error| self.section.broken(place, error))?;
            ranges.extend(entries.iter().filter_map(Entry::bounds).filter(|(begin, end)| begin < end));
        }
        let mut parts: Vec<Range<NewAddress>> = Vec::new();
        for (begin, end) in ranges {
            for part in self.scene.copied.parts(begin, end).take_while(|_| self.scene.stays.count()) {
                match parts.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => parts.push(part),
                }
            }
        }
        Ok(parts)
    }

    /// The number of another list, and how it is written: added units count addresses from zero.
    fn next_list(&mut self) -> (usize, Writing<'unit>) {
        let number = self.lists;
        self.lists += 1;
        (number, Writing { encoding: self.added.encoding, base: Some(0), pieces: self.scene.stays })
    }

    fn push_ranges(&mut self, parts: &[Range<NewAddress>], place: usize) -> Result<Target> {
        let entries: Vec<Entry<'_>> =
            parts.iter().map(|part| Entry::range(part.start.0, part.end.0)).collect();
        let (number, writing) = self.next_list();
        let pushed =
            self.added.ranges.push(Key::Index(number), &entries, None, writing, &mut self.bases.uses);
        pushed.map_err(|error| self.section.broken(place, error))?;
        Ok(Target::Ranges(number))
    }

    fn push_locations(&mut self, position: usize, place: usize) -> Result<Target> {
        let broken = |error| self.section.broken(place, error);
        let old = self.bases.locations(position).map_err(broken)?;
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for entry in old {
            let expression = entry.expression().map(|bytes| Slice::new(bytes, gimli::LittleEndian));
            if !expression.is_some_and(|expression| names_no_entry(expression, self.added.encoding)) {
                continue;
            }
            match entry.bounds() {
                None => entries.push(entry),
                Some((begin, end)) => {
                    let parts = self.scene.copied.parts(begin, end).take_while(|_| self.scene.stays.count());
                    entries.extend(parts.map(|part| entry.at(part.start.0, part.end.0)));
                }
            }
        }
        let (number, writing) = self.next_list();
        let pushed =
            self.added.locations.push(Key::Index(number), &entries, None, writing, &mut self.bases.uses);
        pushed.map_err(|error| self.section.broken(place, error))?;
        Ok(Target::Locations(number))
    }
}

/// Whether entries of this kind hold others. Those that are written end with a mark even if they hold none.
fn has_children(tag: DwTag) -> bool {
    !matches!(tag, constants::DW_TAG_variable | constants::DW_TAG_formal_parameter)
}
