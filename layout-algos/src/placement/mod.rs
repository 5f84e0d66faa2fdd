//! Places rigid units into the free space between obstacles, in a wanted order.
//!
//! Takes units (old start, size, residue to keep), the wanted order and the free intervals; gives one new start
//! per unit. Guarantees, for units that lie disjoint inside the free intervals at first:
//! * new ranges are disjoint, lie inside the free intervals, and keep every unit's residue modulo its least
//!   modulus;
//! * the order the units already have reproduces the old layout, padding included;
//! * a unit that fits nowhere keeps its old start and is listed as pinned; this always terminates, at worst with
//!   the old layout.
//!
//! Programs are packed tightly: what one interval wastes is missing in another. So intervals are filled to the last
//! granule ([`tail`]), units of large alignment let others pass until a place fits ([`fill`]), padding takes units that
//! need no alignment ([`dense_pool`]), and what is left over goes to the shortest hole that holds it ([`holes`]). Where most
//! units would stay, they are permuted inside the intervals that hold them ([`by_interval`]).
//!
//! Time is O(rounds · (units + intervals · look-ahead) + units · log units) with at most log₂ units + 12 rounds.

mod by_interval;
mod dense_pool;
mod exact;
mod fill;
mod holes;
mod interval;
mod queue;
mod tail;
#[cfg(test)]
mod tests;

pub use exact::place_exactly;
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

    /// The last place where the unit ends by `end`.
    fn start_before(&self, end: u64) -> Option<u64> {
        let last = end.checked_sub(self.size)?;
        last.checked_sub(last.wrapping_sub(self.start) & self.modulus.wrapping_sub(1))
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
    /// Units that had to keep their old start for lack of room, ascending.
    pub pinned: Vec<usize>,
}

/// Parts of the order, from its back, that give up alignment in the first rounds: numerator and denominator.
const RELAXED_SHARES: [(usize, usize); 6] = [(0, 1), (1, 16), (1, 8), (1, 4), (1, 2), (1, 1)];

/// Units of more alignment than this fit into few places.
const MAX_EASY_MODULUS: u64 = 16;

/// Rounds after that in which only the left-over units themselves are pinned.
const PATIENT_ROUNDS: usize = 4;

/// Bytes of an interval that holds a function or two.
const SHORT_INTERVAL: u64 = 128;

/// Left-over units that choose their place first; bounds that choice by this × intervals.
const MAX_RESERVED: usize = 1024;

/// Places `units` into `free` in the given `order` (positions in `units`, the first at the lowest address).
///
/// `free` must be disjoint; it is filled in the order given. Units that `order` does not name keep their place and are
/// listed as pinned; repeated and out-of-range entries of `order` are ignored.
///
/// Compilers leave no room to spare. So when units are left over, those at the back of the order give up alignment
/// beyond `least_modulus`, more of them each round, and the left-over units choose their place first; only then
/// are they pinned.
#[must_use]
pub fn place(units: &[MovableUnit], order: &[usize], free: &[Interval]) -> Placement {
    let (order, is_pinned) = named_units(units.len(), order);
    if order.len() == units.len() && order.is_sorted_by_key(|&unit| units[unit].start) {
        let starts = units.iter().map(|unit| unit.start).collect();
        return Placement { starts, pinned: Vec::new() };
    }
    let across = place_across(units, &order, free, is_pinned);
    let moved = |placement: &Placement| {
        placement.starts.iter().zip(units).filter(|(start, unit)| **start != unit.start).count()
    };
    if moved(&across) >= order.len() / 2 {
        return across;
    }
    let inside = by_interval::permute(units, &order, free);
    if moved(&inside) > moved(&across) { inside } else { across }
}

/// Places the units of `order` wherever they fit; those that `is_pinned` keep their place.
fn place_across(
    units: &[MovableUnit],
    order: &[usize],
    free: &[Interval],
    mut is_pinned: Vec<bool>,
) -> Placement {
    let mut units = units.to_vec();
    let mut is_reserved = vec![false; units.len()];
    let mut round = 0;
    loop {
        if let Some((numerator, denominator)) = RELAXED_SHARES.get(round) {
            for &unit in order.iter().rev().take(order.len() * numerator / denominator) {
                units[unit].modulus = units[unit].least_modulus;
            }
        }
        let (starts, leftovers) = place_round(&units, order, free, &is_pinned, &is_reserved, round > 0);
        if leftovers.is_empty() {
            let pinned = (0..units.len()).filter(|&unit| is_pinned[unit]).collect();
            return Placement { starts, pinned };
        }
        for &unit in leftovers.iter().take(MAX_RESERVED) {
            is_reserved[unit] = true;
        }
        round += 1;
        if let Some(pinning_round) = round.checked_sub(RELAXED_SHARES.len()) {
            pin(&units, order, free, &leftovers, pinning_round, &mut is_pinned);
        }
    }
}

/// Pins the left-over units, and others when that alone does not settle it.
///
/// If it does not within a few rounds, the old layout was denser than any new one. Either units of large alignment had
/// places that just fit: all of those are pinned. Or the free room is cut into many short intervals, which other units do
/// not fill as well: those keep what they hold, the shortest first, up to twice the length each round. Or units without
/// alignment stood together: those are pinned from the front on, twice as many each round, which bounds the rounds by log₂
/// of the number of units.
fn pin(
    units: &[MovableUnit],
    order: &[usize],
    free: &[Interval],
    leftovers: &[usize],
    pinning_round: usize,
    is_pinned: &mut [bool],
) {
    for &unit in leftovers {
        is_pinned[unit] = true;
    }
    let Some(round) = pinning_round.checked_sub(PATIENT_ROUNDS) else { return };
    let loose = order.iter().copied().filter(|&unit| !is_pinned[unit]);
    let (difficult, mut easy): (Vec<usize>, Vec<usize>) =
        loose.partition(|&unit| units[unit].modulus > MAX_EASY_MODULUS);
    let Some(doublings) = round.checked_sub(1) else {
        difficult.into_iter().for_each(|unit| is_pinned[unit] = true);
        return;
    };
    let mut homes = free.to_vec();
    homes.sort_unstable();
    let longest = SHORT_INTERVAL.checked_shl(doublings as u32).unwrap_or(u64::MAX);
    for &unit in &easy {
        let home = homes.partition_point(|home| home.start <= units[unit].start).checked_sub(1);
        is_pinned[unit] |= home.is_some_and(|home| homes[home].end - homes[home].start <= longest);
    }
    easy.sort_by_key(|&unit| (units[unit].modulus, units[unit].start));
    for &unit in easy.iter().take(1 << doublings.min(32)) {
        is_pinned[unit] = true;
    }
}

/// Gives each reserved unit the highest place that fits; what remains of the intervals stays sorted. Gives the
/// units that fit nowhere.
fn place_reserved(
    units: &[MovableUnit],
    reserved: &[usize],
    free: &mut Vec<Interval>,
    starts: &mut [u64],
) -> Vec<usize> {
    let mut unplaced = Vec::new();
    for &unit in reserved {
        let found = free.iter().enumerate().rev().find_map(|(index, interval)| {
            let start = units[unit].start_before(interval.end)?;
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
            Interval { start: start + units[unit].size, end: interval.end },
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

/// Places everything that is not pinned; gives all starts, and the units that found no room, largest first.
fn place_round(
    units: &[MovableUnit],
    order: &[usize],
    free: &[Interval],
    is_pinned: &[bool],
    is_reserved: &[bool],
    is_room_short: bool,
) -> (Vec<u64>, Vec<usize>) {
    let mut starts: Vec<u64> = units.iter().map(|unit| unit.start).collect();
    let mut pinned_ranges: Vec<Interval> = units
        .iter()
        .zip(is_pinned)
        .filter(|(_, pinned)| **pinned)
        .map(|(unit, _)| unit.old_range())
        .collect();
    pinned_ranges.sort_unstable_by_key(|range| range.start);
    let mut free = subtract(free, &pinned_ranges);
    let largest_first = |unit: &usize| (std::cmp::Reverse(units[*unit].size), *unit);
    let (mut reserved, movable): (Vec<usize>, Vec<usize>) =
        order.iter().copied().filter(|&unit| !is_pinned[unit]).partition(|&unit| is_reserved[unit]);
    reserved.sort_by_key(largest_first);
    let mut unplaced = place_reserved(units, &reserved, &mut free, &mut starts);
    let (left_over, holes) = fill_in_order(units, movable, &free, &mut starts, is_room_short);
    unplaced.extend(left_over);
    unplaced.sort_by_key(largest_first);
    let mut holes = Holes::new(holes);
    unplaced.retain(|&unit| match holes.take(&units[unit]) {
        Some(start) => {
            starts[unit] = start;
            false
        }
        None => true,
    });
    (starts, unplaced)
}
