//! Distances to functions in data, counted from a place in data that code names, whatever the code does with them.
//!
//! Thunks and hand-written code call the sum of a word and the address of its table in ways that no analysis of control
//! follows. Two words next to each other that lead from one named place to starts of functions are such a table: two random
//! words do so less than once in 10^9 times. They must lead to the same functions afterwards.

use std::ops::Range;

use rayon::prelude::*;

use super::words::TableWord;
use crate::elf::pair::ImagePair;
use crate::report::Difference;
use reorder_base::address::Address;

/// Words from a named place on. Tables that other checks do not understand are written by hand, so they are short.
const MAX_WORDS: u64 = 64;

/// The first stale word after each of `references`, the addresses of data that code names. `known` are the words that jumps
/// read, ascending and disjoint: these count from the jump's own table.
pub(super) fn stale_distances(
    pair: ImagePair<'_>,
    references: &[Address],
    known: &[Range<Address>],
) -> Vec<Difference> {
    let is_known = |word: &TableWord| {
        let after = known.partition_point(|range| range.end <= word.place);
        known.get(after).is_some_and(|range| range.contains(&word.place))
    };
    let first_stale = |&base: &Address| {
        [4, 8].into_iter().find_map(|width| {
            let places = (0..MAX_WORDS).map(|number| base.plus(number * u64::from(width)));
            let words = places.map_while(|place| TableWord::at(pair, base, place, width));
            let distances: Vec<Option<TableWord>> = words
                .map(|word| Some(word).filter(|word| leads_to_function(pair, word) && !is_known(word)))
                .collect();
            let neighbours = distances.windows(2).filter_map(|both| both[0].zip(both[1]));
            let tables = neighbours.filter(|(one, two)| one.target != two.target);
            let stale = tables.flat_map(|(one, two)| [one, two]).find(|word| !word.is_followed(pair));
            stale.map(|word| word.stale(pair, base))
        })
    };
    references.par_iter().with_min_len(256).filter_map(first_stale).collect()
}

/// Whether a word leads to the start of a function.
fn leads_to_function(pair: ImagePair<'_>, word: &TableWord) -> bool {
    pair.moves.containing(word.target).is_some_and(|function| function.old_start == word.target)
}
