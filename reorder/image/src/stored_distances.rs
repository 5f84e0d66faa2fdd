//! Distances between functions that data holds, where the same code names that data and the address to add. It may keep both on the
//! stack, pass the sum on or store it, so what becomes of them is not asked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapped_bytes::MappedBytes;
use reorder_base::address::Address;

/// Words of a table. Such tables are written by hand.
const MAX_TABLE_WORDS: u64 = 1 << 12;
/// Words that may lead to the base itself before one leads to another function.
const MAX_LEADING_ZEROS: u64 = 16;
/// Words in a row that may lead to no function, such as a mark between two groups of distances, once a table is certain.
const MAX_OTHER_WORDS: usize = 8;

/// How many sums may still be tried for an image: a fixed number, and a number per byte of its code. Programs need one for 60 bytes.
#[derive(Debug)]
pub(crate) struct SumBudget(AtomicU64);

impl SumBudget {
    /// For so many bytes of code.
    pub(crate) fn for_code(bytes: u64) -> Self {
        const MIN_SUMS: u64 = 1 << 22;
        const SUMS_PER_BYTE: u64 = 16;
        Self(AtomicU64::new(MIN_SUMS.saturating_add(bytes.saturating_mul(SUMS_PER_BYTE))))
    }

    /// Takes `count` of them; `None` if there are fewer, and then there are no more.
    pub(crate) fn spend(&self, count: usize) -> Option<()> {
        let count = count as u64;
        let take = |left: u64| Some(left.saturating_sub(count));
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or_default();
        (left > count).then_some(())
    }

    /// Whether not all could be tried. This does not depend on the order in which they were.
    pub(crate) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Addresses that some code forms or loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedAddresses {
    /// Those of code.
    pub(crate) bases: BTreeSet<Address>,
    /// Those outside the code.
    pub(crate) places: BTreeSet<Address>,
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
    pub(crate) budget: &'run SumBudget,
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
    /// The functions to which tables among `named.places` lead from one of `named.bases`, and that base, each with such a table;
    /// `None` if there are too many to try. A table leads to at least two other functions: a single small number often leads from
    /// one function to another.
    pub(crate) fn distances(&self, named: &NamedAddresses) -> Option<BTreeMap<Address, Address>> {
        let mut found = BTreeMap::new();
        if named.bases.is_empty() {
            return Some(found);
        }
        self.budget.spend(named.places.len())?;
        let tables: Vec<Table> = named
            .places
            .iter()
            .flat_map(|start| [self.table(*start, 8), self.table(*start, 4)])
            .flatten()
            .collect();
        for &base in &named.bases {
            self.budget.spend(tables.len())?;
            for &table in &tables {
                for function in self.reached_from(base, table)? {
                    found.entry(function).or_insert(table.start);
                    found.entry(base).or_insert(table.start);
                }
            }
        }
        Some(found)
    }

    /// The words at `start`, if the first that is not zero comes soon, and is less than the code is long.
    fn table(&self, start: Address, width: u64) -> Option<Table> {
        let mut words =
            (0..=MAX_LEADING_ZEROS).map_while(|number| self.word(start.plus(number * width), width));
        let first = words.find(|word| *word != 0)?;
        let is_near = first.cast_signed().unsigned_abs() < self.text.end.distance_from(self.text.start);
        is_near.then_some(Table { start, width, first })
    }

    /// The functions to which the words of `table` lead from `base`; none unless the words lead to two before one leads to none.
    /// Between these and the last one that leads to a start, places inside of functions count, too.
    fn reached_from(&self, base: Address, table: Table) -> Option<BTreeSet<Address>> {
        let mut reached = BTreeSet::new();
        if !(self.is_start)(base.plus(table.first)) {
            return Some(reached);
        }
        let (mut others, mut read) = (Vec::new(), 0);
        for number in 0..MAX_TABLE_WORDS {
            read += 1;
            let distance = self.word(table.start.plus(number * table.width), table.width);
            let Some(target) = distance.map(|distance| base.plus(distance)) else { break };
            if target == base {
                continue;
            }
            if (self.is_start)(target) {
                reached.insert(target);
                reached.extend(others.drain(..).filter(|target| self.text.contains(target)));
                continue;
            }
            others.push(target);
            if reached.len() < 2 || others.len() > MAX_OTHER_WORDS {
                break;
            }
        }
        self.budget.spend(read)?;
        Some(if reached.len() < 2 { BTreeSet::new() } else { reached })
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

/// The words that code may load if it names `place`: two, because vectors are loaded at once, and more if the code has the address:
/// it may load the address of a function and that of a table from one record.
pub(crate) fn words_read(place: Address, is_formed: bool) -> impl Iterator<Item = Address> {
    const WORDS_OF_A_VECTOR: u64 = 2;
    const WORDS_OF_A_RECORD: u64 = 8;
    let count = if is_formed { WORDS_OF_A_RECORD } else { WORDS_OF_A_VECTOR };
    (0..count).map(move |number| place.plus(number * 8))
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

    /// What code finds that names the function at 0x1000 and all places of `words`.
    fn found(words: &[i64], budget: &SumBudget) -> Option<BTreeMap<Address, Address>> {
        let data = Data(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        let search = DistanceSearch {
            image: &data,
            text: Address(0x1000)..Address(0x5000),
            is_start: &|address| address.0.is_multiple_of(0x40) && (0x1000..0x5000).contains(&address.0),
            is_other: &|place, _| place == Address(0x8020),
            budget,
        };
        let places = (0..words.len() as u64).map(|number| Address(0x8000 + number * 8)).collect();
        search.distances(&NamedAddresses { bases: BTreeSet::from([Address(0x1000)]), places })
    }

    #[test]
    fn a_table_leads_to_two_other_functions_at_least() {
        let reached = |words: &[i64]| {
            let found = found(words, &SumBudget::for_code(0x4000)).unwrap_or_default();
            found.len().saturating_sub(1)
        };
        assert_eq!(reached(&[0, 0x40, 0x80, 1]), 2);
        assert_eq!(reached(&[0, 0x40, 0x80, 1, 0x100]), 2, "the fifth word is known");
        assert_eq!(reached(&[0x40, 0x80, 1 << 40, 0x100]), 3, "a mark does not end a table");
        assert_eq!(reached(&[0x40, 0x80, 1, 0x100]), 4, "a place inside of a function");
        assert_eq!(reached(&[0, 0x40, 1, 0x80]), 0);
        assert_eq!(reached(&[0x40, 0x40, 0x40]), 0);
        assert_eq!(reached(&[0x40, 0x80, 0xc0, 0x100, 0x140, 0x180]), 4, "the fifth word is known");
    }

    #[test]
    fn no_more_sums_are_tried_than_the_code_justifies() {
        let budget = SumBudget(AtomicU64::new(5));
        assert_eq!(found(&[0x40, 0x80, 0xc0], &budget), None);
        assert!(budget.is_spent());
        assert_eq!(budget.spend(0), None);
        let budget = SumBudget::for_code(0x4000);
        assert!(found(&[0x40, 0x80, 0xc0], &budget).is_some());
        assert!(!budget.is_spent());
    }
}
