//! Where functions went: sorted, disjoint ranges with their old and new start.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use reorder_base::address::{Address, NewAddress};
use reorder_base::address_index::AddressIndex;
use reorder_base::error::{Error, Result};

use crate::placed_copies::{PlacedCopies, PlacedCopy, PlacedTable};

/// A function range, or several that overlap, and where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// First byte in the old image.
    pub old_start: Address,
    /// First byte in the new image.
    pub new_start: NewAddress,
    /// Bytes; never zero.
    pub size: u64,
}

impl Move {
    /// First address after the range in the old image.
    pub fn old_end(&self) -> Address {
        self.old_start.plus(self.size)
    }

    /// First address after the range in the new image.
    pub fn new_end(&self) -> NewAddress {
        self.new_start.plus(self.size)
    }

    /// New start minus old start, wrapping.
    pub fn delta(&self) -> u64 {
        self.new_start.0.wrapping_sub(self.old_start.0)
    }

    /// Whether the range changed its address.
    pub fn is_moved(&self) -> bool {
        self.delta() != 0
    }
}

/// The map from old to new addresses: a translation of each function range, the identity elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMoves {
    /// Sorted by old start.
    moves: Vec<Move>,
    /// Positions in `moves`, sorted by new start.
    by_new_start: Vec<u32>,
    /// Finds old starts.
    index: AddressIndex,
    /// Finds new starts, in the order of `by_new_start`.
    new_index: AddressIndex,
    /// Code that has a copy besides.
    copies: PlacedCopies,
    /// Jump tables that have a copy besides, by their originals.
    copied_tables: Vec<PlacedTable>,
    /// Starts of functions that nothing describes, ascending: where they end is a guess.
    found: Vec<Address>,
}

impl AddressMoves {
    /// All ranges, moved or not, in the order of their old addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Move> {
        self.moves.iter()
    }

    /// All ranges as a slice, sorted by old start.
    pub fn as_slice(&self) -> &[Move] {
        &self.moves
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Number of ranges whose address changed.
    pub fn moved(&self) -> usize {
        self.moves.iter().filter(|range| range.is_moved()).count()
    }

    /// Where the byte at `address` went.
    pub fn map(&self, address: Address) -> NewAddress {
        self.containing(address).map_or(NewAddress(address.0), |range| {
            range.new_start.plus(address.distance_from(range.old_start))
        })
    }

    /// Where the byte at `address` came from; the identity outside all ranges.
    pub fn unmap(&self, address: NewAddress) -> Address {
        self.containing_new(address)
            .map_or(Address(address.0), |range| range.old_start.plus(address.distance_from(range.new_start)))
    }

    /// The range that contains `address` of the old image.
    pub fn containing(&self, address: Address) -> Option<&Move> {
        self.preceding(address).filter(|range| address < range.old_end())
    }

    /// The range that contains `address` of the new image.
    pub fn containing_new(&self, address: NewAddress) -> Option<&Move> {
        let after = self.count_up_to_new(address);
        self.by_new_start[..after]
            .last()
            .map(|&at| &self.moves[at as usize])
            .filter(|range| address < range.new_end())
    }

    /// The range that starts exactly at `address` of the old image.
    pub(crate) fn starting_at(&self, address: Address) -> Option<&Move> {
        self.containing(address).filter(|range| range.old_start == address)
    }

    /// The range that ends exactly at `address` of the old image.
    pub(crate) fn ending_at(&self, address: Address) -> Option<&Move> {
        let after = self.moves.partition_point(|range| range.old_start < address);
        self.moves[..after].last().filter(|range| range.old_end() == address)
    }

    /// The described function that ends exactly at `address` of the old image.
    pub(crate) fn described_ending_at(&self, address: Address) -> Option<&Move> {
        self.ending_at(address).filter(|range| !self.is_found(range.old_start))
    }

    /// Whether nothing describes the function that contains `address` of the old image.
    pub(crate) fn is_found(&self, address: Address) -> bool {
        let home = self.containing(address);
        home.is_some_and(|home| self.found.binary_search(&home.old_start).is_ok())
    }

    /// With functions besides that nothing describes, which kept their places.
    ///
    /// # Errors
    /// As [`Self::from_evidence`].
    pub(crate) fn with_found(self, found: &[Range<Address>]) -> Result<Self> {
        let kept = |range: &Range<Address>| Move {
            old_start: range.start,
            new_start: NewAddress(range.start.0),
            size: range.end.distance_from(range.start),
        };
        if found.is_empty() {
            return Ok(self);
        }
        let all = Self::from_evidence(self.moves.into_iter().chain(found.iter().map(kept)).collect())?;
        Ok(Self { found: found.iter().map(|range| range.start).collect(), ..all })
    }

    /// The last range that starts at or before `address` of the old image.
    pub fn preceding(&self, address: Address) -> Option<&Move> {
        let after = self.index.count_up_to(address.0, |at| self.moves[at].old_start.0);
        self.moves[..after].last()
    }

    /// The first range that starts after `address` of the old image.
    pub fn following(&self, address: Address) -> Option<&Move> {
        self.moves.get(self.moves.partition_point(|range| range.old_start <= address))
    }

    /// The first range that starts after `address` of the new image.
    pub(crate) fn following_new(&self, address: NewAddress) -> Option<&Move> {
        self.by_new_start.get(self.count_up_to_new(address)).map(|&at| &self.moves[at as usize])
    }

    /// How many ranges start at or before `address` of the new image.
    fn count_up_to_new(&self, address: NewAddress) -> usize {
        self.new_index.count_up_to(address.0, |at| self.moves[self.by_new_start[at] as usize].new_start.0)
    }

    /// All ranges in the order of their new addresses.
    pub(crate) fn iter_by_new_start(&self) -> impl ExactSizeIterator<Item = &Move> {
        self.by_new_start.iter().map(|&at| &self.moves[at as usize])
    }

    /// The same with copies of code and of jump tables.
    pub(crate) fn with_copies(self, copies: Vec<PlacedCopy>, mut copied_tables: Vec<PlacedTable>) -> Self {
        copied_tables.sort_unstable();
        Self { copies: PlacedCopies::new(copies), copied_tables, ..self }
    }

    /// The copies of code in the new image, by the places of their originals.
    pub fn copies(&self) -> &[PlacedCopy] {
        self.copies.as_slice()
    }

    /// The copies of jump tables in the new image, by the places of their originals.
    pub fn copied_tables(&self) -> &[PlacedTable] {
        &self.copied_tables
    }

    /// Where `size` bytes of one function at `start` of the old image run in the new one: in their copies, and where they went
    /// as far as they have none. In the order of the old addresses.
    pub fn places(&self, start: Address, size: u64) -> Vec<Range<NewAddress>> {
        self.copies.places(self.map(start), size)
    }

    /// Merges `evidence` (one entry per unwind entry or symbol) into disjoint ranges.
    pub(crate) fn from_evidence(mut evidence: Vec<Move>) -> Result<Self> {
        evidence.par_sort_unstable();
        let mut moves: Vec<Move> = Vec::with_capacity(evidence.len());
        for next in evidence {
            match moves.last_mut() {
                Some(last) if next.old_start < last.old_end() => {
                    if next.delta() != last.delta() {
                        return Err(Error::verification(format!(
                            "two descriptions of overlapping code disagree: {last} and {next}"
                        )));
                    }
                    last.size = last.size.max(next.old_end().distance_from(last.old_start));
                }
                _ => moves.push(next),
            }
        }
        moves.shrink_to_fit();
        let count =
            u32::try_from(moves.len()).map_err(|_| Error::malformed(0, "more than 2^32 functions"))?;
        let mut by_new_start: Vec<u32> = (0..count).collect();
        by_new_start.par_sort_unstable_by_key(|&at| moves[at as usize].new_start);
        for pair in by_new_start.windows(2) {
            let (first, second) = (&moves[pair[0] as usize], &moves[pair[1] as usize]);
            if first.new_end() > second.new_start {
                return Err(Error::verification(format!(
                    "two functions overlap in the new image: {first} and {second}"
                )));
            }
        }
        let index = AddressIndex::new(moves.iter().map(|range| range.old_start.0));
        let new_index = AddressIndex::new(by_new_start.iter().map(|&at| moves[at as usize].new_start.0));
        Ok(Self {
            moves,
            by_new_start,
            index,
            new_index,
            copies: PlacedCopies::default(),
            copied_tables: Vec::new(),
            found: Vec::new(),
        })
    }
}

impl fmt::Display for Move {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} -> {} ({} bytes)", self.old_start, self.new_start, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(old: u64, new: u64, size: u64) -> Move {
        Move { old_start: Address(old), new_start: NewAddress(new), size }
    }

    #[test]
    fn overlapping_descriptions_become_one_range() {
        // A signal trampoline's unwind entry starts one byte before its symbol; an alias repeats a range.
        let evidence =
            vec![found(0x11, 0x51, 7), found(0x10, 0x50, 8), found(0x11, 0x51, 9), found(0x30, 0x30, 4)];
        let moves = AddressMoves::from_evidence(evidence).expect("they agree");
        assert_eq!(moves.as_slice(), [found(0x10, 0x50, 10), found(0x30, 0x30, 4)]);
        assert_eq!(moves.moved(), 1);
    }

    #[test]
    fn the_end_of_a_range_does_not_move_with_it() {
        let moves = AddressMoves::from_evidence(vec![found(0x10, 0x50, 8)]).expect("one range");
        assert_eq!(
            (moves.map(Address(0x17)), moves.map(Address(0x18))),
            (NewAddress(0x57), NewAddress(0x18))
        );
        assert_eq!(
            (moves.unmap(NewAddress(0x57)), moves.unmap(NewAddress(0x58))),
            (Address(0x17), Address(0x58))
        );
        assert_eq!(moves.ending_at(Address(0x18)), Some(&found(0x10, 0x50, 8)));
    }

    #[test]
    fn sources_that_disagree_or_collide_are_refused() {
        let disagreeing = vec![found(0x10, 0x50, 8), found(0x14, 0x60, 4)];
        assert!(AddressMoves::from_evidence(disagreeing).is_err());
        let colliding = vec![found(0x10, 0x50, 8), found(0x20, 0x57, 8)];
        assert!(AddressMoves::from_evidence(colliding).is_err());
    }
}
