//! The addresses that an entry of debug information covers, in the old and the new image.

use super::scene::Scene;
use crate::elf::view::ElfView;
use reorder_base::address::{Address, NewAddress};

/// Addresses from the first up to the second.
pub(super) type Range = (u64, u64);

/// One old entry's addresses in the new image, in the old order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Inside of functions.
    pub(super) functions: Vec<Range>,
    /// Between functions, in old addresses.
    pub(super) between: Vec<Range>,
    /// For each range of [`Self::between`], the same range in addresses of the divided image.
    places: Vec<Range>,
}

/// Whether the code section that holds `address` exists.
pub(super) fn is_code(pair: Scene<'_>, address: u64) -> bool {
    pair.old.section_at(address).is_some_and(|section| section.is_code())
}

/// Divides an old range into parts in functions, with their new addresses, and parts between functions.
pub(super) fn old_parts(pair: Scene<'_>, range: Range) -> Parts {
    parts(range, |address| {
        let moves = pair.moves;
        match moves.containing(Address(address)) {
            Some(found) => (found.old_end().0, Some(found.delta()), 0),
            None => (moves.following(Address(address)).map_or(u64::MAX, |next| next.old_start.0), None, 0),
        }
    })
}

/// Divides a new range in the same way, in new addresses.
pub(super) fn new_parts(pair: Scene<'_>, range: Range) -> Parts {
    parts(range, |address| {
        let moves = pair.moves;
        match moves.containing_new(NewAddress(address)) {
            Some(found) => (found.new_end().0, Some(0), 0),
            None => {
                let next = moves.following_new(NewAddress(address));
                (next.map_or(u64::MAX, |next| next.new_start.0), None, shift(pair, address))
            }
        }
    })
}

/// The number to subtract from a new `address` between functions to get the old one: padding between two functions that kept
/// their distance may have moved with them.
fn shift(pair: Scene<'_>, address: u64) -> u64 {
    let moves = pair.moves;
    let Some(next) = moves.following_new(NewAddress(address)) else { return 0 };
    // Padding that is patched at run time moves with the function after it.
    if pair.prefix_origin(NewAddress(address)).is_some()
        || goes_along(pair, address, next.new_start.0, next.delta())
    {
        return next.delta();
    }
    let Some(before) = moves.preceding(Address(next.old_start.0.wrapping_sub(1))) else { return 0 };
    let is_between = before.new_end().0 <= address && before.delta() == next.delta();
    if is_between { next.delta() } else { 0 }
}

/// Whether constants from `address` up to the function at `end` moved by `delta` with it, because callers read them there:
/// they followed padding, which need not have moved, or a function.
fn goes_along(pair: Scene<'_>, address: u64, end: u64, delta: u64) -> bool {
    /// A signature and a hash, with room for longer ones.
    const MAX_SIZE: u64 = 16;
    let size = end - address;
    let start = address.wrapping_sub(delta);
    let before = start.wrapping_sub(1);
    let bytes = |image: &ElfView<'_>, start: u64| -> Option<Vec<u8>> {
        Some(image.section_at(start)?.at(start, size)?.to_vec())
    };
    size <= MAX_SIZE
        && (pair.paddings.hold((before, start)) || pair.moves.containing(Address(before)).is_some())
        && bytes(pair.old, start).is_some_and(|old| bytes(pair.new, address) == Some(old))
}

/// The old address of a new one between functions.
pub(super) fn new_origin(pair: Scene<'_>, address: u64) -> u64 {
    address.wrapping_sub(shift(pair, address))
}

/// Whether a range is padding in the old image and holds the same bytes in the new one. Constants that moved there with a function
/// have other bytes, or are the same padding to every reader.
pub(super) fn padding_stayed(pair: Scene<'_>, (start, end): Range) -> bool {
    let bytes =
        |image: &ElfView<'_>| Some(image.section_at(start)?.at(start, end.checked_sub(start)?)?.to_vec());
    pair.paddings.hold((start, end)) && bytes(pair.old).is_some_and(|old| bytes(pair.new) == Some(old))
}

/// `at` gives for an address where its function, or the room between two, ends; by what the function moves; and by
/// what the room moved.
fn parts((start, end): Range, at: impl Fn(u64) -> (u64, Option<u64>, u64)) -> Parts {
    let mut parts = Parts::default();
    let mut position = start;
    while position < end {
        let (stop, delta, shift) = at(position);
        let stop = stop.min(end).max(position.saturating_add(1));
        match delta {
            Some(delta) => parts.functions.push((position.wrapping_add(delta), stop.wrapping_add(delta))),
            None => {
                parts.between.push((position.wrapping_sub(shift), stop.wrapping_sub(shift)));
                parts.places.push((position, stop));
            }
        }
        position = stop;
    }
    parts
}

/// Sorted, without overlaps and neighbours.
pub(super) fn union(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges.into_iter().filter(|(start, end)| start < end) {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Whether `new` covers exactly what `old` covers. Padding may be missing, since the function that it followed may have
/// moved away; addresses outside of the image's code must be unchanged.
pub(super) fn same(pair: Scene<'_>, old: &[Range], new: &[Range]) -> bool {
    let live = |range: &&Range| is_code(pair, range.0);
    let dead = |ranges: &[Range]| -> Vec<Range> {
        ranges.iter().filter(|range| !live(range) && range.0 != range.1).copied().collect()
    };
    if dead(old) != dead(new) {
        return false;
    }
    let divide = |ranges: &[Range], divide: fn(Scene<'_>, Range) -> Parts| {
        let mut all = Parts::default();
        for range in ranges.iter().filter(live) {
            let mut parts = divide(pair, *range);
            all.functions.append(&mut parts.functions);
            all.between.append(&mut parts.between);
            all.places.append(&mut parts.places);
        }
        all
    };
    let (old, new) = (divide(old, old_parts), divide(new, new_parts));
    let old_between = union(old.between);
    // `shift` may take padding that stayed for padding that moved; then its own address counts.
    let origin = |(moved, place): (&Range, &Range)| match is_inside(*moved, &old_between) {
        false if padding_stayed(pair, *place) => *place,
        _ => *moved,
    };
    let new_between = union(new.between.iter().zip(&new.places).map(origin).collect());
    union(old.functions) == union(new.functions)
        && new_between.iter().all(|range| is_inside(*range, &old_between))
        && subtract(&old_between, &new_between).into_iter().all(|lost| may_be_lost(pair, lost))
}

/// Whether one of the sorted `ranges` holds all of `range`.
pub(super) fn is_inside(range: Range, ranges: &[Range]) -> bool {
    let after = ranges.partition_point(|known| known.0 <= range.0);
    ranges[..after].last().is_some_and(|known| range.1 <= known.1)
}

/// The parts of `from` that are not in `what`; both are sorted and disjoint.
fn subtract(from: &[Range], what: &[Range]) -> Vec<Range> {
    let mut rest = Vec::new();
    for &(from, end) in from {
        let mut start = from;
        let first = what.partition_point(|range| range.1 <= from);
        for &(other, stop) in what[first..].iter().take_while(|range| range.0 < end) {
            if other > start {
                rest.push((start, other));
            }
            start = start.max(stop);
        }
        if start < end {
            rest.push((start, end));
        }
    }
    rest
}

/// The distance by which all code of an old range moved; `None` when its parts moved by different distances.
pub(super) fn distance(pair: Scene<'_>, (start, end): Range) -> Option<u64> {
    let mut distance = None;
    let mut position = start;
    while position < end {
        let (stop, delta) = match pair.moves.containing(Address(position)) {
            Some(found) => (found.old_end().0, Some(found.delta())),
            None => {
                let next = pair.moves.following(Address(position)).map_or(u64::MAX, |next| next.old_start.0);
                // Code outside of functions is not moved.
                (next, (!pair.paddings.hold((position, next.min(end)))).then_some(0))
            }
        };
        if delta.is_some_and(|delta| *distance.get_or_insert(delta) != delta) {
            return None;
        }
        position = stop.max(position.saturating_add(1));
    }
    Some(distance.unwrap_or(0))
}

/// Whether an old range between functions is padding, outside of code, or now occupied by a function.
pub(super) fn may_be_lost(pair: Scene<'_>, (start, end): Range) -> bool {
    let Some(section) = pair.old.section_at(start).filter(|section| section.is_code()) else { return true };
    let is_taken = || new_parts(pair, (start, end)).between.is_empty();
    pair.paddings.hold((start, end.min(section.end()))) || is_taken()
}
