//! Lists of ranges and locations, resolved to addresses by `gimli`'s raw readers.

use gimli::{RawLocListEntry, RawRngListEntry};

use super::coverage::{Range, new_parts, old_parts};
use super::expressions::same_expression;
use super::units::Side;
use super::view::Slice;
use crate::verify::pair::ImagePair;

/// A location with the addresses where it holds; none for the default.
pub(super) struct Location<'data> {
    range: Option<Range>,
    expression: Slice<'data>,
}

/// Linkers put these in place of addresses of code that they left out.
const LEAST_TOMBSTONE: u64 = u64::MAX - 1;

fn resolve(base: u64, begin: u64, end: u64) -> Range {
    if base >= LEAST_TOMBSTONE {
        return (base, base.wrapping_add(end.wrapping_sub(begin)));
    }
    (base.wrapping_add(begin), base.wrapping_add(end))
}

/// The ranges of the list at `offset`.
pub(super) fn ranges(side: &Side<'_, '_>, offset: usize) -> gimli::Result<Vec<Range>> {
    let mut base = side.unit.low_pc;
    let mut list = side.dwarf.raw_ranges(side.unit, gimli::RangeListsOffset(offset))?;
    let mut ranges = Vec::new();
    while let Some(entry) = list.next()? {
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

/// The locations of the list at `offset`.
pub(super) fn locations<'data>(side: &Side<'_, 'data>, offset: usize) -> gimli::Result<Vec<Location<'data>>> {
    let mut base = side.unit.low_pc;
    let mut list = side.dwarf.raw_locations(side.unit, gimli::LocationListsOffset(offset))?;
    let mut locations = Vec::new();
    while let Some(entry) = list.next()? {
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
        locations.push(Location { range, expression: data.0 });
    }
    Ok(locations)
}

/// Whether both lists give the same location for every address of a function.
pub(super) fn same_locations(
    pair: ImagePair<'_>,
    old: (&Side<'_, '_>, &[Location<'_>]),
    new: (&Side<'_, '_>, &[Location<'_>]),
) -> gimli::Result<bool> {
    let before = divided(pair, old.1, old_parts);
    let after = divided(pair, new.1, new_parts);
    if before.len() != after.len() {
        return Ok(false);
    }
    for ((range, expression), (found, other)) in before.into_iter().zip(after) {
        if range != found || !same_expression(pair, (old.0, expression), (new.0, other))? {
            return Ok(false);
        }
    }
    Ok(true)
}

type Divided<'data> = Vec<(Option<Range>, Slice<'data>)>;

/// Entries by function in the new image; neighbours of one expression are one.
fn divided<'data>(
    pair: ImagePair<'_>,
    locations: &[Location<'data>],
    divide: fn(ImagePair<'_>, Range) -> super::coverage::Parts,
) -> Divided<'data> {
    let mut divided: Divided<'data> = Vec::new();
    for location in locations {
        let parts = match location.range {
            None => vec![None],
            Some(range) if range.0 > range.1 || !super::coverage::is_code(pair, range.0) => {
                // Entries of code that is not in the image stay; empty ones say nothing.
                if range.0 == range.1 { Vec::new() } else { vec![Some(range)] }
            }
            Some(range) => divide(pair, range).functions.into_iter().map(Some).collect(),
        };
        for part in parts {
            match (divided.last_mut(), part) {
                (Some((Some(last), expression)), Some(part))
                    if last.1 == part.0 && *expression == location.expression =>
                {
                    last.1 = part.1;
                }
                _ => divided.push((part, location.expression)),
            }
        }
    }
    divided
}
