//! Distances to functions in data, counted from a place in data that code names, whatever the code does with them.
//!
//! Thunks and hand-written code call the sum of a word and the address of its table in ways that no analysis of control
//! follows. Two words next to each other that lead from one named place to starts of functions are such a table: two random
//! words do so less than once in 10^9 times. They must lead to the same functions afterwards. Where functions lie at regular
//! distances, the words lead to functions from several places, and one of these that still holds explains them.

use std::ops::Range;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::words::TableWord;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_pointers;
use crate::report::Difference;
use reorder_base::address::Address;

/// Words from a named place on. Tables that other checks do not understand are written by hand, so they are short.
const MAX_WORDS: u64 = 64;

/// Two words next to each other that lead from a base to two functions.
struct Neighbours {
    base: Address,
    words: [TableWord; 2],
}

impl Neighbours {
    /// The words of `width` bytes at `place` and after it, if they lead from `base` to functions.
    fn at(pair: ImagePair<'_>, base: Address, place: Address, width: u8) -> Option<Self> {
        let word =
            |place| TableWord::at(pair, base, place, width).filter(|word| leads_to_function(pair, word));
        let words = [word(place)?, word(place.plus(u64::from(width)))?];
        (words[0].target != words[1].target).then_some(Self { base, words })
    }

    fn stale(&self, pair: ImagePair<'_>) -> Option<&TableWord> {
        self.words.iter().find(|word| !word.is_followed(pair))
    }
}

/// The first stale word after each of `references`, the sorted addresses of data that code names. `known` are the words that
/// jumps read, ascending and disjoint: these count from the jump's own table.
pub(super) fn stale_distances(
    pair: ImagePair<'_>,
    references: &[Address],
    known: &[Range<Address>],
) -> Vec<Difference> {
    let held = OnceLock::new();
    let held = || {
        held.get_or_init(|| {
            let mut held = loaded_pointers(pair.old);
            held.par_sort_unstable();
            held.dedup();
            held
        })
    };
    let is_known = |place: Address| {
        let after = known.partition_point(|range| range.end <= place);
        known.get(after).is_some_and(|range| range.contains(&place))
    };
    let stale_at = |place: Address, bases: &[Address], width: u8| {
        let mut all = bases.iter().filter_map(|&base| Neighbours::at(pair, base, place, width)).peekable();
        all.peek()?;
        let mut stale = None;
        for both in all {
            stale = Some(both.stale(pair)?.stale(pair, both.base));
        }
        stale.filter(|_| !holds_from(pair, place, width, held()))
    };
    let first_stale = |number: usize| {
        let &base = references.get(number)?;
        let end = pair.old.section_at(base.0).map_or(base, |section| Address(section.end()));
        let end = references.get(number + 1).map_or(end, |&next| next.min(end));
        [4, 8].into_iter().find_map(|width| {
            let reach = MAX_WORDS * u64::from(width);
            let places = (0..MAX_WORDS).map(|number| base.plus(number * u64::from(width)));
            let mut places = places.take_while(|place| *place < end).filter(|place| !is_known(*place));
            places.find_map(|place| {
                let first = references[..=number].partition_point(|&base| base.plus(reach) <= place);
                stale_at(place, &references[first..=number], width)
            })
        })
    };
    (0..references.len()).into_par_iter().with_min_len(256).filter_map(first_stale).collect()
}

/// Whether the words of `width` bytes at `place` and after it still lead to functions from their own places, or from one of
/// `held`, the sorted addresses that pointers hold.
fn holds_from(pair: ImagePair<'_>, place: Address, width: u8, held: &[Address]) -> bool {
    let first = Address(place.0.saturating_sub(MAX_WORDS * u64::from(width)));
    let from = held.partition_point(|&base| base < first);
    let to = held.partition_point(|&base| base <= place);
    let from_base = |&base: &Address| {
        Neighbours::at(pair, base, place, width).is_some_and(|both| both.stale(pair).is_none())
    };
    let from_itself = [place, place.plus(u64::from(width))].into_iter().all(|place| {
        let own = TableWord::at(pair, place, place, width);
        own.is_some_and(|own| leads_to_function(pair, &own) && own.is_followed(pair))
    });
    from_itself || held[from..to].iter().any(from_base)
}

/// Whether a word leads to the start of a function.
fn leads_to_function(pair: ImagePair<'_>, word: &TableWord) -> bool {
    pair.moves.containing(word.target).is_some_and(|function| function.old_start == word.target)
}
