//! Places rigid units into the free space between obstacles, in a wanted order.
//!
//! Takes units (old start, size, residue to keep), the wanted order and the free intervals; gives one new start
//! per unit. Guarantees, for units that lie disjoint inside the free intervals at first:
//! * new ranges are disjoint, lie inside the free intervals, and keep every unit's residue;
//! * the order the units already have changes nothing, padding included;
//! * a unit that fits nowhere keeps its old start and is listed as pinned; that always ends, at worst with the
//!   old layout.
//!
//! Time is O(rounds · (units + intervals · look-ahead) + units · log units) with at most log₂ units + 2 rounds.

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
    /// A power of two: the new start must be congruent to the old one modulo this.
    pub modulus: u64,
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
#[must_use]
pub fn place(units: &[MovableUnit], order: &[usize], free: &[Interval]) -> Placement {
    let (order, mut is_pinned) = named_units(units.len(), order);
    let old_starts = || units.iter().map(|unit| unit.start).collect::<Vec<_>>();
    if order.len() == units.len() && order.is_sorted_by_key(|&unit| units[unit].start) {
        return Placement { starts: old_starts(), pinned: Vec::new() };
    }
    let mut largest_first = order.clone();
    largest_first.sort_by_key(|&unit| (std::cmp::Reverse(units[unit].size), unit));
    let mut least_pins = 1;
    loop {
        let mut starts = old_starts();
        let leftovers = place_round(units, &order, free, &is_pinned, &mut starts);
        if leftovers.is_empty() {
            let pinned = (0..units.len()).filter(|&unit| is_pinned[unit]).collect();
            return Placement { starts, pinned };
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
    starts: &mut [u64],
) -> Vec<usize> {
    let mut pinned_ranges: Vec<Interval> = units
        .iter()
        .zip(is_pinned)
        .filter(|(_, pinned)| **pinned)
        .map(|(unit, _)| unit.old_range())
        .collect();
    pinned_ranges.sort_unstable_by_key(|range| range.start);
    let free = subtract(free, &pinned_ranges);
    let movable: Vec<usize> = order.iter().copied().filter(|&unit| !is_pinned[unit]).collect();
    let (mut unplaced, holes) = fill_in_order(units, movable, &free, starts);
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
