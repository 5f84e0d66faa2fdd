//! Distances to functions in data, counted from a place in data that code names, whatever the code does with them.
//!
//! Thunks and hand-written code call the sum of a word and the address of its table in ways that no analysis of control
//! follows. Two words next to each other that lead from one named place to starts of functions are such a table: two random
//! words do so less than once in 10^9 times. They must lead to the same functions afterwards. Where functions lie at regular
//! distances, the words lead to functions from several places, and one of these that still holds explains them.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::words::TableWord;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_pointers;
use crate::report::Difference;
use reorder_base::address::Address;

/// Words from a named place on. Tables that other checks do not understand are written by hand, so they are short.
const MAX_WORDS: u64 = 64;

/// Two words next to each other that lead to two functions.
struct Neighbours {
    base: Address,
    width: u8,
    words: [TableWord; 2],
}

impl Neighbours {
    /// The words of `width` bytes at `place` and after it, if they lead from `base` to functions.
    fn at(pair: ImagePair<'_>, base: Address, place: Address, width: u8) -> Option<Self> {
        let word =
            |place| TableWord::at(pair, base, place, width).filter(|word| leads_to_function(pair, word));
        let words = [word(place)?, word(place.plus(u64::from(width)))?];
        (words[0].target != words[1].target).then_some(Self { base, width, words })
    }

    fn stale(&self, pair: ImagePair<'_>) -> Option<&TableWord> {
        self.words.iter().find(|word| !word.is_followed(pair))
    }
}

/// The stale words after `references`, the addresses of data that code names: one for each of these. `known` are the words
/// that jumps read, ascending and disjoint: these count from the jump's own table.
pub(super) fn stale_distances(
    pair: ImagePair<'_>,
    references: &[Address],
    known: &[Range<Address>],
) -> Vec<Difference> {
    let is_known = |place: Address| {
        let after = known.partition_point(|range| range.end <= place);
        known.get(after).is_some_and(|range| range.contains(&place))
    };
    let tables_at = |&base: &Address| {
        let end = pair.old.section_at(base.0).map_or(base, |section| Address(section.end()));
        let of_width = |width: u8| {
            let places = (0..MAX_WORDS).map(|number| base.plus(number * u64::from(width)));
            let places = places.take_while(|place| *place < end).filter(|place| !is_known(*place));
            places.filter_map(|place| Neighbours::at(pair, base, place, width)).collect::<Vec<_>>()
        };
        [4, 8].into_iter().flat_map(of_width).collect::<Vec<_>>()
    };
    let found: Vec<Neighbours> = references.par_iter().with_min_len(256).flat_map_iter(tables_at).collect();
    if found.iter().all(|both| both.stale(pair).is_none()) {
        return Vec::new();
    }
    let mut held = loaded_pointers(pair.old);
    held.par_sort_unstable();
    let key = |both: &Neighbours| (both.words[0].place, both.width);
    let explained: BTreeSet<(Address, u8)> = found
        .iter()
        .filter(|both| both.stale(pair).is_none() || holds_from(pair, both, &held))
        .map(key)
        .collect();
    let mut differences: Vec<Difference> = Vec::new();
    let mut last = None;
    for both in found.iter().filter(|both| !explained.contains(&key(both))) {
        let stale = both.stale(pair).filter(|_| last != Some(both.base));
        differences.extend(stale.map(|word| word.stale(pair, both.base)));
        last = Some(both.base);
    }
    differences
}

/// Whether two words still lead to functions from their own places, or from one of `held`, the sorted addresses that pointers
/// hold.
fn holds_from(pair: ImagePair<'_>, both: &Neighbours, held: &[Address]) -> bool {
    let place = both.words[0].place;
    let first = Address(place.0.saturating_sub(MAX_WORDS * u64::from(both.width)));
    let from = held.partition_point(|&base| base < first);
    let to = held.partition_point(|&base| base <= place);
    let from_base = |&base: &Address| {
        Neighbours::at(pair, base, place, both.width).is_some_and(|both| both.stale(pair).is_none())
    };
    let from_itself = both.words.iter().all(|word| {
        let own = TableWord::at(pair, word.place, word.place, both.width);
        own.is_some_and(|own| leads_to_function(pair, &own) && own.is_followed(pair))
    });
    from_itself || held[from..to].iter().any(from_base)
}

/// Whether a word leads to the start of a function.
fn leads_to_function(pair: ImagePair<'_>, word: &TableWord) -> bool {
    pair.moves.containing(word.target).is_some_and(|function| function.old_start == word.target)
}
