//! Space left between placed units, indexed by size.

use std::collections::BTreeSet;

use super::{Interval, MovableUnit};

/// Holes that are long enough but may be misaligned are tried up to this many times before a hole is taken that
/// fits at any alignment: bounds one search.
const MISALIGNED_TRIES: usize = 16;

/// Holes ordered by length, then address.
pub(super) struct Holes {
    by_length: BTreeSet<(u64, u64)>,
}

impl Holes {
    pub(super) fn new(holes: impl IntoIterator<Item = Interval>) -> Self {
        Self { by_length: holes.into_iter().map(|hole| (hole.end - hole.start, hole.start)).collect() }
    }

    /// Takes room for `unit` out of a hole that is as short as possible; gives the unit's start.
    pub(super) fn take(&mut self, unit: &MovableUnit) -> Option<u64> {
        let fits =
            |&(length, start): &(u64, u64)| Some((length, start, unit.start_between(start, start + length)?));
        let tight = self.by_length.range((unit.size, 0)..).take(MISALIGNED_TRIES).find_map(fits);
        let roomy = unit.size.saturating_add(unit.modulus.saturating_sub(1));
        let found = tight.or_else(|| self.by_length.range((roomy, 0)..).find_map(fits));
        let (length, hole, start) = found?;
        self.by_length.remove(&(length, hole));
        let (end, hole_end) = (start + unit.size, hole + length);
        if hole < start {
            self.by_length.insert((start - hole, hole));
        }
        if end < hole_end {
            self.by_length.insert((hole_end - end, end));
        }
        Some(start)
    }
}
