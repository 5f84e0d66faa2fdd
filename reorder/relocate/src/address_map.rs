//! Where every address of the input image is in the output image.

use std::ops::Range;

use rayon::prelude::*;

use reorder_base::address::{Address, NewAddress};
use reorder_base::address_index::AddressIndex;
use reorder_base::error::{Error, Result};

/// A range that moves rigidly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte in the input image.
    pub old: Address,
    /// First byte in the output image.
    pub new: NewAddress,
    /// Bytes.
    pub size: u64,
}

impl Move {
    /// The distance added to an address in the range; wraps for moves to lower addresses.
    pub fn delta(&self) -> u64 {
        self.new.0.wrapping_sub(self.old.0)
    }
}

/// A piecewise translation: ranges that move, the identity elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap {
    moves: Vec<Move>,
    index: AddressIndex,
}

impl AddressMap {
    /// A map of disjoint ranges; those that stay are left out.
    ///
    /// # Errors
    /// Ranges that overlap, in the old or the new image.
    pub fn new(moves: impl IntoIterator<Item = Move>) -> Result<Self> {
        let mut moves: Vec<Move> =
            moves.into_iter().filter(|range| range.old.0 != range.new.0 && range.size > 0).collect();
        let overlap = |starts: &[(u64, u64)]| starts.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0);
        let mut new: Vec<(u64, u64)> = moves.iter().map(|range| (range.new.0, range.size)).collect();
        new.par_sort_unstable();
        moves.par_sort_unstable_by_key(|range| range.old);
        let old: Vec<(u64, u64)> = moves.iter().map(|range| (range.old.0, range.size)).collect();
        if overlap(&new) || overlap(&old) {
            return Err(Error::usage("two moved ranges overlap"));
        }
        let index = AddressIndex::new(moves.iter().map(|range| range.old.0));
        Ok(Self { moves, index })
    }

    /// Where `address` is in the output image.
    pub fn map(&self, address: Address) -> NewAddress {
        let after = self.index.count_up_to(address.0, |at| self.moves[at].old.0);
        match self.moves[..after].last() {
            Some(range) if address.distance_from(range.old) < range.size => {
                NewAddress(address.0.wrapping_add(range.delta()))
            }
            _ => NewAddress(address.0),
        }
    }

    /// The way back.
    ///
    /// # Errors
    /// When two ranges go to one place.
    pub fn inverse(&self) -> Result<Self> {
        let back =
            |moved: &Move| Move { old: Address(moved.new.0), new: NewAddress(moved.old.0), size: moved.size };
        Self::new(self.moves.iter().map(back))
    }

    /// Whether no two bytes of `range` change their distance.
    pub(crate) fn moves_as_one(&self, range: &Range<Address>) -> bool {
        let first = self.moves.partition_point(|moved| moved.old.plus(moved.size) <= range.start);
        let mut inside = self.moves[first..].iter().take_while(|moved| moved.old < range.end).peekable();
        let Some(delta) = inside.peek().map(|moved| moved.delta()) else { return true };
        let mut covered = range.start;
        for moved in inside {
            if moved.old > covered || moved.delta() != delta {
                return false;
            }
            covered = moved.old.plus(moved.size);
        }
        covered >= range.end
    }

    /// The moved ranges by old address.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Whether nothing moves.
    pub fn is_identity(&self) -> bool {
        self.moves.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressMap, Move};
    use reorder_base::address::{Address, NewAddress};

    #[test]
    fn ranges_move_as_one_or_not() {
        let moved = |old, new, size| Move { old: Address(old), new: NewAddress(new), size };
        let map =
            AddressMap::new([moved(10, 50, 10), moved(20, 60, 10), moved(40, 10, 5)]).expect("no overlap");
        let as_one =
            |range: std::ops::Range<u64>| map.moves_as_one(&(Address(range.start)..Address(range.end)));
        assert!(as_one(10..30) && as_one(15..25) && as_one(0..10) && as_one(30..40) && as_one(40..45));
        assert!(!as_one(9..11) && !as_one(29..31) && !as_one(25..41) && !as_one(44..46) && !as_one(0..100));
    }
}
