//! What the comparison of AArch64 code needs to know about the two images.

use std::ops::Range;

use super::form::page;
use crate::moves::AddressMoves;

/// Two images and the map between them.
pub(crate) trait Images {
    /// Whether `found` is where `address` of the old image went.
    fn follows(&self, address: u64, found: u64) -> bool;

    /// Whether `found` is where a jump to `target` of the old image must lead.
    fn is_target(&self, target: u64, found: u64) -> bool {
        self.follows(target, found)
    }

    /// The expected new address for `address`, for messages.
    fn expected(&self, address: u64) -> String;

    /// Whether functions may be at `address` of the old image.
    fn is_text(&self, address: u64) -> bool;

    /// Whether `address` of the old image is a landing pad, where control continues after an exception; `None` when that is
    /// not known.
    fn is_landing_pad(&self, _address: u64) -> Option<bool> {
        None
    }

    /// `size` bytes at `address` of the old image if they are certainly constant, else `None`.
    fn constants(&self, _address: u64, _size: u64) -> Option<&[u8]> {
        None
    }

    /// The ranges of data in code of the old image that reach into `[start, end)`.
    fn data_between(&self, start: u64, end: u64) -> &[Range<u64>];
}

/// Pages of 4 KiB on which code moved.
pub(crate) struct MovedPages {
    /// Runs of pages as ranges of addresses: ascending, disjoint.
    runs: Vec<Range<u64>>,
}

impl MovedPages {
    /// The pages of all code that moved according to `moves`.
    pub(crate) fn new(moves: &AddressMoves) -> Self {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for range in moves.iter().filter(|range| range.is_moved()) {
            let (first, last) = (page(range.old_start.0), page(range.old_end().0 - 1));
            match runs.last_mut() {
                Some(run) if first <= run.end => run.end = run.end.max(last.saturating_add(0x1000)),
                _ => runs.push(first..last.saturating_add(0x1000)),
            }
        }
        runs.shrink_to_fit();
        Self { runs }
    }

    /// Whether something on the page at `address` moved.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let after = self.runs.partition_point(|run| run.start <= address);
        self.runs[..after].last().is_some_and(|run| address < run.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::Move;
    use reorder_base::address::{Address, NewAddress};

    proptest::proptest! {
        /// Against the obvious search.
        #[test]
        fn pages_are_those_that_a_moved_function_touches(
            starts in proptest::collection::btree_map(0u64..64, (1u64..0x800, proptest::bool::ANY), 0..12),
        ) {
            let moves = starts.iter().map(|(&slot, &(size, is_moved))| Move {
                old_start: Address(slot * 0x800),
                new_start: NewAddress(slot * 0x800 + if is_moved { 0x10_0000 } else { 0 }),
                size,
            });
            let moves = AddressMoves::from_evidence(moves.collect()).expect("the ranges are apart");
            let pages = MovedPages::new(&moves);
            for address in (0..64 * 0x800).step_by(0x400) {
                let touches = |range: &Move| {
                    range.is_moved() && range.old_start.0 < page(address) + 0x1000 && page(address) < range.old_end().0
                };
                proptest::prop_assert_eq!(pages.contains(address), moves.iter().any(touches));
            }
        }
    }
}
