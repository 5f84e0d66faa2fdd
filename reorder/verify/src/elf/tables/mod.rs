//! Words in data that computed jumps and calls add to an address.
//!
//! ```text
//! functions with a computed jump ─> what their code proves ─┬─> words that had to follow and did not: differences
//!                                                           └─> Explained: words that may have changed
//! ```
//!
//! The check has two directions. Every word that a dispatch can read must have followed its target. And every change in data
//! must be in a word that some dispatch reads: other data must not change.

mod aarch64;
mod dispatches;
mod evidence;
mod extent;
mod held_places;
mod loaded_bases;
mod named_distances;
mod names;
mod open;
mod shapes;
mod stored_distances;
mod undescribed;
mod words;
mod x86_64;

pub(super) use dispatches::{Dispatches, Jump, KnownJump, with_dispatches};

use std::ops::Range;

use super::functions::CodeOutcome;
use super::pair::{ImagePair, Ledger};
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::Address;

/// The result of checking tables.
#[derive(Debug, Default)]
struct TableOutcome {
    words: usize,
    differences: Vec<Difference>,
    /// Address ranges of whole words that followed their targets.
    followed: Vec<Range<Address>>,
}

impl TableOutcome {
    fn append(&mut self, mut other: Self) {
        self.words += other.words;
        self.differences.append(&mut other.differences);
        self.followed.append(&mut other.followed);
    }
}

/// Places in data that may change, because every word there followed its target.
#[derive(Debug, Default)]
pub(super) struct Explained {
    /// File positions, ascending and disjoint.
    ranges: Vec<Range<usize>>,
}

impl Explained {
    /// The first file position of `run` that is not in a followed word.
    pub(super) fn unexplained(&self, run: &Range<usize>) -> Option<usize> {
        let mut position = run.start;
        let mut at = self.ranges.partition_point(|range| range.end <= position);
        while position < run.end {
            match self.ranges.get(at) {
                Some(range) if range.start <= position => position = range.end,
                _ => return Some(position),
            }
            at += 1;
        }
        None
    }
}

/// Checks the words of all tables; gives those that may change.
pub(super) fn check_tables(pair: ImagePair<'_>, code: &CodeOutcome, ledger: &mut Ledger<'_>) -> Explained {
    let (outcome, known) = match pair.old.processor {
        Processor::Aarch64 => {
            let outcome = aarch64::check(pair, code);
            let known = disjoint(outcome.followed.clone());
            (outcome, known)
        }
        Processor::X86_64 => x86_64::check(pair, code),
    };
    ledger.findings.checked(Check::JumpTables, "words", outcome.words);
    let stale = named_distances::stale_distances(pair, &code.references, &known);
    let stored = stored_distances::stored_distances(pair, &code.naming, &known);
    for difference in outcome.differences.into_iter().chain(stale).chain(stored) {
        ledger.findings.differs(difference);
    }
    let in_file = |range: &Range<Address>| {
        let start = usize::try_from(pair.old.offset_of(range.start.0)?.0).ok()?;
        Some(start..start.checked_add(usize::try_from(range.end.distance_from(range.start)).ok()?)?)
    };
    Explained { ranges: disjoint(outcome.followed.iter().filter_map(in_file).collect()) }
}

/// The same places as ranges that are ascending and do not touch each other.
fn disjoint<T: Copy + Ord>(mut ranges: Vec<Range<T>>) -> Vec<Range<T>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_a_range_is_explained() {
        let explained = Explained { ranges: vec![4..12, 20..24] };
        for (run, expected) in
            [(4..12, None), (5..6, None), (3..5, Some(3)), (10..14, Some(12)), (24..25, Some(24))]
        {
            assert_eq!(explained.unexplained(&run), expected, "{run:?}");
        }
    }
}
