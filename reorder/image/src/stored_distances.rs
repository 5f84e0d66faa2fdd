//! Distances between functions that data holds, where one function names both that data and the address to add: it may keep both
//! on the stack, pass the sum on or store it, so what becomes of them is not asked.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::mapped_bytes::MappedBytes;
use reorder_base::address::Address;

/// Words of a table. Such tables are written by hand.
const MAX_TABLE_WORDS: u64 = 1 << 12;
/// Words that may lead to the first function itself before one leads to another.
const MAX_LEADING_ZEROS: u64 = 16;
/// Sums that are tried for one function: so many, and some for each byte of its code. A file that is made to keep us busy cannot do
/// so for longer than its code justifies.
const MIN_SUMS: u64 = 1 << 16;
const SUMS_PER_BYTE: u64 = 64;

/// Addresses that the code of one function forms or loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedAddresses {
    /// Those of functions.
    pub(crate) bases: BTreeSet<Address>,
    /// Those outside the code.
    pub(crate) places: BTreeSet<Address>,
    /// Bytes of the code.
    pub(crate) size: u64,
}

/// A table of distances from a function to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredDistances {
    /// The function.
    pub(crate) base: Address,
    /// Where the table starts.
    pub(crate) table: Address,
    /// The other functions, at least two: a single small number often leads from one function to another.
    pub(crate) reached: BTreeSet<Address>,
}

/// What the search needs of the image.
pub(crate) struct DistanceSearch<'run> {
    pub(crate) image: &'run dyn MappedBytes,
    /// From the first to the last byte of code.
    pub(crate) text: Range<Address>,
    /// Whether a function starts at an address.
    pub(crate) is_start: &'run (dyn Fn(Address) -> bool + Sync),
    /// Whether the word of so many bytes at a place is known to be no such distance.
    pub(crate) is_other: &'run (dyn Fn(Address, u64) -> bool + Sync),
}

/// Words of one width that may be distances between functions.
#[derive(Clone, Copy, Debug)]
struct Table {
    start: Address,
    width: u64,
    /// The first that is not zero.
    first: u64,
}

impl DistanceSearch<'_> {
    /// The tables among `named.places` that lead from one of `named.bases`; `None` if there are too many to try.
    pub(crate) fn distances(&self, named: &NamedAddresses) -> Option<Vec<StoredDistances>> {
        if named.bases.is_empty() {
            return Some(Vec::new());
        }
        let mut budget = MIN_SUMS.saturating_add(named.size.saturating_mul(SUMS_PER_BYTE));
        let tables: Vec<Table> = named
            .places
            .iter()
            .flat_map(|start| [self.table(*start, 8), self.table(*start, 4)])
            .flatten()
            .collect();
        let mut found = Vec::new();
        for &base in &named.bases {
            for &table in &tables {
                let reached = self.reached_from(base, table, &mut budget)?;
                if reached.len() > 1 {
                    found.push(StoredDistances { base, table: table.start, reached });
                }
            }
        }
        Some(found)
    }

    /// The words at `start`, if the first that is not zero comes soon, and is less than the code is long.
    fn table(&self, start: Address, width: u64) -> Option<Table> {
        let words = (0..=MAX_LEADING_ZEROS).map_while(|number| self.word(start.plus(number * width), width));
        let first = words.into_iter().find(|word| *word != 0)?;
        let is_near = first.cast_signed().unsigned_abs() < self.text.end.distance_from(self.text.start);
        is_near.then_some(Table { start, width, first })
    }

    /// The functions to which the words of `table` lead from `base`, up to the first that leads to none.
    fn reached_from(&self, base: Address, table: Table, budget: &mut u64) -> Option<BTreeSet<Address>> {
        let mut reached = BTreeSet::new();
        *budget = budget.checked_sub(1)?;
        if !(self.is_start)(base.plus(table.first)) {
            return Some(reached);
        }
        for number in 0..MAX_TABLE_WORDS {
            *budget = budget.checked_sub(1)?;
            let distance = self.word(table.start.plus(number * table.width), table.width);
            let Some(target) = distance.map(|distance| base.plus(distance)) else { break };
            if target != base && !(self.is_start)(target) {
                break;
            }
            reached.extend((target != base).then_some(target));
        }
        Some(reached)
    }

    /// The word of `width` bytes at `place`, sign-extended, unless it is known to be something else.
    fn word(&self, place: Address, width: u64) -> Option<u64> {
        let bytes = self.image.bytes_at(place, width).filter(|_| !(self.is_other)(place, width))?;
        match bytes.first_chunk::<8>() {
            Some(word) => Some(u64::from_le_bytes(*word)),
            None => Some(i64::from(i32::from_le_bytes(*bytes.first_chunk()?)).cast_unsigned()),
        }
    }
}

/// The words that code may load which names `place`: a record may hold an address and the place of a table, and loads of its fields
/// count from its start.
pub(crate) fn words_from(place: Address) -> impl Iterator<Item = Address> {
    const WORDS_OF_A_RECORD: u64 = 8;
    (0..WORDS_OF_A_RECORD).map(move |number| place.plus(number * 8))
}

/// The eight bytes at `place` as an address.
pub(crate) fn stored_address(image: &dyn MappedBytes, place: Address) -> Option<Address> {
    Some(Address(u64::from_le_bytes(*image.bytes_at(place, 8)?.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Data(Vec<u8>);

    impl MappedBytes for Data {
        fn bytes_at(&self, address: Address, length: u64) -> Option<&[u8]> {
            let at = address.0.checked_sub(0x8000)? as usize;
            self.0.get(at..at.checked_add(length as usize)?)
        }
    }

    fn found(words: &[i64], size: u64, bases: impl IntoIterator<Item = u64>) -> Option<Vec<StoredDistances>> {
        let data = Data(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        let search = DistanceSearch {
            image: &data,
            text: Address(0x1000)..Address(0x5000),
            is_start: &|address| address.0.is_multiple_of(0x40) && (0x1000..0x5000).contains(&address.0),
            is_other: &|place, _| place == Address(0x8020),
        };
        let places = (0..words.len() as u64).map(|number| Address(0x8000 + number * 8)).collect();
        search.distances(&NamedAddresses { bases: bases.into_iter().map(Address).collect(), places, size })
    }

    #[test]
    fn a_table_leads_to_two_other_functions_at_least() {
        let reached = |words: &[i64]| {
            let first = found(words, 64, [0x1000]).unwrap_or_default().into_iter().next();
            first.map_or(0, |found| found.reached.len())
        };
        assert_eq!(reached(&[0, 0x40, 0x80, 1, 0x100]), 2);
        assert_eq!(reached(&[0, 0x40, 1, 0x80]), 0);
        assert_eq!(reached(&[0x40, 0x40, 0x40]), 0);
        assert_eq!(reached(&[0x40, 0x80, 0xc0, 0x100, 0x140, 0x180]), 4, "the fifth word is known");
    }

    #[test]
    fn a_small_function_cannot_name_more_than_is_tried() {
        let bases = || (0..0x100).map(|number| 0x1000 + number * 0x40);
        let words = [0x40; 0x300];
        assert_eq!(found(&words, 0, bases()), None);
        assert_eq!(found(&words, 1 << 24, bases()).map(|found| found.len()), Some(0));
    }
}
