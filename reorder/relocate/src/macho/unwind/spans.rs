//! The new image, cut into ranges that move as one or stay.

use std::ops::Range;

use crate::address_map::AddressMap;
use reorder_base::address::Address;

/// A range of the old image and where it is in the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Its first address in the old image.
    pub(super) old: Address,
    /// Its first address in the new image.
    pub(super) new: u64,
    /// Bytes.
    pub(super) size: u64,
}

impl Span {
    /// What is added to an address.
    pub(super) fn delta(&self) -> u64 {
        self.new.wrapping_sub(self.old.0)
    }
}

/// All of the address space by new address. Ranges that a move left and did not fill are in no span: they hold no code.
pub(super) fn spans(map: &AddressMap) -> Vec<Span> {
    let moves = map.moves();
    let mut taken: Vec<Range<u64>> = Vec::with_capacity(moves.len() * 2);
    let mut spans: Vec<Span> = Vec::with_capacity(moves.len() + 2);
    for moved in moves {
        taken.push(moved.old.0..moved.old.0 + moved.size);
        taken.push(moved.new.0..moved.new.0 + moved.size);
        spans.push(Span { old: moved.old, new: moved.new.0, size: moved.size });
    }
    taken.sort_unstable_by_key(|range| range.start);
    let mut position = 0;
    for range in taken.into_iter().chain(std::iter::once(u64::MAX..u64::MAX)) {
        if range.start > position {
            spans.push(Span { old: Address(position), new: position, size: range.start - position });
        }
        position = position.max(range.end);
    }
    spans.sort_unstable_by_key(|span| span.new);
    spans
}
