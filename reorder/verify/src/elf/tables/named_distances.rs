//! Distances to functions in data, counted from a place in data that code names, whatever the code does with them.
//!
//! Thunks and hand-written code call the sum of a word and the address of its table in ways that no analysis of control
//! flow follows. Words next to each other that lead from one named place to starts of functions are such a table, and must
//! lead to the same functions in the new image. Other data may look like that: where the text lies after the data, a small
//! number leads to the start of a function about once in 200 times. So two words are enough only after the nearest named
//! place, because the writer moves no function to which a word leads from there; after an earlier one, four are needed.
//! Where functions lie at regular distances, words lead to functions from several places. If they still lead to the same
//! functions from one of these, that explains them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::names::stated_addresses;
use super::words::{TableWord, is_own_distance, may_all_be_entered};
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_pointers;
use crate::report::{Check, Difference};
use reorder_base::address::Address;

/// How many words after a named place are checked. Tables that other checks do not understand are written by hand, so they are short.
const MAX_WORDS: u64 = 64;
/// Bytes of code that are decoded to explain words, for all of them. Without an explanation a word is a difference.
const MAX_DECODED_BYTES: usize = 1 << 28;
const WIDTH: u64 = 4;
/// Words that make a table after the nearest named place, and after an earlier one.
const NEAR_WORDS: u64 = 2;
const FAR_WORDS: u64 = 4;

/// Words next to each other that lead from a base to functions, not all to the same one.
struct Run {
    base: Address,
    words: Vec<TableWord>,
}

impl Run {
    /// The `count` words from `place` on, if none of them changed and all lead from `base` to functions.
    fn at(pair: ImagePair<'_>, base: Address, place: Address, count: u64) -> Option<Self> {
        let word = |number| {
            let word = TableWord::at(pair, base, place.plus(number * WIDTH), WIDTH as u8)?;
            Some(word).filter(|word| !word.has_changed && word.leads_to_function(pair))
        };
        let words: Vec<TableWord> = (0..count).map(word).collect::<Option<_>>()?;
        words.windows(2).any(|both| both[0].target != both[1].target).then_some(Self { base, words })
    }

    fn stale(&self, pair: ImagePair<'_>) -> Option<&TableWord> {
        self.words.iter().find(|word| !has_followed(pair, word))
    }
}

/// The first stale word after each address of data in `references`, the sorted addresses that code names. `known` are the words of
/// jump tables that other checks have explained, ascending and disjoint: they count from their own table.
pub(super) fn stale_distances(
    pair: ImagePair<'_>,
    references: &[Address],
    known: &[Range<Address>],
) -> Vec<Difference> {
    // In data after code, small numbers counted from a function lead to its neighbours.
    let is_data = |base: &&Address| pair.old.section_at(base.0).is_none_or(|section| !section.is_code());
    let references: Vec<Address> = references.iter().filter(is_data).copied().collect();
    let (held, budget) = (OnceLock::new(), AtomicUsize::new(MAX_DECODED_BYTES));
    let held = || {
        held.get_or_init(|| {
            let mut held = loaded_pointers(pair.old);
            held.extend(stated_addresses(pair));
            // Not in parallel: a thread that waits there may take up another place, which needs this list and would wait for ever.
            held.sort_unstable();
            held.dedup();
            held
        })
    };
    let is_known = |place: Address| {
        let after = known.partition_point(|range| range.end <= place);
        known.get(after).is_some_and(|range| range.start < place.plus(NEAR_WORDS * WIDTH))
    };
    let stale_at = |place: Address, bases: &[Address]| {
        let (nearest, earlier) = bases.split_last()?;
        let near = Run::at(pair, *nearest, place, NEAR_WORDS);
        let far = earlier.iter().filter_map(|&base| Run::at(pair, base, place, FAR_WORDS));
        let mut first = None;
        for run in near.into_iter().chain(far) {
            let stale = run.stale(pair)?;
            first.get_or_insert_with(|| difference(pair, run.base, stale));
        }
        first.filter(|_| {
            !holds_from(pair, place, bases, &budget) && !holds_from_held(pair, place, held(), &budget)
        })
    };
    let first_stale = |number: usize| {
        let &base = references.get(number)?;
        let end = pair.old.section_at(base.0).map_or(base, |section| Address(section.end()));
        let end = references.get(number + 1).map_or(end, |&next| next.min(end));
        let places = (0..MAX_WORDS).map(|number| base.plus(number * WIDTH));
        let mut places = places.take_while(|place| *place < end).filter(|place| !is_known(*place));
        places.find_map(|place| {
            let before = &references[..=number];
            let first = before.partition_point(|&base| base.plus(MAX_WORDS * WIDTH) <= place);
            stale_at(place, &before[first..])
        })
    };
    (0..references.len()).into_par_iter().with_min_len(256).filter_map(first_stale).collect()
}

fn difference(pair: ImagePair<'_>, base: Address, stale: &TableWord) -> Difference {
    Difference::new(
        Check::JumpTables,
        pair.old.offset_of(stale.place.0).map(|offset| offset.0),
        format!(
            "the word at {}, which leads from {base} to a function as the word next to it does",
            stale.place
        ),
        format!("the distance to {}", pair.mapped(stale.target)),
        format!("the distance to {}", stale.found),
    )
}

/// Whether a table begins at one of `bases` and reaches to `place`: every word in between leads to an instruction, the same one in
/// both images. Two words are not enough, because code also names strings.
fn holds_from(pair: ImagePair<'_>, place: Address, bases: &[Address], budget: &AtomicUsize) -> bool {
    bases.iter().filter(|base| place.distance_from(**base).is_multiple_of(WIDTH)).any(|&base| {
        let before = place.distance_from(base) / WIDTH;
        let words: Option<Vec<TableWord>> = (0..before + NEAR_WORDS)
            .map(|number| TableWord::at(pair, base, base.plus(number * WIDTH), WIDTH as u8))
            .collect();
        let followed = |words: &Vec<TableWord>| {
            let (before, accused) = words.split_at(before as usize);
            before.iter().all(|word| word.is_followed(pair))
                && accused.iter().all(|word| has_followed(pair, word))
        };
        words.filter(followed).is_some_and(|words| lead_to_instructions(pair, &words, budget))
    })
}

/// Whether all words lead to instructions of functions, or to where functions end. Each function is decoded once.
fn lead_to_instructions(pair: ImagePair<'_>, words: &[TableWord], budget: &AtomicUsize) -> bool {
    let mut targets: BTreeMap<Address, BTreeSet<Address>> = BTreeMap::new();
    for word in words {
        match pair.moves.containing(word.target) {
            Some(function) => targets.entry(function.old_start).or_default().insert(word.target),
            None if pair.moves.ending_at(word.target).is_some() => continue,
            None => return false,
        };
    }
    targets.iter().all(|(start, targets)| {
        let length = targets.last().map_or(0, |last| last.distance_from(*start));
        let has_room = budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(length as usize))
            .is_ok();
        has_room
            && pair
                .moves
                .starting_at(*start)
                .is_some_and(|function| may_all_be_entered(pair, function, targets))
    })
}

/// As [`holds_from`], for words that count from their own places, or from one of the sorted addresses `held`, which pointers hold
/// or code states.
fn holds_from_held(pair: ImagePair<'_>, place: Address, held: &[Address], budget: &AtomicUsize) -> bool {
    let first = Address(place.0.saturating_sub(MAX_WORDS * WIDTH));
    let from = held.partition_point(|&base| base < first);
    let to = held.partition_point(|&base| base <= place);
    let from_itself = (0..NEAR_WORDS).all(|number| is_own_distance(pair, place.plus(number * WIDTH)));
    from_itself || holds_from(pair, place, &held[from..to], budget)
}

/// Whether a word leads to the new place of its target. If a function starts there, its new start counts, not the new end of the
/// function before it.
fn has_followed(pair: ImagePair<'_>, word: &TableWord) -> bool {
    match word.leads_to_function(pair) {
        true => pair.mapped(word.target) == word.found,
        false => word.is_followed(pair),
    }
}
