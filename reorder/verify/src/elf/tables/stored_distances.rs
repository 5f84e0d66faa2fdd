//! Distances between functions that data holds, where one function names both a function and that data.
//!
//! ```text
//! ldr x2, [sp, #104]                ; the address of a function: formed or loaded earlier, kept on the stack
//! ldr x1, [x19], #8                 ; a distance; x19 was on the stack, too
//! add x1, x2, x1                    ; stored, passed on or called
//! ```
//!
//! Nothing follows the values. The words decide: if they lead to at least two other functions, they are such distances. One
//! alone may be chance, because a small number often leads from one function to another.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::words::TableWord;
use crate::bytes::u64_at;
use crate::elf::functions::Naming;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_addresses;
use crate::report::Difference;
use reorder_base::address::Address;

/// Sums that are tried for each function: so many, and some for each address that it names. Beyond that the writer refuses.
const MIN_SUMS: usize = 1 << 15;
const SUMS_PER_ADDRESS: usize = 1 << 8;
/// Words of a table. Such tables are written by hand.
const MAX_WORDS: u64 = 1 << 12;
/// Words that may lead to the first function itself before one leads to another.
const MAX_LEADING_ZEROS: u64 = 16;

/// A word of so many bytes and those after it.
type Table = (Address, u8);

/// Checks the distances among what each of `naming` names; `known` are the words of jump tables that other checks have explained,
/// ascending and disjoint: they count from their own table.
pub(super) fn stored_distances(
    pair: ImagePair<'_>,
    naming: &[Naming],
    known: &[Range<Address>],
) -> Vec<Difference> {
    if naming.is_empty() {
        return Vec::new();
    }
    let search = Search { pair, slots: loaded_addresses(pair.old), known };
    naming.par_iter().filter_map(|named| search.stale(named)).collect()
}

struct Search<'a> {
    pair: ImagePair<'a>,
    /// The addresses that the loader stores, by place.
    slots: Vec<(Address, Address)>,
    known: &'a [Range<Address>],
}

impl Search<'_> {
    /// The first stale word among the distances that a function names.
    fn stale(&self, named: &Naming) -> Option<Difference> {
        // Loads of two registers read the next word as well.
        let loaded = named.addresses.iter().flat_map(|place| [*place, place.plus(8)]);
        let loaded = loaded.filter_map(|place| self.pointer_at(place));
        let all: BTreeSet<Address> = named.addresses.iter().copied().chain(loaded).collect();
        let functions: Vec<Address> =
            all.iter().copied().filter(|address| self.pair.moves.starting_at(*address).is_some()).collect();
        if functions.is_empty() {
            return None;
        }
        let tables: Vec<Table> = all
            .iter()
            .flat_map(|place| [(*place, 8), (*place, 4)])
            .filter(|&table| self.begins_near(table))
            .collect();
        let budget = MIN_SUMS + named.addresses.len() * SUMS_PER_ADDRESS;
        let pairs = functions.iter().flat_map(|function| tables.iter().map(move |table| (*function, *table)));
        let mut words = budget;
        pairs.take(budget).find_map(|(function, table)| self.stale_word(function, table, &mut words))
    }

    /// Whether the first word that is not zero comes soon, and is less than the functions extend over.
    fn begins_near(&self, table: Table) -> bool {
        let functions = self.pair.moves.as_slice();
        let (Some(first), Some(last)) = (functions.first(), functions.last()) else { return false };
        let extent = last.old_end().distance_from(first.old_start);
        let words = (0..=MAX_LEADING_ZEROS).map_while(|number| self.word(Address(0), table, number));
        let mut distances = words.map(|word| word.target.0.cast_signed().unsigned_abs());
        distances.find(|distance| *distance != 0).is_some_and(|distance| distance < extent)
    }

    /// The address that the eight bytes at `place` hold when the program runs, unless it writes there.
    fn pointer_at(&self, place: Address) -> Option<Address> {
        match self.slots.binary_search_by_key(&place, |&(slot, _)| slot) {
            Ok(at) => Some(self.slots[at].1),
            Err(_) => u64_at(self.pair.old.section_at(place.0)?.at(place.0, 8)?, 0).map(Address),
        }
    }

    /// The first stale word of a table of distances from `function`, if it is one. Reads no more than `left` words.
    fn stale_word(&self, function: Address, table: Table, left: &mut usize) -> Option<Difference> {
        let mut others = BTreeSet::new();
        let mut stale = None;
        for number in 0..MAX_WORDS {
            let word = self.word(function, table, number);
            let Some(word) = word.filter(|word| self.leads_to_function(word, function)) else { break };
            *left = left.checked_sub(1)?;
            others.extend((word.target != function).then_some(word.target));
            if self.pair.mapped(word.target) != word.found {
                stale.get_or_insert(word);
            }
        }
        stale.filter(|_| others.len() > 1).map(|word| word.stale(self.pair, table.0))
    }

    /// The word with this number, counted from `function`, unless it is known to be something else.
    fn word(&self, function: Address, (start, width): Table, number: u64) -> Option<TableWord> {
        let width_in_bytes = u64::from(width);
        let place = start.plus(number * width_in_bytes);
        let after = self.known.partition_point(|range| range.end <= place);
        let is_known = self.known.get(after).is_some_and(|range| range.start < place.plus(width_in_bytes));
        // The loader stores addresses of eight bytes.
        let before = self.slots.partition_point(|&(slot, _)| slot.plus(8) <= place);
        let is_stored = self.slots.get(before).is_some_and(|&(slot, _)| slot < place.plus(width_in_bytes));
        TableWord::at(self.pair, function, place, width).filter(|_| !is_known && !is_stored)
    }

    fn leads_to_function(&self, word: &TableWord, function: Address) -> bool {
        word.target == function || self.pair.moves.starting_at(word.target).is_some()
    }
}
