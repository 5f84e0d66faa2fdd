//! Places the functions that startup needs next to the pinned ones that it needs.
//!
//! Every layout touches the pages of such pinned functions. Most images have few or none; a program at a fixed address
//! has many, and collecting everything else in one place would only add pages to them.

use std::collections::BTreeSet;

use layout_algos::placement::Interval;

use reorder_image::elf::analysis::units::Unit;

/// The unit of the first touch.
const PAGE: u64 = 4096;
/// Pinned bytes matter from this share of what startup needs.
const SHARE: u64 = 8;

/// The largest interval, then the others by address. What startup needs is in one piece there, exactly where the
/// layout was computed for: at the end of an interval functions trade places to fill it.
pub fn largest_first(mut free: Vec<Interval>) -> Vec<Interval> {
    let largest =
        (0..free.len()).max_by_key(|&index| (free[index].end - free[index].start, std::cmp::Reverse(index)));
    if let Some(largest) = largest {
        free[..=largest].rotate_right(1);
    }
    free
}

/// The free intervals in the order in which they are filled.
///
/// `front` are the units that startup needs, the pinned ones included.
pub(crate) fn filling_order<'units>(
    front: impl Iterator<Item = &'units Unit> + Clone,
    free: Vec<Interval>,
) -> Vec<Interval> {
    let pinned = front.clone().filter(|unit| unit.pin.is_some());
    let pinned_bytes: u64 = pinned.clone().map(Unit::size).sum();
    let front_bytes: u64 = front.map(Unit::size).sum();
    if pinned_bytes * SHARE < front_bytes {
        return largest_first(free);
    }
    let busy: BTreeSet<u64> = pinned.flat_map(|unit| unit.start.0 / PAGE..=(unit.end.0 - 1) / PAGE).collect();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for interval in free {
        let mut position = interval.start;
        while position < interval.end {
            let is_busy = busy.contains(&(position / PAGE));
            let mut end = position;
            while end < interval.end && busy.contains(&(end / PAGE)) == is_busy {
                end = (end / PAGE + 1).saturating_mul(PAGE);
            }
            let end = end.min(interval.end);
            if is_busy { &mut first } else { &mut rest }.push(Interval { start: position, end });
            position = end;
        }
    }
    first.append(&mut rest);
    first
}
