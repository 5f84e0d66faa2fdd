//! Compares the entries of units: the same except for addresses, which follow the map.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gimli::{AttributeValue, DwAt, DwTag, UnitHeader, constants};
use reorder_base::address::{Address, NewAddress};

use super::coverage::{Range, distance, is_code, same};
use super::expressions::same_expression;
use super::lists::{locations, same_locations};
use super::scene::Scene;
use super::side::{Side, Source};
use super::view::Slice;

/// The result for a pair of units: what other checks need, and how much was compared.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The first difference.
    pub(super) difference: Option<String>,
    /// Old and new position of line programs that the units name.
    pub(super) lines: BTreeSet<(usize, usize)>,
    /// Entries compared.
    pub(super) entries: usize,
    /// Lists compared.
    pub(super) lists: usize,
    /// Positions in the old `.debug_addr` of the addresses that the unit names.
    pub(super) named: Vec<usize>,
    /// Whether its entries stand in another file.
    pub(super) is_split: bool,
}

/// Addresses that an entry covers, as its attributes say.
#[derive(Clone, Debug, Default)]
struct Covered {
    low: Option<u64>,
    high: Option<u64>,
    /// A list and where it is.
    ranges: Option<(usize, Rc<Vec<Range>>)>,
}

impl Covered {
    fn ranges(&self) -> Option<Rc<Vec<Range>>> {
        match (&self.ranges, self.low, self.high) {
            (Some((_, ranges)), _, _) => Some(Rc::clone(ranges)),
            (None, Some(low), Some(high)) => Some(Rc::new(vec![(low, high)])),
            _ => None,
        }
    }
}

/// Compares two units whose headers stand at the same place.
pub(super) fn compare_units<'data>(
    pair: Scene<'_>,
    old: (Source<'_, 'data>, UnitHeader<Slice<'data>>),
    new: (Source<'_, 'data>, UnitHeader<Slice<'data>>),
) -> Outcome {
    let mut outcome = Outcome::default();
    let result = compare(pair, old, new, &mut outcome);
    if let Err(error) = result {
        outcome.difference.get_or_insert_with(|| format!("the unit at {:#x}: {error}", old.1.offset().0));
    }
    outcome
}

fn compare<'data>(
    pair: Scene<'_>,
    old: (Source<'_, 'data>, UnitHeader<Slice<'data>>),
    new: (Source<'_, 'data>, UnitHeader<Slice<'data>>),
    outcome: &mut Outcome,
) -> gimli::Result<()> {
    let shape = |header: &UnitHeader<Slice<'_>>| {
        (
            header.offset(),
            header.length_including_self(),
            header.encoding(),
            header.type_(),
            header.header_size(),
        )
    };
    if shape(&old.1) != shape(&new.1) {
        outcome.difference = Some(format!("the header of the unit at {:#x}", old.1.offset().0));
        return Ok(());
    }
    let start = old.1.offset().0;
    let units = (old.0.0.unit(old.1)?, new.0.0.unit(new.1)?);
    let sides = (Side::new(old.0, &units.0), Side::new(new.0, &units.1));
    let result = walk(pair, start, &sides, outcome);
    let base = units.0.addr_base.0;
    let named = sides.0.named.take().into_iter().map(|index| base.saturating_add(index.saturating_mul(8)));
    outcome.named = named.collect();
    result
}

/// Compares all entries of two units that `start` at the same place.
fn walk<'data>(
    pair: Scene<'_>,
    start: usize,
    sides: &(Side<'_, 'data>, Side<'_, 'data>),
    outcome: &mut Outcome,
) -> gimli::Result<()> {
    let (mut before, mut after) = (sides.0.unit.entries_raw(None)?, sides.1.unit.entries_raw(None)?);
    let mut is_root = true;
    let mut judged = Judged::default();
    while !before.is_empty() {
        let place = before.next_offset();
        if place != after.next_offset() {
            outcome.difference = Some(format!("the entry at {:#x} has another size", start + place.0));
            return Ok(());
        }
        let pairs = (before.read_abbreviation()?, after.read_abbreviation()?);
        let (Some(first), Some(second)) = pairs else {
            if pairs.0.is_some() != pairs.1.is_some() {
                outcome.difference = Some(format!("there is no entry at {:#x}", start + place.0));
                return Ok(());
            }
            continue;
        };
        outcome.entries += 1;
        let mut attributes = (Vec::new(), Vec::new());
        for specification in first.attributes() {
            attributes.0.push(before.read_attribute(*specification)?);
        }
        for specification in second.attributes() {
            attributes.1.push(after.read_attribute(*specification)?);
        }
        let mut entries = Entries { pair, sides, tag: first.tag(), is_root, outcome, judged: &mut judged };
        let is_same = first.tag() == second.tag()
            && first.has_children() == second.has_children()
            && entries.same(&attributes.0, &attributes.1)?;
        if !is_same {
            outcome.difference = Some(format!("the {} at {:#x}", first.tag(), start + place.0));
            return Ok(());
        }
        is_root = false;
    }
    if !after.is_empty() {
        outcome.difference = Some(format!("the unit at {start:#x} has more entries"));
    }
    Ok(())
}

/// Two entries that stand at the same place.
struct Entries<'entry, 'data> {
    pair: Scene<'entry>,
    sides: &'entry (Side<'entry, 'data>, Side<'entry, 'data>),
    tag: DwTag,
    is_root: bool,
    outcome: &'entry mut Outcome,
    judged: &'entry mut Judged,
}

/// Pairs of lists, by their positions, and whether they say the same.
#[derive(Default)]
struct Judged {
    ranges: BTreeMap<(usize, usize), bool>,
    /// With the positions of their views.
    locations: BTreeMap<(ListPlace, ListPlace), bool>,
}

/// Where a list is, and its views.
type ListPlace = (usize, Option<usize>);

type Attribute<'data> = gimli::Attribute<Slice<'data>>;

impl<'data> Entries<'_, 'data> {
    fn same(&mut self, old: &[Attribute<'data>], new: &[Attribute<'data>]) -> gimli::Result<bool> {
        let covered = (self.covered(&self.sides.0, old)?, self.covered(&self.sides.1, new)?);
        if !self.same_coverage(&covered.0, &covered.1) || self.is_torn(old, &covered) {
            return Ok(false);
        }
        // Only a unit may change the form of its coverage and fill the bytes that this frees.
        let is_kept = |attribute: &&Attribute<'_>| {
            !self.is_root || !is_bound(attribute.name()) && attribute.name() != constants::DW_AT_hi_user
        };
        let (before, after): (Vec<_>, Vec<_>) =
            (old.iter().filter(is_kept).collect(), new.iter().filter(is_kept).collect());
        if before.len() != after.len() {
            return Ok(false);
        }
        let mut views = (views(old), views(new));
        if views.0.is_some() && !has_locations(old) {
            return Ok(false);
        }
        for (before, after) in before.into_iter().zip(after) {
            let is_same = before.name() == after.name()
                && before.form() == after.form()
                && (is_bound(before.name()) && covered.0.ranges().is_some()
                    || self.same_value(before, after, &mut views)?);
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn covered(&self, side: &Side<'_, 'data>, attributes: &[Attribute<'data>]) -> gimli::Result<Covered> {
        let mut covered = Covered::default();
        let mut length = None;
        for attribute in attributes {
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_low_pc, value) => covered.low = side.attribute_address(value)?,
                (constants::DW_AT_high_pc, AttributeValue::Udata(value)) => length = Some(value),
                (constants::DW_AT_high_pc, value) => {
                    covered.high = side.attribute_address(value)?;
                }
                (constants::DW_AT_ranges, value) => {
                    let offset = side.dwarf.attr_ranges_offset(side.unit, value)?;
                    covered.ranges = match offset {
                        Some(offset) => Some((offset.0, side.ranges(self.pair, offset.0)?)),
                        None => None,
                    };
                }
                _ => {}
            }
        }
        if let (Some(low), Some(length)) = (covered.low, length) {
            covered.high = Some(low.wrapping_add(length));
        }
        Ok(covered)
    }

    fn same_coverage(&mut self, old: &Covered, new: &Covered) -> bool {
        self.outcome.lists += usize::from(old.ranges.is_some());
        if let (Some((first, old)), Some((second, new))) = (&old.ranges, &new.ranges) {
            let judge = || same(self.pair, old, new);
            return *self.judged.ranges.entry((*first, *second)).or_insert_with(judge);
        }
        match (old.ranges(), new.ranges()) {
            // Only a unit may change the form of its coverage.
            (Some(_), Some(_)) if !self.is_root && old.ranges.is_some() != new.ranges.is_some() => false,
            (Some(old), Some(new)) => same(self.pair, &old, &new),
            (None, None) => match (old.low, new.low) {
                (Some(old), Some(new)) => self.same_address(constants::DW_AT_low_pc, old, new),
                (old, new) => old == new,
            },
            _ => false,
        }
    }

    /// Whether the unit's entries are in another file, which states distances from the start of the unit or of its ranges,
    /// although code of one range moved by different distances.
    fn is_torn(&mut self, attributes: &[Attribute<'_>], (old, new): &(Covered, Covered)) -> bool {
        let names_file = |attribute: &Attribute<'_>| {
            let name = attribute.name();
            matches!(
                name,
                constants::DW_AT_dwo_name | constants::DW_AT_GNU_dwo_name | constants::DW_AT_GNU_dwo_id
            )
        };
        let is_split = self.sides.0.unit.dwo_id.is_some() || attributes.iter().any(names_file);
        if !self.is_root || !is_split {
            return false;
        }
        self.outcome.is_split = true;
        if old.ranges.is_none() && new.ranges.is_some() {
            return true;
        }
        let live = |address: &u64| is_code(self.pair, *address);
        let base = old.low.filter(live).and_then(|low| distance(self.pair, (low, low.saturating_add(1))));
        let ranges = old.ranges().unwrap_or_default();
        ranges.iter().copied().filter(|range| range.0 < range.1 && live(&range.0)).any(|range| {
            let found = distance(self.pair, range);
            found.is_none() || base.is_some_and(|base| found != Some(base))
        })
    }

    /// A return address may be the end of a function; it moves with the call before it.
    fn same_address(&self, name: DwAt, old: u64, new: u64) -> bool {
        let is_return = name == constants::DW_AT_call_return_pc
            || name == constants::DW_AT_low_pc && self.tag == constants::DW_TAG_GNU_call_site;
        match is_return {
            true => self.pair.mapped(Address(old.wrapping_sub(1))).plus(1).0 == new,
            false => self.pair.leads_to(Address(old), NewAddress(new)),
        }
    }

    fn same_value(
        &mut self,
        old: &Attribute<'data>,
        new: &Attribute<'data>,
        views: &mut (Option<usize>, Option<usize>),
    ) -> gimli::Result<bool> {
        let name = old.name();
        let (before, after) = self.sides;
        Ok(match (old.value(), new.value()) {
            (AttributeValue::Addr(first), AttributeValue::Addr(second)) => {
                self.same_address(name, first, second)
            }
            (AttributeValue::DebugAddrIndex(first), AttributeValue::DebugAddrIndex(second)) => {
                first == second && self.same_address(name, before.address(first)?, after.address(second)?)
            }
            (AttributeValue::Exprloc(first), AttributeValue::Exprloc(second)) => {
                same_expression(self.pair, (before, first.0), (after, second.0))?
            }
            (AttributeValue::Block(first), AttributeValue::Block(second)) if first != second => {
                same_expression(self.pair, (before, first), (after, second))?
            }
            (AttributeValue::DebugLineRef(first), AttributeValue::DebugLineRef(second)) => {
                self.outcome.lines.insert((first.0, second.0));
                true
            }
            (
                first @ (AttributeValue::LocationListsRef(_) | AttributeValue::DebugLocListsIndex(_)),
                second @ (AttributeValue::LocationListsRef(_) | AttributeValue::DebugLocListsIndex(_)),
            ) => {
                self.outcome.lists += 1;
                let offsets = (
                    before.dwarf.attr_locations_offset(before.unit, first)?,
                    after.dwarf.attr_locations_offset(after.unit, second)?,
                );
                let (Some(first), Some(second)) = offsets else { return Ok(false) };
                // Views belong to the first list.
                let views = std::mem::take(views);
                let key = ((first.0, views.0), (second.0, views.1));
                if let Some(known) = self.judged.locations.get(&key) {
                    return Ok(*known);
                }
                let lists = (
                    locations(self.pair, before, first.0, views.0)?,
                    locations(self.pair, after, second.0, views.1)?,
                );
                let is_same = same_locations(self.pair, (before, &lists.0), (after, &lists.1))?;
                self.judged.locations.insert(key, is_same);
                is_same
            }
            // These are compared by what they lead to.
            (AttributeValue::RangeListsRef(_), AttributeValue::RangeListsRef(_))
            | (AttributeValue::DebugLocListsBase(_), AttributeValue::DebugLocListsBase(_)) => true,
            // The other such base is that of lists which only another file names.
            (AttributeValue::DebugRngListsBase(_), AttributeValue::DebugRngListsBase(_)) => {
                name == constants::DW_AT_rnglists_base
            }
            (AttributeValue::SecOffset(_), AttributeValue::SecOffset(_))
                if name == constants::DW_AT_GNU_locviews =>
            {
                true
            }
            (first, second) => first == second,
        })
    }
}

/// Where the views of an entry's locations are.
fn views(attributes: &[Attribute<'_>]) -> Option<usize> {
    attributes.iter().find_map(|attribute| match (attribute.name(), attribute.value()) {
        (constants::DW_AT_GNU_locviews, AttributeValue::SecOffset(position)) => Some(position),
        _ => None,
    })
}

/// Whether the entry has a list of locations, for which views can be.
fn has_locations(attributes: &[Attribute<'_>]) -> bool {
    attributes.iter().any(|attribute| {
        matches!(
            attribute.value(),
            AttributeValue::LocationListsRef(_) | AttributeValue::DebugLocListsIndex(_)
        )
    })
}

/// Attributes that together say what an entry covers.
fn is_bound(name: DwAt) -> bool {
    matches!(name, constants::DW_AT_low_pc | constants::DW_AT_high_pc | constants::DW_AT_ranges)
}
