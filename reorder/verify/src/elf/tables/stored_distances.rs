//! Distances between functions that data holds, where one AArch64 function names both a function and that data.
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

use rayon::prelude::*;

use super::TableOutcome;
use super::words::TableWord;
use crate::bytes::u64_at;
use crate::elf::functions::Naming;
use crate::elf::pair::ImagePair;
use crate::report::Difference;
use reorder_base::address::Address;

/// Pairs of a function and words that are tried for each function that names them.
const MAX_PAIRS: usize = 1 << 16;
/// Words of a table. Such tables are written by hand.
const MAX_WORDS: u64 = 1 << 12;
/// Words that may lead to the first function itself before one leads to another.
const MAX_LEADING_ZEROS: u64 = 16;

/// Checks the distances among what each of `naming` names; `slots` are addresses that the loader stores, by place.
pub(super) fn stored_distances(
    pair: ImagePair<'_>,
    naming: &[Naming],
    slots: &[(Address, Address)],
) -> TableOutcome {
    let is_function = |address: &Address| pair.moves.starting_at(*address).is_some();
    let stale = |named: &Naming| {
        let loaded = named.addresses.iter().filter_map(|place| pointer_at(pair, slots, *place));
        let functions: BTreeSet<Address> =
            named.addresses.iter().copied().chain(loaded).filter(is_function).collect();
        let tables: Vec<(Address, u8)> = named
            .addresses
            .iter()
            .flat_map(|place| [(*place, 8), (*place, 4)])
            .filter(|&(place, width)| begins_near(pair, place, width))
            .collect();
        let pairs = functions.iter().flat_map(|function| tables.iter().map(move |table| (*function, *table)));
        pairs
            .take(MAX_PAIRS)
            .find_map(|(function, (table, width))| stale_word(pair, (function, table, width)))
    };
    let differences: Vec<Difference> = naming.par_iter().filter_map(stale).collect();
    TableOutcome { differences, ..TableOutcome::default() }
}

/// Whether the first word that is not zero comes soon, and is less than the functions extend over.
fn begins_near(pair: ImagePair<'_>, place: Address, width: u8) -> bool {
    let functions = pair.moves.as_slice();
    let (Some(first), Some(last)) = (functions.first(), functions.last()) else { return false };
    let extent = last.old_end().distance_from(first.old_start);
    let words = (0..=MAX_LEADING_ZEROS)
        .map_while(|number| TableWord::at(pair, Address(0), place.plus(number * u64::from(width)), width));
    let mut distances = words.map(|word| word.target.0.cast_signed().unsigned_abs());
    distances.find(|distance| *distance != 0).is_some_and(|distance| distance < extent)
}

/// The address that the eight bytes at `place` hold when the program runs, unless it writes there.
fn pointer_at(pair: ImagePair<'_>, slots: &[(Address, Address)], place: Address) -> Option<Address> {
    match slots.binary_search_by_key(&place, |&(slot, _)| slot) {
        Ok(at) => Some(slots[at].1),
        Err(_) => u64_at(pair.old.section_at(place.0)?.at(place.0, 8)?, 0).map(Address),
    }
}

/// The first stale word of a table of distances from `function`, if it is one.
fn stale_word(pair: ImagePair<'_>, (function, table, width): (Address, Address, u8)) -> Option<Difference> {
    let mut others = BTreeSet::new();
    let mut stale = None;
    for number in 0..MAX_WORDS {
        let word = TableWord::at(pair, function, table.plus(number * u64::from(width)), width);
        let Some(word) = word.filter(|word| leads_to_function(pair, word, function)) else { break };
        others.extend((word.target != function).then_some(word.target));
        if pair.mapped(word.target) != word.found {
            stale.get_or_insert(word);
        }
    }
    stale.filter(|_| others.len() > 1).map(|word| word.stale(pair, table))
}

fn leads_to_function(pair: ImagePair<'_>, word: &TableWord, function: Address) -> bool {
    word.target == function || pair.moves.starting_at(word.target).is_some()
}
