//! One unit of `.debug_info` or `.debug_types`: what changes in its entries, and the lists that they name.
//!
//! Entries keep their size, so references to them by position stay valid. Source: DWARF 5, chapters 3 and 7.

mod bounds;
mod lists;

use std::collections::BTreeMap;

use gimli::{AttributeValue, DwAt, DwForm, DwTag, UnitType, constants};

use super::abbreviations::Reshape;
use super::expressions::{AddressUse, Use, addresses};
use super::lists::{Bases, Key, UnitLists};
use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, DebugSections, Slice, cannot_update};
use reorder_base::error::Result;

/// What a place in the unit refers to in a section that is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A list of ranges.
    Ranges(Key),
    /// A list of locations.
    Locations(Key),
    /// The views of a list of locations.
    Views(Key),
    /// The table of lists of ranges.
    RangesBase,
    /// The table of lists of locations.
    LocationsBase,
    /// A line program, by its old position.
    Lines(usize),
    /// The unit's abbreviations.
    Abbreviations,
}

/// A place whose value is known when all sections are written.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Position in the section of units.
    pub at: usize,
    /// Bytes.
    pub width: u8,
    /// Its target.
    pub target: Target,
}

/// Everything that changes for one unit.
#[derive(Debug)]
pub(crate) struct UnitUpdate {
    /// Of the unit.
    pub encoding: gimli::Encoding,
    /// Places with known values.
    pub patches: Vec<Patch>,
    /// Places with values that are known later.
    pub references: Vec<Reference>,
    /// Lists of ranges.
    pub ranges: UnitLists,
    /// Lists of locations.
    pub locations: UnitLists,
    /// Positions of the tables that indexes of lists are relative to.
    pub ranges_base: Option<usize>,
    /// The same for locations.
    pub locations_base: Option<usize>,
    /// Position of the unit's addresses in `.debug_addr`.
    pub addresses_base: Option<usize>,
    /// Its uses of them.
    pub uses: Vec<AddressUse>,
    /// Positions of its macros.
    pub macros: Vec<usize>,
    /// Position of its abbreviations.
    pub abbreviations: usize,
    /// Their changes.
    pub(crate) reshape: Option<Reshape>,
    /// Whether its entries are in another file.
    pub is_split: bool,
}

/// A bound of code as an attribute.
#[derive(Clone, Copy)]
struct Bound {
    at: usize,
    width: usize,
    form: DwForm,
    value: u64,
    is_address: bool,
    index: Option<usize>,
}

/// The attributes of one entry that must be read together.
#[derive(Default)]
struct Bounds {
    low: Option<Bound>,
    high: Option<Bound>,
    ranges: Option<Key>,
    location: Option<Key>,
    views: Option<(usize, u8, usize)>,
    /// The entries are in another file.
    is_split: bool,
}

struct Walk<'unit, 'data> {
    section: &'data DebugSection<'data>,
    sections: &'data DebugSections<'data>,
    whole: Slice<'data>,
    pieces: &'unit Pieces,
    bases: Bases<'unit, 'data>,
    update: UnitUpdate,
    range_keys: BTreeMap<Key, ()>,
    /// With the position of views.
    location_keys: BTreeMap<Key, Option<usize>>,
    /// The unit's own base address in the new image.
    base: Option<u64>,
    own_ranges: Option<(u64, u64)>,
}

/// Reads the unit and gives its changes.
///
/// # Errors
/// A damaged unit; R10 for what cannot be expressed.
pub(crate) fn update_unit<'data>(
    sections: &'data DebugSections<'data>,
    section: &'data DebugSection<'data>,
    dwarf: &gimli::Dwarf<Slice<'data>>,
    header: gimli::UnitHeader<Slice<'data>>,
    pieces: &Pieces,
) -> Result<UnitUpdate> {
    let offset = header.offset().0;
    let broken = |error: gimli::Error| section.damaged(offset, error);
    if header.address_size() != 8 {
        return Err(section.damaged(offset, format!("addresses of {} bytes", header.address_size())));
    }
    let unit = dwarf.unit(header).map_err(broken)?;
    let mut walk = Walk {
        section,
        sections,
        whole: Slice::new(&section.bytes, gimli::LittleEndian),
        pieces,
        bases: Bases { dwarf, unit: &unit, uses: Vec::new() },
        update: UnitUpdate {
            encoding: unit.encoding(),
            patches: Vec::new(),
            references: Vec::new(),
            ranges: UnitLists::default(),
            locations: UnitLists::default(),
            ranges_base: None,
            locations_base: None,
            addresses_base: None,
            uses: Vec::new(),
            macros: Vec::new(),
            abbreviations: header.debug_abbrev_offset().0,
            reshape: None,
            is_split: unit.dwo_id.is_some() || matches!(header.type_(), UnitType::Skeleton(_)),
        },
        range_keys: BTreeMap::new(),
        location_keys: BTreeMap::new(),
        base: None,
        own_ranges: None,
    };
    walk.header(offset, header);
    walk.entries(offset)?;
    walk.lists(offset)?;
    walk.update.uses.append(&mut walk.bases.uses);
    Ok(walk.update)
}

impl<'data> Walk<'_, 'data> {
    fn header(&mut self, offset: usize, header: gimli::UnitHeader<Slice<'_>>) {
        let format = header.format();
        // Length and version, and from DWARF 5 on the kind of unit and the size of addresses.
        let before = usize::from(format.initial_length_size()) + if header.version() >= 5 { 4 } else { 2 };
        self.update.references.push(Reference {
            at: offset + before,
            width: format.word_size(),
            target: Target::Abbreviations,
        });
    }

    fn entries(&mut self, start: usize) -> Result<()> {
        let unit = self.bases.unit;
        let section = self.section;
        let mut raw = unit.entries_raw(None).map_err(|error| section.damaged(start, error))?;
        let mut is_root = true;
        while !raw.is_empty() {
            let place = start + raw.next_offset().0;
            let broken = |error: gimli::Error| section.damaged(place, error);
            let Some(abbreviation) = raw.read_abbreviation().map_err(broken)? else { continue };
            let mut bounds = Bounds::default();
            for specification in abbreviation.attributes() {
                let at = start + raw.next_offset().0;
                let attribute = raw.read_attribute(*specification).map_err(broken)?;
                let width = start + raw.next_offset().0 - at;
                self.attribute(at, width, abbreviation.tag(), &attribute, &mut bounds)?;
            }
            self.views(&bounds)?;
            match is_root {
                true => self.root_bounds(place, abbreviation.code(), &bounds)?,
                false => self.bounds(place, abbreviation.tag(), &bounds)?,
            }
            is_root = false;
        }
        Ok(())
    }

    fn attribute(
        &mut self,
        at: usize,
        width: usize,
        tag: DwTag,
        attribute: &gimli::Attribute<Slice<'_>>,
        bounds: &mut Bounds,
    ) -> Result<()> {
        let (name, form) = (attribute.name(), attribute.form());
        let bound = |value, is_address, index| Some(Bound { at, width, form, value, is_address, index });
        bounds.is_split |= names_other_file(name);
        match attribute.value() {
            AttributeValue::Addr(value) if name == constants::DW_AT_low_pc => {
                bounds.low = bound(value, true, None);
                if ends_code(name, tag) {
                    self.store(at, width, self.pieces.end(value));
                    bounds.low = None;
                }
            }
            AttributeValue::Addr(value) if name == constants::DW_AT_high_pc => {
                bounds.high = bound(value, true, None);
            }
            AttributeValue::Addr(value) => {
                let new =
                    if ends_code(name, tag) { self.pieces.end(value) } else { self.pieces.start(value) };
                self.store(at, width, new);
            }
            AttributeValue::DebugAddrIndex(index) => {
                let value = self
                    .bases
                    .dwarf
                    .address(self.bases.unit, index)
                    .map_err(|error| self.section.damaged(at, error))?;
                let is_end = ends_code(name, tag) || name == constants::DW_AT_high_pc;
                let meaning = if is_end { Use::End } else { Use::Start };
                self.update.uses.push(AddressUse { index: index.0, meaning });
                match name {
                    constants::DW_AT_low_pc if !is_end => bounds.low = bound(value, true, Some(index.0)),
                    constants::DW_AT_high_pc => bounds.high = bound(value, true, Some(index.0)),
                    _ => {}
                }
            }
            AttributeValue::Udata(value) if name == constants::DW_AT_high_pc => {
                bounds.high = bound(value, false, None);
            }
            AttributeValue::Exprloc(expression) => self.expression(at, expression.0)?,
            AttributeValue::Block(expression) if is_old_expression(name) => {
                self.expression(at, expression)?
            }
            AttributeValue::LocationListsRef(offset) => {
                let key = Key::At(offset.0);
                self.location_keys.entry(key).or_default();
                bounds.location.get_or_insert(key);
                self.refer(at, width, Target::Locations(key));
            }
            AttributeValue::DebugLocListsIndex(index) => {
                let key = Key::Index(index.0);
                self.location_keys.entry(key).or_default();
                bounds.location.get_or_insert(key);
            }
            AttributeValue::RangeListsRef(offset) => {
                let key = Key::At(offset.0);
                self.range_keys.insert(key, ());
                bounds.ranges = Some(key);
                self.refer(at, width, Target::Ranges(key));
            }
            AttributeValue::DebugRngListsIndex(index) => {
                let key = Key::Index(index.0);
                self.range_keys.insert(key, ());
                bounds.ranges = Some(key);
            }
            AttributeValue::DebugLineRef(offset) => self.refer(at, width, Target::Lines(offset.0)),
            AttributeValue::DebugRngListsBase(base) if name == constants::DW_AT_rnglists_base => {
                self.update.ranges_base = Some(base.0);
                self.refer(at, width, Target::RangesBase);
            }
            AttributeValue::DebugLocListsBase(base) => {
                self.update.locations_base = Some(base.0);
                self.refer(at, width, Target::LocationsBase);
            }
            AttributeValue::DebugAddrBase(base) => self.update.addresses_base = Some(base.0),
            AttributeValue::DebugMacroRef(offset) => self.update.macros.push(offset.0),
            AttributeValue::SecOffset(offset) if name == constants::DW_AT_GNU_locviews => {
                bounds.views = Some((at, width as u8, offset));
            }
            AttributeValue::SecOffset(offset) if name == constants::DW_AT_GNU_macros => {
                self.update.macros.push(offset);
            }
            AttributeValue::DebugRngListsBase(_) | AttributeValue::SecOffset(_) => {
                let reason = format!("attribute {name} at {at:#x} of {} refers to a list", self.section.name);
                return Err(cannot_update(reason).into());
            }
            _ => {}
        }
        Ok(())
    }

    fn store(&mut self, at: usize, width: usize, value: u64) {
        self.update.patches.push(Patch { at, width: width as u8, value });
    }

    fn refer(&mut self, at: usize, width: usize, target: Target) {
        self.update.references.push(Reference { at, width: width as u8, target });
    }

    fn expression(&mut self, at: usize, expression: Slice<'_>) -> Result<()> {
        let mut stored = Vec::new();
        let encoding = self.update.encoding;
        // The expression lies in the section, so its position gives those of its parts.
        let uses = &mut self.update.uses;
        addresses(expression, self.whole, encoding, self.pieces, &mut stored, uses)
            .map_err(|error| self.section.broken(at, error))?;
        stored.into_iter().for_each(|(place, address)| self.store(place, 8, address));
        Ok(())
    }

    /// Views belong to the entry's first list, whose entries they are pairs for.
    fn views(&mut self, bounds: &Bounds) -> Result<()> {
        let Some((at, width, position)) = bounds.views else { return Ok(()) };
        let known = bounds.location.and_then(|key| Some((key, self.location_keys.get_mut(&key)?)));
        match known {
            Some((key, views)) if views.is_none_or(|other| other == position) => {
                *views = Some(position);
                self.update.references.push(Reference { at, width, target: Target::Views(key) });
                Ok(())
            }
            _ => {
                let reason =
                    format!("the views at {at:#x} of {} belong to no list of their own", self.section.name);
                Err(cannot_update(reason).into())
            }
        }
    }
}

/// Whether the attribute is the address after an instruction, not of one: the return address of a call may be the end of
/// the function.
fn ends_code(name: DwAt, tag: DwTag) -> bool {
    name == constants::DW_AT_call_return_pc
        || name == constants::DW_AT_low_pc && tag == constants::DW_TAG_GNU_call_site
}

/// Whether the attribute says that a unit's entries are in another file.
fn names_other_file(name: DwAt) -> bool {
    matches!(name, constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name | constants::DW_AT_GNU_dwo_id)
}

/// Attributes whose blocks are expressions in DWARF 2 and 3, although the reader treats them as bytes.
fn is_old_expression(name: DwAt) -> bool {
    matches!(
        name,
        constants::DW_AT_GNU_call_site_value
            | constants::DW_AT_GNU_call_site_data_value
            | constants::DW_AT_GNU_call_site_target
            | constants::DW_AT_GNU_call_site_target_clobbered
    )
}
