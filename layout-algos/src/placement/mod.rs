//! Places rigid units into the free space between obstacles, in a wanted order.
//!
//! Takes units (old start, size, residue to keep), the wanted order and the free intervals; gives one new start
//! per unit. Guarantees, for units that lie disjoint inside the free intervals at first:
//! * new ranges are disjoint, lie inside the free intervals, and keep every unit's residue modulo its least
//!   modulus;
//! * the order the units already have changes nothing, padding included;
//! * a unit that fits nowhere keeps its old start and is listed as pinned; that always ends, at worst with the
//!   old layout.
//!
//! Time is O(rounds · (units + intervals · look-ahead) + units · log units) with at most log₂ units + 8 rounds.

mod fill;
mod holes;
mod interval;
#[cfg(test)]
mod tests;

pub use interval::Interval;

use fill::fill_in_order;
use holes::Holes;
use interval::subtract;

/// Something that moves as one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovableUnit {
    /// Where it starts now.
    pub start: u64,
    /// Bytes it covers.
    pub size: u64,
    /// A power of two: the new start is congruent to the old one modulo this, if there is room.
    pub modulus: u64,
    /// A power of two, at most `modulus`: what must hold even when room is short.
    pub least_modulus: u64,
}

impl MovableUnit {
    /// Where the unit starts if it is put at or after `cursor` and must end by `end`.
    fn start_between(&self, cursor: u64, end: u64) -> Option<u64> {
        let padding = self.start.wrapping_sub(cursor) & self.modulus.wrapping_sub(1);
        let start = cursor.checked_add(padding)?;
        (start.checked_add(self.size)? <= end).then_some(start)
    }

    fn old_range(&self) -> Interval {
        Interval { start: self.start, end: self.start.saturating_add(self.size) }
    }
}

/// Where every unit goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// New start of each unit, by the unit's position in the input.
    pub starts: Vec<u64>,
    /// Units that had to keep their old start for want of room, ascending.
    pub pinned: Vec<usize>,
}

/// Places `units` into `free` in the given `order` (positions in `units`, the first at the lowest address).
///
/// `free` must be sorted and disjoint. Units that `order` does not name keep their place and are listed as
/// pinned; repeated and out-of-range entries of `order` are ignored.
///
/// Compilers leave no room to spare: a permutation of functions fits exactly only while all starts are equally
/// aligned. So when units are left over, those at the back of the order give up alignment beyond `least_modulus`,
/// more of them each round, and the left-over units choose their place first; only then are they pinned.
#[must_use]
pub fn place(units: &[MovableUnit], order: &[usize], free: &[Interval]) -> Placement {
    let (order, mut is_pinned) = named_units(units.len(), order);
    let old_starts = || units.iter().map(|unit| unit.start).collect::<Vec<_>>();
    if order.len() == units.len() && order.is_sorted_by_key(|&unit| units[unit].start) {
        return Placement { starts: old_starts(), pinned: Vec::new() };
    }
    let order = cluster_unaligned(units, order);
    let mut units = units.to_vec();
    let mut is_reserved = vec![false; units.len()];
    let finish = |units: &[MovableUnit], is_pinned: &[bool], is_reserved: &mut [bool]| {
        let mut starts: Vec<u64> = units.iter().map(|unit| unit.start).collect();
        let leftovers = place_round(units, &order, free, is_pinned, is_reserved, &mut starts);
        for &unit in leftovers.iter().take(MOST_RESERVED) {
            is_reserved[unit] = true;
        }
        (starts, leftovers)
    };
    let pinned_units = |is_pinned: &[bool]| (0..is_pinned.len()).filter(|&unit| is_pinned[unit]).collect();
    for share in RELAXED_SHARES {
        for &unit in order.iter().rev().take(order.len() / share.0 * share.1) {
            units[unit].modulus = units[unit].least_modulus;
        }
        let (starts, leftovers) = finish(&units, &is_pinned, &mut is_reserved);
        if leftovers.is_empty() {
            return Placement { starts, pinned: pinned_units(&is_pinned) };
        }
    }
    let mut largest_first = order.clone();
    largest_first.sort_by_key(|&unit| (std::cmp::Reverse(units[unit].size), unit));
    let mut least_pins = 1;
    loop {
        let (starts, leftovers) = finish(&units, &is_pinned, &mut is_reserved);
        if leftovers.is_empty() {
            return Placement { starts, pinned: pinned_units(&is_pinned) };
        }
        let mut pins = 0;
        for &unit in &leftovers {
            is_pinned[unit] = true;
            pins += 1;
        }
        // Large units are the hardest to fit. Pinning at least twice as many each round bounds the rounds by
        // log₂ of the number of units, whatever the input.
        for &unit in &largest_first {
            if pins >= least_pins {
                break;
            }
            if !is_pinned[unit] {
                is_pinned[unit] = true;
                pins += 1;
            }
        }
        least_pins *= 2;
    }
}

/// Parts of the order, from its back, that give up alignment in successive rounds.
const RELAXED_SHARES: [(usize, usize); 6] = [(1, 0), (16, 1), (8, 1), (4, 1), (2, 1), (1, 1)];
/// Left-over units that choose first; bounds that choice by this × intervals.
const MOST_RESERVED: usize = 1024;
/// Starts that compilers give functions.
const ORDINARY_MODULUS: u64 = 16;
/// Unaligned units wait for others until this many bytes have passed them: within one page, so the order by pages
/// hardly changes.
const CLUSTER_DISTANCE: u64 = 2048;

/// Brings unaligned units (parts that compilers split off) together. Each change from unaligned to aligned wastes
/// half an alignment, for which there is no room.
fn cluster_unaligned(units: &[MovableUnit], order: Vec<usize>) -> Vec<usize> {
    let mut clustered = Vec::with_capacity(order.len());
    let mut waiting = Vec::new();
    let mut passed = 0;
    for unit in order {
        if units[unit].modulus < ORDINARY_MODULUS {
            waiting.push(unit);
            continue;
        }
        clustered.push(unit);
        if !waiting.is_empty() {
            passed += units[unit].size;
            if passed >= CLUSTER_DISTANCE {
                clustered.append(&mut waiting);
                passed = 0;
            }
        }
    }
    clustered.append(&mut waiting);
    clustered
}

/// Gives each reserved unit the highest place that fits; what remains of the intervals stays sorted.
fn place_reserved(
    units: &[MovableUnit],
    reserved: &[usize],
    free: &mut Vec<Interval>,
    starts: &mut [u64],
) -> Vec<usize> {
    let mut unplaced = Vec::new();
    for &unit in reserved {
        let movable = &units[unit];
        let found = free.iter().enumerate().rev().find_map(|(index, interval)| {
            let latest = interval.end.checked_sub(movable.size)?;
            let start =
                latest.checked_sub(latest.wrapping_sub(movable.start) & movable.modulus.wrapping_sub(1))?;
            (start >= interval.start).then_some((index, start))
        });
        let Some((index, start)) = found else {
            unplaced.push(unit);
            continue;
        };
        starts[unit] = start;
        let interval = free[index];
        let rest = [
            Interval { start: interval.start, end: start },
            Interval { start: start + movable.size, end: interval.end },
        ];
        free.splice(index..=index, rest.into_iter().filter(|rest| rest.start < rest.end));
    }
    unplaced
}

/// The valid entries of `order` without repetitions, and for each unit whether it is missing there.
fn named_units(count: usize, order: &[usize]) -> (Vec<usize>, Vec<bool>) {
    let mut is_missing = vec![true; count];
    let named = order
        .iter()
        .copied()
        .filter(|&unit| is_missing.get_mut(unit).is_some_and(|missing| std::mem::replace(missing, false)))
        .collect();
    (named, is_missing)
}

/// Places everything that is not pinned; gives the units that found no room, largest first.
fn place_round(
    units: &[MovableUnit],
    order: &[usize],
    free: &[Interval],
    is_pinned: &[bool],
    is_reserved: &[bool],
    starts: &mut [u64],
) -> Vec<usize> {
    let mut pinned_ranges: Vec<Interval> = units
        .iter()
        .zip(is_pinned)
        .filter(|(_, pinned)| **pinned)
        .map(|(unit, _)| unit.old_range())
        .collect();
    pinned_ranges.sort_unstable_by_key(|range| range.start);
    let mut free = subtract(free, &pinned_ranges);
    let by_size = |unit: &usize| (std::cmp::Reverse(units[*unit].size), *unit);
    let (mut reserved, movable): (Vec<usize>, Vec<usize>) =
        order.iter().copied().filter(|&unit| !is_pinned[unit]).partition(|&unit| is_reserved[unit]);
    reserved.sort_by_key(by_size);
    let without_reserve = place_reserved(units, &reserved, &mut free, starts);
    let (mut unplaced, holes) = fill_in_order(units, movable, &free, starts);
    unplaced.extend(without_reserve);
    unplaced.sort_by_key(|&unit| (std::cmp::Reverse(units[unit].size), unit));
    let mut holes = Holes::new(holes);
    unplaced.retain(|&unit| match holes.take(&units[unit]) {
        Some(start) => {
            starts[unit] = start;
            false
        }
        None => true,
    });
    unplaced
}
