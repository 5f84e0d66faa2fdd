//! Places units that have no padding between them: every gap is filled to the last byte.
//!
//! What stays cuts the text into gaps, and a gap holds just the bytes of the units that it held before. So when a unit
//! leaves a gap, others must come whose sizes add up to its own. The wanted front goes to the largest gap; each other gap
//! gets back, for what left it, units of the largest gap with exactly this sum, found by dynamic programming over sums.
//! Where there are none, the units stay in their gap. All gaps are then exact by construction: no step is undone or
//! repeated.
//!
//! Time is O(units · log units + gaps · attempts · candidates · cells), with the bounds below.

use super::{Interval, MovableUnit, Placement};

/// Sums beyond this, in granules, are reached by taking units in order first.
const MAX_CELLS: u64 = 1 << 12;
/// Units that one sum is looked for among.
const MAX_CANDIDATES: usize = 512;
/// How far after the first unused unit of the pool candidates are taken from.
const MAX_SCAN_LENGTH: usize = 4096;
/// Units taken in order that are given back to reach a sum, and units of the front that are given up for it.
const MAX_ATTEMPTS: usize = 8;
/// Sums that are looked for in all: texts with more gaps keep what is in the last ones.
const MAX_SEARCHES: usize = 1 << 14;
/// Share of the largest gap for the front when all units are wanted there: the rest serves to fill other gaps exactly.
const FRONT_SHARE: (u64, u64) = (3, 4);

/// Places `units`, whose ranges make up `gaps` exactly, in `order`; the first `front` of the order belong together, in
/// the largest gap as far as they fit.
///
/// Alignment is ignored. Units of the front that had to keep their place are listed as pinned.
///
/// # Panics
/// Never, for units and an order as they are described: every unit lies in a gap, and `order` names each once.
#[must_use]
pub fn place_exactly(units: &[MovableUnit], order: &[usize], front: usize, gaps: &[Interval]) -> Placement {
    let mut starts: Vec<u64> = units.iter().map(|unit| unit.start).collect();
    let Some(largest) = (0..gaps.len())
        .max_by_key(|&gap| (gaps[gap].end.saturating_sub(gaps[gap].start), std::cmp::Reverse(gap)))
    else {
        return Placement { starts, pinned: Vec::new() };
    };
    let mut by_start: Vec<usize> = (0..gaps.len()).collect();
    by_start.sort_unstable_by_key(|&gap| gaps[gap].start);
    let home = |unit: &MovableUnit| {
        let after = by_start.partition_point(|&gap| gaps[gap].start <= unit.start);
        after.checked_sub(1).map(|at| by_start[at])
    };
    let homes: Vec<usize> = units.iter().map(|unit| home(unit).unwrap_or(largest)).collect();

    let mut is_front = reserve(units, order, front, gaps[largest].end.saturating_sub(gaps[largest].start));
    let mut pool = Pool::new(
        units,
        order.iter().copied().filter(|&unit| homes[unit] == largest && !is_front[unit]).collect(),
    );
    let mut left: Vec<Vec<usize>> = vec![Vec::new(); gaps.len()];
    for &unit in order.iter().filter(|&&unit| is_front[unit] && homes[unit] != largest) {
        left[homes[unit]].push(unit);
    }
    // Small sums first: they need the choice more than large ones.
    let deficit = |left: &[usize]| left.iter().map(|&unit| units[unit].size).sum::<u64>();
    let mut open: Vec<usize> = (0..gaps.len()).filter(|&gap| !left[gap].is_empty()).collect();
    open.sort_by_cached_key(|&gap| (deficit(&left[gap]), gap));
    let mut place_of = homes.clone();
    let mut given_up = Vec::new();
    for gap in open {
        let mut leaving = std::mem::take(&mut left[gap]);
        for attempt in 0.. {
            if let Some(change) = pool.take(deficit(&leaving)) {
                change.iter().for_each(|&unit| place_of[unit] = gap);
                leaving.iter().for_each(|&unit| place_of[unit] = largest);
                break;
            }
            // The last of them is the least wanted.
            let rest = if attempt < MAX_ATTEMPTS { leaving.len().saturating_sub(1) } else { 0 };
            for unit in leaving.drain(rest..) {
                is_front[unit] = false;
                given_up.push(unit);
            }
        }
    }
    let mut cursors: Vec<u64> = gaps.iter().map(|gap| gap.start).collect();
    let (first, rest): (Vec<usize>, Vec<usize>) = order.iter().partition(|&&unit| is_front[unit]);
    for unit in first.into_iter().chain(rest) {
        let cursor = &mut cursors[place_of[unit]];
        starts[unit] = *cursor;
        *cursor += units[unit].size;
    }
    let mut pinned: Vec<usize> =
        given_up.into_iter().filter(|&unit| starts[unit] == units[unit].start).collect();
    pinned.sort_unstable();
    Placement { starts, pinned }
}

/// The units of the front that fit into the largest gap together.
fn reserve(units: &[MovableUnit], order: &[usize], front: usize, room: u64) -> Vec<bool> {
    let is_everything = front >= order.len();
    let room = if is_everything { room / FRONT_SHARE.1 * FRONT_SHARE.0 } else { room };
    let mut is_front = vec![false; units.len()];
    let mut used = 0_u64;
    for &unit in order.iter().take(front) {
        match used.checked_add(units[unit].size).filter(|sum| *sum <= room) {
            Some(sum) => used = sum,
            None => break,
        }
        is_front[unit] = true;
    }
    is_front
}

/// Units of the largest gap that other gaps may get.
struct Pool<'units> {
    units: &'units [MovableUnit],
    order: Vec<usize>,
    is_used: Vec<bool>,
    first: usize,
    granule: u64,
    searches: usize,
}

impl<'units> Pool<'units> {
    fn new(units: &'units [MovableUnit], order: Vec<usize>) -> Self {
        let granule =
            units.iter().fold(0, |granule, unit| greatest_common_divisor(granule, unit.size)).max(1);
        Self { units, is_used: vec![false; order.len()], order, first: 0, granule, searches: 0 }
    }

    fn size(&self, position: usize) -> u64 {
        self.units[self.order[position]].size
    }

    /// Takes units whose sizes add up to `sum`.
    fn take(&mut self, sum: u64) -> Option<Vec<usize>> {
        while self.is_used.get(self.first).is_some_and(|is_used| *is_used) {
            self.first += 1;
        }
        // Sums of multiples are multiples.
        if !sum.is_multiple_of(self.granule) {
            return None;
        }
        let most = MAX_CELLS * self.granule;
        let mut taken: Vec<usize> = Vec::new();
        let mut rest = sum;
        let mut position = self.first;
        while rest > most && position < self.order.len() {
            if !self.is_used[position] && self.size(position) <= rest {
                rest -= self.size(position);
                taken.push(position);
            }
            position += 1;
        }
        for _ in 0..MAX_ATTEMPTS {
            self.searches += 1;
            if self.searches > MAX_SEARCHES {
                return None;
            }
            if rest <= most * 2
                && let Some(change) = self.change(rest, &taken)
            {
                taken.extend(change);
                taken.iter().for_each(|&position| self.is_used[position] = true);
                return Some(taken.into_iter().map(|position| self.order[position]).collect());
            }
            rest += self.size(taken.pop()?);
        }
        None
    }

    /// Unused units, other than those in `taken`, with exactly this sum.
    fn change(&self, sum: u64, taken: &[usize]) -> Option<Vec<usize>> {
        if sum == 0 {
            return Some(Vec::new());
        }
        let scanned = self.first..self.order.len().min(self.first + MAX_SCAN_LENGTH + taken.len());
        let candidates: Vec<usize> = scanned
            .filter(|&position| !self.is_used[position] && self.size(position) <= sum)
            .filter(|position| taken.binary_search(position).is_err())
            .take(MAX_CANDIDATES)
            .collect();
        let cells = (sum / self.granule) as usize;
        // For each sum the candidate that reached it first: the ones below it used earlier candidates alone.
        let mut reached: Vec<Option<usize>> = vec![None; cells + 1];
        for (number, &position) in candidates.iter().enumerate() {
            let step = (self.size(position) / self.granule) as usize;
            for cell in (step..=cells).rev() {
                let is_reachable = cell == step || reached[cell - step].is_some_and(|used| used < number);
                if reached[cell].is_none() && is_reachable {
                    reached[cell] = Some(number);
                }
            }
            if reached[cells].is_some() {
                break;
            }
        }
        let mut change = Vec::new();
        let mut cell = cells;
        while cell > 0 {
            let position = candidates[reached[cell]?];
            change.push(position);
            cell -= (self.size(position) / self.granule) as usize;
        }
        Some(change)
    }
}

fn greatest_common_divisor(first: u64, second: u64) -> u64 {
    let (mut first, mut second) = (first, second);
    while second != 0 {
        (first, second) = (second, first % second);
    }
    first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Units of these sizes one after the other, with a pinned one of the same size after each that is marked.
    fn text(sizes: &[(u64, bool)]) -> (Vec<MovableUnit>, Vec<Interval>) {
        let (mut units, mut gaps): (Vec<MovableUnit>, Vec<Interval>) = (Vec::new(), Vec::new());
        let mut cursor = 0x1000;
        for &(size, is_cut) in sizes {
            units.push(MovableUnit { start: cursor, size, modulus: 4, least_modulus: 4 });
            match gaps.last_mut().filter(|gap| gap.end == cursor) {
                Some(gap) => gap.end += size,
                None => gaps.push(Interval { start: cursor, end: cursor + size }),
            }
            cursor += size + if is_cut { 64 } else { 0 };
        }
        (units, gaps)
    }

    /// Whether the new places make up the gaps exactly.
    fn is_exact(units: &[MovableUnit], gaps: &[Interval], placement: &Placement) -> bool {
        let mut ranges: Vec<(u64, u64)> =
            placement.starts.iter().zip(units).map(|(&start, unit)| (start, start + unit.size)).collect();
        ranges.sort_unstable();
        let mut filled: Vec<Interval> = Vec::new();
        for (start, end) in ranges {
            match filled.last_mut().filter(|gap| gap.end == start) {
                Some(gap) => gap.end = end,
                None => filled.push(Interval { start, end }),
            }
        }
        filled == gaps
    }

    proptest! {
        #[test]
        fn every_gap_is_filled(
            sizes in prop::collection::vec((1_u64..200, prop::bool::weighted(0.1)), 1..200),
            seed in any::<u64>(),
            front in 0_usize..250,
        ) {
            let sizes: Vec<(u64, bool)> = sizes.into_iter().map(|(size, is_cut)| (size * 4, is_cut)).collect();
            let (units, gaps) = text(&sizes);
            let mut order: Vec<usize> = (0..units.len()).collect();
            order.sort_by_key(|&unit| (unit as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
            let placement = place_exactly(&units, &order, front.min(order.len()), &gaps);
            prop_assert!(is_exact(&units, &gaps, &placement));
            let again = place_exactly(&units, &order, front.min(order.len()), &gaps);
            prop_assert_eq!(placement, again);
        }

        #[test]
        fn the_old_order_changes_nothing(
            sizes in prop::collection::vec((1_u64..200, prop::bool::weighted(0.1)), 1..100),
        ) {
            let (units, gaps) = text(&sizes);
            let order: Vec<usize> = (0..units.len()).collect();
            let placement = place_exactly(&units, &order, 0, &gaps);
            let old: Vec<u64> = units.iter().map(|unit| unit.start).collect();
            prop_assert_eq!(placement.starts, old);
        }
    }

    #[test]
    fn the_front_comes_together_in_the_largest_gap() {
        let sizes: Vec<(u64, bool)> = (0..100).map(|index| (16 + index % 7 * 4, index % 50 == 9)).collect();
        let (units, gaps) = text(&sizes);
        let mut order: Vec<usize> = vec![3, 95, 40, 8];
        order.extend((0..100).filter(|unit| ![3, 95, 40, 8].contains(unit)));
        let placement = place_exactly(&units, &order, 4, &gaps);
        assert!(placement.pinned.is_empty() && is_exact(&units, &gaps, &placement));
        let largest = gaps.iter().max_by_key(|gap| gap.end - gap.start);
        let mut cursor = largest.map_or(0, |gap| gap.start);
        for unit in [3_usize, 95, 40, 8] {
            assert_eq!(placement.starts[unit], cursor);
            cursor += units[unit].size;
        }
    }

    #[test]
    fn what_nothing_can_replace_stays() {
        // The only unit of the small gap has a size that no others add up to.
        let (units, gaps) = text(&[(20, true), (16, false), (16, false), (32, false)]);
        let placement = place_exactly(&units, &[0, 1, 2, 3], 1, &gaps);
        assert_eq!(
            placement,
            Placement { starts: units.iter().map(|unit| unit.start).collect(), pinned: vec![0] }
        );
    }
}
