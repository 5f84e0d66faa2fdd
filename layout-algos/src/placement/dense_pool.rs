//! Units without alignment, kept until some padding needs them.

use super::MovableUnit;

/// Units without alignment (gcc's `.cold` parts) that wait for a place after an aligned one, where they use up its
/// padding. Placed in order they would cost about as much space as they save elsewhere, which in a tight program is too
/// much half of the time.
pub(super) struct DensePool {
    granule: u64,
    /// In the wanted order.
    waiting: Vec<Waiting>,
}

/// A unit with what decides most often that it does not fit, so that looking through the pool stays in one place.
#[derive(Clone, Copy)]
struct Waiting {
    unit: usize,
    /// Of its size by the granule.
    remainder: u64,
}

impl DensePool {
    /// Bounds the search per placed unit, and how long a unit waits.
    const MAX_WAITING: usize = 64;

    pub(super) fn new(granule: u64) -> Self {
        Self { granule, waiting: Vec::new() }
    }

    pub(super) fn admits(&self, unit: &MovableUnit) -> bool {
        unit.modulus < self.granule
    }

    pub(super) fn push(&mut self, units: &[MovableUnit], unit: usize) {
        self.waiting.push(Waiting { unit, remainder: units[unit].size % self.granule });
    }

    pub(super) fn units(&self) -> Vec<usize> {
        self.waiting.iter().map(|waiting| waiting.unit).collect()
    }

    /// Forgets units that were placed elsewhere.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(usize) -> bool) {
        self.waiting.retain(|waiting| stays(waiting.unit));
    }

    /// The waiting unit that uses the padding after `cursor` best, if any does; the longest waiting one when too
    /// many wait. With its start.
    pub(super) fn take(&mut self, units: &[MovableUnit], cursor: u64, end: u64) -> Option<(usize, u64)> {
        let next = |address: u64| address.checked_next_multiple_of(self.granule);
        let following = next(cursor)?;
        let fitting = |(index, waiting): (usize, &Waiting)| {
            // What is over of its size has to find room in the padding, however it is aligned.
            if waiting.remainder > following - cursor {
                return None;
            }
            let start = units[waiting.unit].start_between(cursor, end)?;
            let size = units[waiting.unit].size;
            let needed = next(start + size)? - following;
            (needed <= size - waiting.remainder).then_some((index, start, waiting.remainder))
        };
        let waiting = self.waiting.iter().enumerate();
        let (index, start, _) = waiting
            .filter_map(fitting)
            .min_by_key(|&(index, _, used)| (std::cmp::Reverse(used), index))
            .or_else(|| {
                let oldest = self.waiting.first().filter(|_| self.waiting.len() > Self::MAX_WAITING)?;
                Some((0, units[oldest.unit].start_between(cursor, end)?, 0))
            })?;
        Some((self.waiting.remove(index).unit, start))
    }
}
