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
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::words::TableWord;
use crate::bytes::u64_at;
use crate::elf::functions::Naming;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_addresses;
use crate::moves::Move;
use crate::report::{Check, Difference};
use reorder_base::address::Address;

/// Sums that are tried for an image: so many, and some for each byte of its functions.
const MIN_SUMS: u64 = 1 << 23;
const SUMS_PER_BYTE: u64 = 32;
/// Words in a row that may lead to no function, once it is certain that they are distances.
const MAX_OTHER_WORDS: u32 = 4;
/// Words of a table. Such tables are written by hand.
const MAX_WORDS: u64 = 1 << 12;
/// Words that may lead to the base itself before one leads to another function.
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
    let moving = pair.old.code_sections().map(|section| Address(section.address)..Address(section.end()));
    let moves = pair.moves.as_slice();
    let moving = moving.filter(|section| {
        let first = moves.partition_point(|function| function.old_start < section.start);
        moves[first..].iter().take_while(|function| function.old_start < section.end).any(Move::is_moved)
    });
    let bytes: u64 = moves.iter().map(|function| function.size).sum();
    let budget = AtomicU64::new(MIN_SUMS.saturating_add(bytes.saturating_mul(SUMS_PER_BYTE)));
    let (slots, moving) = (loaded_addresses(pair.old), moving.collect());
    let search = Search { pair, slots, known, moving, budget };
    let found = naming.par_iter().filter_map(|named| search.stale(named).unwrap_or_default()).collect();
    match search.budget.load(Ordering::Relaxed) {
        0 => vec![Difference::new(
            Check::JumpTables,
            None,
            "the tables that functions name",
            "as many as can be tried",
            "more sums of addresses and words than the code justifies",
        )],
        _ => found,
    }
}

struct Search<'a> {
    pair: ImagePair<'a>,
    /// The addresses that the loader stores, by place.
    slots: Vec<(Address, Address)>,
    known: &'a [Range<Address>],
    /// Sections with functions that moved. The start of linkage stubs looks like that of a function, too, and is near the text.
    moving: Vec<Range<Address>>,
    budget: AtomicU64,
}

impl Search<'_> {
    /// The first stale word among the distances that a function names; `None` if there are too many to try.
    fn stale(&self, named: &Naming) -> Option<Option<Difference>> {
        // The address of a variable of another object is loaded before the variable is.
        let variables = named.addresses.iter().filter_map(|place| self.slot(*place));
        let mut all: BTreeSet<Address> = named.addresses.iter().copied().chain(variables).collect();
        // Loads of two registers and of vectors read the next word as well.
        let loaded = all.iter().flat_map(|place| [*place, place.plus(8)]);
        let loaded: Vec<Address> = loaded.filter_map(|place| self.pointer_at(place)).collect();
        all.extend(loaded);
        let bases: Vec<Address> = all.iter().copied().filter(|address| self.may_be_base(*address)).collect();
        if bases.is_empty() {
            return Some(None);
        }
        self.spend(all.len())?;
        let tables: Vec<Table> = all
            .iter()
            .flat_map(|place| [(*place, 8), (*place, 4)])
            .filter(|&table| self.begins_near(table))
            .collect();
        for base in bases {
            self.spend(tables.len())?;
            for table in &tables {
                let stale = self.stale_word(base, *table)?;
                if stale.is_some() {
                    return Some(stale);
                }
            }
        }
        Some(None)
    }

    fn spend(&self, count: usize) -> Option<()> {
        let count = count as u64;
        let take = |left: u64| Some(left.saturating_sub(count));
        let left = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or_default();
        (left > count).then_some(())
    }

    /// Whether `address` is the start of a function, or code of no function, which never moves.
    fn may_be_base(&self, address: Address) -> bool {
        match self.pair.moves.containing(address) {
            Some(function) => function.old_start == address,
            None => self.pair.old.code_at(address.0, address.0.saturating_add(1)).is_some(),
        }
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

    /// The address that the loader stores at `place`.
    fn slot(&self, place: Address) -> Option<Address> {
        let at = self.slots.binary_search_by_key(&place, |&(slot, _)| slot).ok()?;
        Some(self.slots[at].1)
    }

    /// The address that the eight bytes at `place` hold when the program runs, unless it writes there.
    fn pointer_at(&self, place: Address) -> Option<Address> {
        let stored = || u64_at(self.pair.old.section_at(place.0)?.at(place.0, 8)?, 0).map(Address);
        self.slot(place).or_else(stored)
    }

    /// The first stale word of a table of distances from `base`, if it is one; `None` if there are too many words.
    fn stale_word(&self, base: Address, table: Table) -> Option<Option<Difference>> {
        let mut others = BTreeSet::new();
        let mut stale = None;
        let (mut misses, mut read) = (0, 0);
        for number in 0..MAX_WORDS {
            read += 1;
            let Some(word) = self.word(base, table, number) else { break };
            if !self.leads_to_function(&word, base) {
                misses += 1;
                if others.len() < 2 || misses > MAX_OTHER_WORDS {
                    break;
                }
                continue;
            }
            misses = 0;
            others.extend((word.target != base).then_some(word.target));
            if self.pair.mapped(word.target) != word.found {
                stale.get_or_insert(word);
            }
        }
        self.spend(read)?;
        Some(stale.filter(|_| others.len() > 1).map(|word| word.stale(self.pair, table.0)))
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
        let is_start = |target: Address| {
            self.pair.moves.starting_at(target).is_some()
                && self.moving.iter().any(|section| section.contains(&target))
        };
        word.target == function || is_start(word.target)
    }
}
