//! Lists of ranges and locations, resolved to addresses by `gimli`'s raw readers.

use gimli::{RawLocListEntry, RawRngListEntry, Reader as _};

use super::coverage::{Range, is_code, new_parts, old_parts};
use super::expressions::same_expression;
use super::scene::Scene;
use super::side::Side;
use super::view::Slice;
use reorder_base::address::{Address, NewAddress};

/// A location with the addresses for which it holds; `None` for the default location.
#[derive(Clone, Copy)]
pub(super) struct Location<'data> {
    range: Option<Range>,
    expression: Slice<'data>,
    views: Views,
}

/// The view numbers at which a location begins and ends, among several rows for one address; `None` where not compared.
type Views = (Option<u64>, Option<u64>);

/// Whether the views are equal where both are known.
fn same_views(first: Views, second: Views) -> bool {
    let same = |first: Option<u64>, second: Option<u64>| {
        first.zip(second).is_none_or(|(first, second)| first == second)
    };
    same(first.0, second.0) && same(first.1, second.1)
}

/// Linkers write this number or the next one instead of addresses of code that they left out.
const MIN_TOMBSTONE: u64 = u64::MAX - 1;

fn resolve(base: u64, begin: u64, end: u64) -> Range {
    if base >= MIN_TOMBSTONE {
        return (base, base.wrapping_add(end.wrapping_sub(begin)));
    }
    (base.wrapping_add(begin), base.wrapping_add(end))
}

/// The ranges of the list at `offset`.
pub(super) fn ranges(pair: Scene<'_>, side: &Side<'_, '_>, offset: usize) -> gimli::Result<Vec<Range>> {
    let mut base = side.unit.low_pc;
    let mut list = side.dwarf.raw_ranges(side.unit, gimli::RangeListsOffset(offset))?;
    let mut ranges = Vec::new();
    while let Some(entry) = list.next()?.filter(|_| pair.budget.take()) {
        ranges.push(match entry {
            RawRngListEntry::BaseAddress { addr } => {
                base = addr;
                continue;
            }
            RawRngListEntry::BaseAddressx { addr } => {
                base = side.address(addr)?;
                continue;
            }
            RawRngListEntry::AddressOrOffsetPair { begin, end }
            | RawRngListEntry::OffsetPair { begin, end } => resolve(base, begin, end),
            RawRngListEntry::StartEnd { begin, end } => (begin, end),
            RawRngListEntry::StartLength { begin, length } => (begin, begin.wrapping_add(length)),
            RawRngListEntry::StartxEndx { begin, end } => (side.address(begin)?, side.address(end)?),
            RawRngListEntry::StartxLength { begin, length } => {
                let begin = side.address(begin)?;
                (begin, begin.wrapping_add(length))
            }
        });
    }
    Ok(ranges)
}

/// The locations of the list at `offset`, with the pairs of views that stand at `views`.
pub(super) fn locations<'data>(
    pair: Scene<'_>,
    side: &Side<'_, 'data>,
    offset: usize,
    views: Option<usize>,
) -> gimli::Result<Vec<Location<'data>>> {
    let mut pairs = views.map(|position| side.views(position)).transpose()?;
    let mut base = side.unit.low_pc;
    let mut list = side.dwarf.raw_locations(side.unit, gimli::LocationListsOffset(offset))?;
    let mut locations = Vec::new();
    while let Some(entry) = list.next()?.filter(|_| pair.budget.take()) {
        let (range, data) = match entry {
            RawLocListEntry::BaseAddress { addr } => {
                base = addr;
                continue;
            }
            RawLocListEntry::BaseAddressx { addr } => {
                base = side.address(addr)?;
                continue;
            }
            RawLocListEntry::AddressOrOffsetPair { begin, end, data }
            | RawLocListEntry::OffsetPair { begin, end, data } => (Some(resolve(base, begin, end)), data),
            RawLocListEntry::StartEnd { begin, end, data } => (Some((begin, end)), data),
            RawLocListEntry::StartLength { begin, length, data } => {
                (Some((begin, begin.wrapping_add(length))), data)
            }
            RawLocListEntry::StartxEndx { begin, end, data } => {
                (Some((side.address(begin)?, side.address(end)?)), data)
            }
            RawLocListEntry::StartxLength { begin, length, data } => {
                let begin = side.address(begin)?;
                (Some((begin, begin.wrapping_add(length))), data)
            }
            RawLocListEntry::DefaultLocation { data } => (None, data),
        };
        let views = match (&mut pairs, range) {
            (Some(pairs), Some(_)) => (Some(pairs.read_uleb128()?), Some(pairs.read_uleb128()?)),
            _ => (Some(0), Some(0)),
        };
        locations.push(Location { range, expression: data.0, views });
    }
    Ok(locations)
}

/// Whether both lists give the same location for every address of a function.
pub(super) fn same_locations(
    pair: Scene<'_>,
    old: (&Side<'_, '_>, &[Location<'_>]),
    new: (&Side<'_, '_>, &[Location<'_>]),
) -> gimli::Result<bool> {
    let before = divided(pair, old.1, true);
    let after = divided(pair, new.1, false);
    if before.len() != after.len() {
        return Ok(false);
    }
    for (before, after) in before.into_iter().zip(after) {
        let is_same = before.range == after.range
            && same_views(before.views, after.views)
            && same_expression(pair, (old.0, before.expression), (new.0, after.expression))?;
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Entries by function in the new image; neighbours of one expression are one.
fn divided<'data>(pair: Scene<'_>, locations: &[Location<'data>], is_old: bool) -> Vec<Location<'data>> {
    let mut divided: Vec<Location<'data>> = Vec::new();
    for location in locations {
        match location.range {
            Some((start, end)) if start <= end && is_code(pair, start) => {
                for (range, views) in parts(pair, (start, end), location.views, is_old) {
                    push(&mut divided, Location { range: Some(range), views, ..*location });
                }
            }
            // Empty entries of code that is not in the image have no effect; its other entries must be unchanged.
            Some((start, end)) if start == end => {}
            _ => divided.push(*location),
        }
    }
    divided
}

/// The parts of an entry in functions. Views belong to its bounds, which may lie between functions.
fn parts(pair: Scene<'_>, (start, end): Range, views: Views, is_old: bool) -> Vec<(Range, Views)> {
    let is_inside = |address: u64| match is_old {
        true => pair.moves.containing(Address(address)).is_some(),
        false => pair.moves.containing_new(NewAddress(address)).is_some(),
    };
    let divide = if is_old { old_parts } else { new_parts };
    let parts = divide(pair, (start, end)).functions;
    let last = parts.len().saturating_sub(1);
    let begins = views.0.filter(|_| is_inside(start));
    let ends = views.1.filter(|_| is_inside(end.wrapping_sub(1)));
    let with_views = |(at, part)| {
        (part, (if at == 0 { begins } else { Some(0) }, if at == last { ends } else { Some(0) }))
    };
    parts.into_iter().enumerate().map(with_views).collect()
}

fn push<'data>(divided: &mut Vec<Location<'data>>, next: Location<'data>) {
    if let (Some(last), Some(range)) = (divided.last_mut(), next.range)
        && let Some(before) = last.range
        && before.1 == range.0
        && last.expression == next.expression
        && (last.views.1.unwrap_or(0), next.views.0.unwrap_or(0)) == (0, 0)
    {
        last.range = Some((before.0, range.1));
        last.views.1 = next.views.1;
        return;
    }
    divided.push(next);
}
