//! Units without alignment, kept until some padding needs them.

use super::MovableUnit;

/// Units without alignment (gcc's `.cold` parts) that wait for a place behind an aligned one, where they use up its
/// padding. Placed as they come they would cost as much space as they save elsewhere, give or take: in a tight
/// program that is too much half of the time.
pub(super) struct DensePool {
    granule: u64,
    /// In the wanted order.
    pub(super) waiting: Vec<usize>,
}

impl DensePool {
    /// Bounds the search per placed unit, and how long a unit waits.
    const MOST_WAITING: usize = 64;

    pub(super) fn new(granule: u64) -> Self {
        Self { granule, waiting: Vec::new() }
    }

    pub(super) fn admits(&self, unit: &MovableUnit) -> bool {
        unit.modulus < self.granule
    }

    /// The waiting unit that uses the padding behind `cursor` best, if any does; the longest waiting one when too
    /// many wait. With its start.
    pub(super) fn take(&mut self, units: &[MovableUnit], cursor: u64, end: u64) -> Option<(usize, u64)> {
        let next = |address: u64| address.checked_next_multiple_of(self.granule);
        let fitting = |(index, &unit): (usize, &usize)| {
            let start = units[unit].start_between(cursor, end)?;
            let size = units[unit].size;
            let needed = next(start + size)? - next(cursor)?;
            (needed <= size - size % self.granule).then_some((index, start, size % self.granule))
        };
        let waiting = self.waiting.iter().enumerate();
        let (index, start, _) = waiting
            .filter_map(fitting)
            .min_by_key(|&(index, _, used)| (std::cmp::Reverse(used), index))
            .or_else(|| {
                let oldest = *self.waiting.first().filter(|_| self.waiting.len() > Self::MOST_WAITING)?;
                Some((0, units[oldest].start_between(cursor, end)?, 0))
            })?;
        Some((self.waiting.remove(index), start))
    }
}
