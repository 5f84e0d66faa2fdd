//! Permutes the units of each free interval among themselves.
//!
//! Where what stays cuts the text into intervals without room to spare, units of one interval seldom fit another as well as
//! the old ones did. Among themselves they fit again if they have one alignment: every unit but the last already takes its
//! size with the padding after it, so that any order of the others has room. Where that fails, units of the largest
//! alignment stay, which are few as a rule, and those between them are permuted.
//!
//! Time is O((units · log units + intervals) · different alignments).

use super::interval::{Interval, subtract};
use super::{MovableUnit, Placement, named_units};

/// Places the units that `order` names inside the intervals that hold them, in this order where it fits.
///
/// The result keeps what [`super::place`] guarantees; units that found no other place are listed as pinned.
pub(super) fn permute(units: &[MovableUnit], order: &[usize], free: &[Interval]) -> Placement {
    let (order, mut is_pinned) = named_units(units.len(), order);
    let mut starts: Vec<u64> = units.iter().map(|unit| unit.start).collect();
    let unnamed = (0..units.len()).filter(|&unit| is_pinned[unit]);
    let mut homes = inhabited(units, &order, &joined(free), unnamed);
    // Each round keeps the units of the largest alignment, so that there are at most 64 in a row.
    while let Some((home, members)) = homes.pop() {
        if arrange(units, &members, home, &mut starts) {
            continue;
        }
        let largest = members.iter().map(|&unit| units[unit].least_modulus).max();
        let (kept, others): (Vec<usize>, Vec<usize>) =
            members.into_iter().partition(|&unit| Some(units[unit].least_modulus) == largest);
        homes.extend(inhabited(units, &others, &[home], kept.iter().copied()));
        kept.into_iter().for_each(|unit| is_pinned[unit] = true);
    }
    let pinned = (0..units.len()).filter(|&unit| is_pinned[unit]).collect();
    Placement { starts, pinned }
}

/// The intervals by address, those that touch as one: a unit may lie in several.
fn joined(free: &[Interval]) -> Vec<Interval> {
    let mut sorted = free.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<Interval> = Vec::with_capacity(sorted.len());
    for interval in sorted {
        match joined.last_mut().filter(|last| last.end == interval.start) {
            Some(last) => last.end = interval.end,
            None => joined.push(interval),
        }
    }
    joined
}

/// What is left of each interval without the `kept` units, with the units of `order` that it holds, in this order.
fn inhabited(
    units: &[MovableUnit],
    order: &[usize],
    free: &[Interval],
    kept: impl Iterator<Item = usize>,
) -> Vec<(Interval, Vec<usize>)> {
    let mut taken: Vec<Interval> = kept.map(|unit| units[unit].old_range()).collect();
    taken.sort_unstable();
    let mut homes = subtract(free, &taken);
    homes.sort_unstable();
    let mut members = vec![Vec::new(); homes.len()];
    for &unit in order {
        let after = homes.partition_point(|home| home.start <= units[unit].start);
        if let Some(home) = after.checked_sub(1) {
            members[home].push(unit);
        }
    }
    homes.into_iter().zip(members).collect()
}

/// Puts the members one after the other into the interval: in their order, or else with the old last one last, whose place
/// may be the only one that needs no padding after it. Whether that fits; `starts` changes only if it does.
fn arrange(units: &[MovableUnit], members: &[usize], home: Interval, starts: &mut [u64]) -> bool {
    let Some(&old_last) = members.iter().max_by_key(|&&unit| units[unit].start) else { return true };
    let others = members.iter().copied().filter(|&unit| unit != old_last);
    let with_last: Vec<usize> = others.chain([old_last]).collect();
    let fitting = [members, &with_last].into_iter().find_map(|order| {
        let mut cursor = home.start;
        let places = order.iter().map(|&unit| {
            let easy = MovableUnit { modulus: units[unit].least_modulus, ..units[unit] };
            let start = easy.start_between(cursor, home.end)?;
            cursor = start + easy.size;
            Some((unit, start))
        });
        places.collect::<Option<Vec<_>>>()
    });
    let Some(places) = fitting else { return false };
    places.into_iter().for_each(|(unit, start)| starts[unit] = start);
    true
}
