//! One unit of `.debug_info` or `.debug_types`: what changes in its entries, and the lists that they name.
//!
//! Entries keep their size, so that nothing that refers to them by position changes. Source: DWARF 5, chapters 3 and 7.

use std::collections::BTreeMap;

use gimli::{AttributeValue, DwAt, DwForm, DwTag, Reader, UnitType, constants};

use super::abbreviations::Reshape;
use super::expressions::{AddressUse, Use, addresses};
use super::lists::{Bases, Key, UnitLists, Writing};
use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, DebugSections, OVER_AND_OVER, Slice, cannot_update};
use crate::address::Address;
use crate::error::{Error, Result};

/// What a place in the unit refers to in a section that is written again.
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
    /// To what.
    pub target: Target,
}

/// Everything that changes for one unit.
#[derive(Debug)]
pub struct UnitUpdate {
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
    /// Positions of the tables that indexes of lists count from.
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
    /// What changes about them.
    pub reshape: Option<Reshape>,
    /// Whether its entries stand in another file.
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

/// What one entry's attributes said that belongs together.
#[derive(Default)]
struct Bounds {
    low: Option<Bound>,
    high: Option<Bound>,
    ranges: Option<Key>,
    location: Option<Key>,
    views: Option<(usize, u8, usize)>,
    /// Says that entries stand in another file.
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
    /// The unit's own base address afterwards.
    base: Option<u64>,
    own_ranges: Option<(u64, u64)>,
}

/// Reads the unit and says what changes.
///
/// # Errors
/// A damaged unit; R10 for what cannot be expressed.
pub fn update_unit<'data>(
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
        // The expression lies in the section, so that its position says where its parts are.
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

    /// Code that an entry describes, if it is in the image.
    fn live(&self, bounds: &Bounds) -> Option<(Bound, Bound, u64)> {
        let (low, high) = (bounds.low?, bounds.high?);
        let end = if high.is_address { high.value } else { low.value.wrapping_add(high.value) };
        (self.pieces.is_code(low.value) && low.value < end).then_some((low, high, end))
    }

    fn bounds(&mut self, place: usize, tag: DwTag, bounds: &Bounds) -> Result<()> {
        match (self.live(bounds), bounds.low) {
            (Some((low, high, end)), _) => {
                let parts = self.pieces.split(low.value, end);
                match parts.as_slice() {
                    [(start, end)] => self.store_bounds(place, low, high, start.0, end.0),
                    _ => {
                        let reason = format!(
                            "the {tag} at {place:#x} of {} describes code that went apart",
                            self.section.name
                        );
                        Err(cannot_update(reason).at(Address(low.value)).into())
                    }
                }
            }
            (None, Some(low)) => {
                let start = self.pieces.start(low.value);
                if low.index.is_none() {
                    self.store(low.at, low.width, start);
                }
                // Code without extent, whose end is stated as an address.
                if let Some(high) = bounds.high.filter(|high| high.is_address && high.value == low.value)
                    && high.index.is_none()
                {
                    self.store(high.at, high.width, start);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn store_bounds(&mut self, place: usize, low: Bound, high: Bound, start: u64, end: u64) -> Result<()> {
        if low.index.is_none() {
            self.store(low.at, low.width, start);
        } else if self.pieces.start(low.value) != start {
            return Err(self.section.damaged(place, "the code begins in padding"));
        }
        if high.is_address && high.index.is_none() {
            self.store(high.at, high.width, end);
        } else if !high.is_address && end - start != high.value {
            if matches!(high.form, constants::DW_FORM_udata | constants::DW_FORM_implicit_const) {
                let reason = format!("the entry at {place:#x} of {} reaches into padding", self.section.name);
                return Err(cannot_update(reason).at(Address(low.value)).into());
            }
            self.store(high.at, high.width, end - start);
        }
        Ok(())
    }

    /// The unit itself: where its code went apart it gets ranges instead of bounds.
    fn root_bounds(&mut self, place: usize, code: u64, bounds: &Bounds) -> Result<()> {
        self.base = bounds.low.map(|low| self.pieces.start(low.value));
        if self.base.is_none() && self.update.encoding.version <= 4 {
            self.base = Some(0);
        }
        self.update.is_split |= bounds.is_split;
        let is_split = self.update.is_split;
        if let (true, Some(key)) = (is_split, bounds.ranges) {
            self.split_ranges(key, bounds.low)?;
        }
        let Some((low, high, end)) = self.live(bounds) else {
            return self.bounds(place, constants::DW_TAG_compile_unit, bounds);
        };
        let parts = self.pieces.split(low.value, end);
        if let [(start, end)] = parts.as_slice() {
            self.base = Some(start.0);
            return self.store_bounds(place, low, high, start.0, end.0);
        }
        if is_split {
            return Err(self.counted_elsewhere(low.value));
        }
        let word = usize::from(self.update.encoding.format.word_size());
        let (slot, reshape) =
            Reshape::choose(code, self.update.encoding, (low.form, low.width), (high.form, high.width))
                .ok_or_else(|| {
                    cannot_update(format!(
                        "the unit at {place:#x} of {} has no room for a list of ranges",
                        self.section.name
                    ))
                    .at(Address(low.value))
                })?;
        let at = if slot.is_high { high.at } else { low.at };
        self.refer(at, word, Target::Ranges(Key::Own));
        if slot.width > word {
            self.store(at + word, slot.width - word, 0);
        }
        if slot.is_high && low.index.is_none() {
            // What counts from the unit's base address then counts from zero.
            self.store(low.at, low.width, 0);
            self.base = Some(0);
        } else if !slot.is_high {
            self.base = None;
        }
        self.update.reshape = Some(reshape);
        self.own_ranges = Some((low.value, end));
        Ok(())
    }

    /// The ranges of a unit whose entries stand in another file, which counts from the start of each of them, or from
    /// the unit's own: compilers count from labels of the same section.
    fn split_ranges(&mut self, key: Key, low: Option<Bound>) -> Result<()> {
        let section = self.section;
        let offset = self.bases.unit.header.offset().0;
        let broken = |error: gimli::Error| section.damaged(offset, error);
        let Some(position) = self.range_position(key).map_err(broken)? else { return Ok(()) };
        let low = low.map(|low| low.value).filter(|&low| self.pieces.is_code(low));
        let base = low.and_then(|low| self.pieces.at(low)).map(|piece| piece.delta);
        for entry in self.bases.ranges(position).map_err(broken)? {
            let Some((begin, end)) = entry.code(self.pieces) else { continue };
            match self.pieces.distance(begin, end) {
                Some(distance) if base.is_none_or(|base| base == distance) => {}
                _ => return Err(self.counted_elsewhere(begin)),
            }
        }
        Ok(())
    }

    fn counted_elsewhere(&self, address: u64) -> Error {
        let reason = format!(
            "the unit at {:#x} of {} has its entries in a file of its own, which counts from an address that is no \
             longer its own",
            self.bases.unit.header.offset().0,
            self.section.name
        );
        cannot_update(reason).at(Address(address)).into()
    }

    /// Where a list of ranges is.
    fn range_position(&self, key: Key) -> gimli::Result<Option<usize>> {
        Ok(match key {
            Key::At(position) => Some(position),
            Key::Index(index) => {
                let index = gimli::DebugRngListsIndex(index);
                Some(self.bases.dwarf.ranges_offset(self.bases.unit, index)?.0)
            }
            Key::Own => None,
        })
    }

    /// Reads all lists that the entries name and writes them with the unit's new base.
    fn lists(&mut self, offset: usize) -> Result<()> {
        let section = self.section;
        let broken = |error: gimli::Error| section.broken(offset, error);
        let writing = Writing { encoding: self.update.encoding, base: self.base, pieces: self.pieces };
        let unit = self.bases.unit;
        let dwarf = self.bases.dwarf;
        // Lists may begin inside of others, so that few bytes make very many.
        let check = || match self.pieces.is_exhausted() {
            true => Err(Error::from(cannot_update(OVER_AND_OVER))),
            false => Ok(()),
        };
        for key in self.range_keys.keys() {
            let Some(position) = self.range_position(*key).map_err(broken)? else { continue };
            let entries = self.bases.ranges(position).map_err(broken)?;
            let uses = &mut self.update.uses;
            self.update.ranges.push(*key, &entries, None, writing, uses).map_err(broken)?;
            check()?;
        }
        if let Some((start, end)) = self.own_ranges {
            let entries = [super::lists::Entry::range(start, end)];
            let uses = &mut self.update.uses;
            self.update.ranges.push(Key::Own, &entries, None, writing, uses).map_err(broken)?;
        }
        for (key, views) in &self.location_keys {
            let position = match *key {
                Key::At(position) => position,
                Key::Index(index) => {
                    dwarf.locations_offset(unit, gimli::DebugLocListsIndex(index)).map_err(broken)?.0
                }
                Key::Own => continue,
            };
            let entries = self.bases.locations(position).map_err(broken)?;
            let views = views.map(|position| self.view_bytes(position)).transpose().map_err(broken)?;
            let uses = &mut self.update.uses;
            self.update.locations.push(*key, &entries, views, writing, uses).map_err(broken)?;
            check()?;
        }
        Ok(())
    }

    fn view_bytes(&self, position: usize) -> gimli::Result<Slice<'data>> {
        let name = if self.update.encoding.version <= 4 { ".debug_loc" } else { ".debug_loclists" };
        let mut bytes = Slice::new(self.sections.bytes(name), gimli::LittleEndian);
        bytes.skip(position)?;
        Ok(bytes)
    }
}

/// Whether the attribute is the address behind an instruction instead of that of one: the place to which a call
/// returns may be the end of the function.
fn ends_code(name: DwAt, tag: DwTag) -> bool {
    name == constants::DW_AT_call_return_pc
        || name == constants::DW_AT_low_pc && tag == constants::DW_TAG_GNU_call_site
}

/// Whether the attribute says that a unit's entries stand in another file.
fn names_other_file(name: DwAt) -> bool {
    matches!(name, constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name | constants::DW_AT_GNU_dwo_id)
}

/// Attributes whose blocks are expressions in DWARF 2 and 3 although the reader takes them for bytes.
fn is_old_expression(name: DwAt) -> bool {
    matches!(
        name,
        constants::DW_AT_GNU_call_site_value
            | constants::DW_AT_GNU_call_site_data_value
            | constants::DW_AT_GNU_call_site_target
            | constants::DW_AT_GNU_call_site_target_clobbered
    )
}
