//! Where copies of code are in an image, as it says itself.
//!
//! Takes the list of copies; gives the places at which a range of the originals runs. Guarantee: the places have an end that is
//! not before their start, whatever the list says. The list is a claim until the image is verified.

use std::ops::Range;

use reorder_base::address::NewAddress;

/// A run of instructions and its copy, both in the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacedCopy {
    /// First byte of the original.
    pub original: NewAddress,
    /// Bytes of the original.
    pub size: u64,
    /// First byte of the copy.
    pub copy: NewAddress,
    /// Bytes of the copy.
    pub copy_size: u64,
}

impl PlacedCopy {
    fn end(&self) -> NewAddress {
        NewAddress(self.original.0.saturating_add(self.size))
    }

    /// Where the bytes between two distances from the original's start are in the copy. Instructions of a copy may be longer or
    /// shorter than those of the original: inside of a copy the places are right to a few bytes.
    fn part(&self, from: u64, to: u64) -> Range<NewAddress> {
        let (size, copy_size) = (u128::from(self.size.max(1)), u128::from(self.copy_size));
        let start = u128::from(from) * copy_size / size;
        let end = (u128::from(to) * copy_size).div_ceil(size);
        // Not above the size of the copy, as neither distance is above that of the original.
        let at = |distance: u128| NewAddress(self.copy.0.saturating_add(distance as u64));
        at(start)..at(end)
    }
}

/// A jump table and its copy, both in the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacedTable {
    /// First byte of the original.
    pub original: NewAddress,
    /// First byte of the copy.
    pub copy: NewAddress,
    /// Bytes of either.
    pub size: u64,
}

/// Copies by the places of their originals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlacedCopies(Vec<PlacedCopy>);

impl PlacedCopies {
    /// Sorts `copies`. Of several copies of the same bytes the first counts.
    pub(crate) fn new(mut copies: Vec<PlacedCopy>) -> Self {
        copies.sort_unstable();
        let mut end = NewAddress(0);
        copies.retain(|copy| {
            let is_apart = copy.size > 0 && copy.original >= end;
            end = if is_apart { copy.end() } else { end };
            is_apart
        });
        Self(copies)
    }

    pub(crate) fn as_slice(&self) -> &[PlacedCopy] {
        &self.0
    }

    /// Where `size` bytes at `start` run: in their copies, and where they are as far as they have none.
    pub(crate) fn places(&self, start: NewAddress, size: u64) -> Vec<Range<NewAddress>> {
        let end = NewAddress(start.0.saturating_add(size));
        let first = self.0.partition_point(|copy| copy.end() <= start);
        let mut places = Vec::new();
        let mut position = start;
        for copy in self.0.get(first..).unwrap_or_default().iter().take_while(|copy| copy.original < end) {
            if position < copy.original {
                places.push(position..copy.original);
            }
            let (from, to) = (start.max(copy.original), end.min(copy.end()));
            places.push(copy.part(from.0 - copy.original.0, to.0 - copy.original.0));
            position = to;
        }
        if position < end {
            places.push(position..end);
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(list: &[[u64; 4]]) -> PlacedCopies {
        let copy = |&[original, size, copy, copy_size]: &[u64; 4]| PlacedCopy {
            original: NewAddress(original),
            size,
            copy: NewAddress(copy),
            copy_size,
        };
        PlacedCopies::new(list.iter().map(copy).collect())
    }

    fn places(copies: &PlacedCopies, start: u64, size: u64) -> Vec<(u64, u64)> {
        copies.places(NewAddress(start), size).iter().map(|place| (place.start.0, place.end.0)).collect()
    }

    #[test]
    fn code_runs_in_its_copies_and_elsewhere_where_it_is() {
        let copies = copies(&[[0x30, 0x10, 0x800, 0x20], [0x10, 0x10, 0x900, 0x10]]);
        assert_eq!(places(&copies, 0x14, 4), [(0x904, 0x908)]);
        let whole = [(0x8, 0x10), (0x900, 0x910), (0x20, 0x30), (0x800, 0x820), (0x40, 0x48)];
        assert_eq!(places(&copies, 0x8, 0x40), whole);
        assert_eq!(places(&copies, 0x38, 8), [(0x810, 0x820)], "a copy with longer instructions");
        assert_eq!(places(&copies, 0x50, 2), [(0x50, 0x52)]);
    }

    #[test]
    fn lists_that_make_no_sense_give_places() {
        let copies = copies(&[[u64::MAX - 1, 8, u64::MAX - 2, 90], [4, 0, 5, 6], [8, 8, 0, 0], [9, 2, 3, 4]]);
        assert_eq!(places(&copies, 0, 16), [(0, 8), (0, 0)]);
        assert!(copies.places(NewAddress(u64::MAX - 1), 9).iter().all(|place| place.start <= place.end));
    }
}
