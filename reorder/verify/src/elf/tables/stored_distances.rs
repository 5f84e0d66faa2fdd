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
use crate::elf::pointers::{loaded_addresses, written_places};
use crate::moves::Move;
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::Address;

/// Sums that are tried for an image: a fixed number, and a number per byte from the first to the last function.
const MIN_SUMS: u64 = 1 << 23;
const SUMS_PER_BYTE: u64 = 32;
/// Words in a row that may lead to no function, once it is certain that they are distances.
const MAX_OTHER_WORDS: u32 = 4;
/// Words of a table. Such tables are written by hand.
const MAX_WORDS: u64 = 1 << 12;
/// Words that may lead to the base itself before one leads to another function.
const MAX_LEADING_ZEROS: u64 = 16;

/// Words that may be distances.
#[derive(Clone, Copy)]
struct Table {
    start: Address,
    /// Bytes of each.
    width: u8,
    /// The first that is not zero.
    first: u64,
}

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
    let extent = match (moves.first(), moves.last()) {
        (Some(first), Some(last)) => last.old_end().distance_from(first.old_start),
        _ => 0,
    };
    let search = Search {
        pair,
        slots: loaded_addresses(pair.old),
        written: written_places(pair.old),
        known,
        moving: moving.collect(),
        extent,
        budget: AtomicU64::new(MIN_SUMS.saturating_add(extent.saturating_mul(SUMS_PER_BYTE))),
    };
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
    /// Places that the loader writes, ascending.
    written: Vec<u64>,
    known: &'a [Range<Address>],
    /// Sections with functions that moved. The start of linkage stubs looks like that of a function, too, and is near the text.
    moving: Vec<Range<Address>>,
    /// Bytes from the first to the last function.
    extent: u64,
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
        let tables: Vec<Table> =
            all.iter().flat_map(|place| [self.table(*place, 8), self.table(*place, 4)]).flatten().collect();
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

    /// Whether `address` is the start of a function, or x86-64 code of no function among functions, which never moves. In AArch64
    /// code such a place often is a literal.
    fn may_be_base(&self, address: Address) -> bool {
        match self.pair.moves.containing(address) {
            Some(function) => function.old_start == address,
            None => self.pair.old.processor == Processor::X86_64 && self.is_among_moved(address),
        }
    }

    fn is_among_moved(&self, address: Address) -> bool {
        let after = self.moving.partition_point(|section| section.end <= address);
        self.moving.get(after).is_some_and(|section| section.contains(&address))
    }

    /// The words at `start`, if the first that is not zero comes soon, and is less than the functions extend over.
    fn table(&self, start: Address, width: u8) -> Option<Table> {
        let table = Table { start, width, first: 0 };
        let mut words =
            (0..=MAX_LEADING_ZEROS).map_while(|number| Some(self.word(Address(0), table, number)?.target.0));
        let first = words.find(|word| *word != 0)?;
        (first.cast_signed().unsigned_abs() < self.extent).then_some(Table { first, ..table })
    }

    /// The address that the loader stores at `place`.
    fn slot(&self, place: Address) -> Option<Address> {
        let at = self.slots.binary_search_by_key(&place, |&(slot, _)| slot).ok()?;
        Some(self.slots[at].1)
    }

    /// The address that the eight bytes at `place` hold when the program runs, unless it writes there.
    fn pointer_at(&self, place: Address) -> Option<Address> {
        let stored = || {
            let section = self.pair.old.section_at(place.0).filter(|section| !section.is_code())?;
            u64_at(section.at(place.0, 8)?, 0).map(Address)
        };
        self.slot(place).or_else(stored)
    }

    /// The first stale word of a table of distances from `base`, if it is one; `None` if there are too many words.
    fn stale_word(&self, base: Address, table: Table) -> Option<Option<Difference>> {
        if !self.is_start(base.plus(table.first)) {
            return Some(None);
        }
        let mut others = BTreeSet::new();
        let mut stale = None;
        let (mut misses, mut read, mut last) = (0, 0, 0);
        for number in 0..MAX_WORDS {
            read += 1;
            let Some(word) = self.word(base, table, number) else { break };
            if word.target == base {
                continue;
            }
            if !self.is_start(word.target) {
                misses += 1;
                if others.len() < 2 || misses > MAX_OTHER_WORDS {
                    break;
                }
                continue;
            }
            misses = 0;
            others.insert(word.target);
            last = number;
            if self.pair.mapped(word.target) != word.found {
                stale.get_or_insert(word);
            }
        }
        self.spend(read)?;
        let stale = stale.filter(|_| others.len() > 1 && !self.counts_from_itself(table, last));
        Some(stale.map(|word| word.stale(self.pair, table.start)))
    }

    /// Whether the words up to number `last` lead from the table itself to the same code in both images: then it is a jump table, and
    /// its words lead to functions at regular distances by chance.
    fn counts_from_itself(&self, table: Table, last: u64) -> bool {
        (0..=last).all(|number| {
            let word = self.word(table.start, table, number);
            word.is_some_and(|word| {
                self.pair.moves.containing(word.target).is_some() && word.is_followed(self.pair)
            })
        })
    }

    /// The word with this number, counted from `base`, unless it is known to be something else.
    fn word(&self, base: Address, table: Table, number: u64) -> Option<TableWord> {
        let width = u64::from(table.width);
        let place = table.start.plus(number * width);
        let end = place.plus(width);
        // No array continues in the next section, such as the search table of unwind entries.
        let section = self.pair.old.section_at(table.start.0)?;
        if end.0 > section.end() {
            return None;
        }
        let after = self.known.partition_point(|range| range.end <= place);
        let is_known = self.known.get(after).is_some_and(|range| range.start < end);
        // The loader writes addresses of eight bytes.
        let before = self.written.partition_point(|written| written.saturating_add(8) <= place.0);
        let is_written = self.written.get(before).is_some_and(|written| *written < end.0);
        TableWord::at(self.pair, base, place, table.width).filter(|_| !is_known && !is_written)
    }

    /// Whether a function starts there that may have moved.
    fn is_start(&self, address: Address) -> bool {
        self.pair.moves.starting_at(address).is_some() && self.is_among_moved(address)
    }
}
