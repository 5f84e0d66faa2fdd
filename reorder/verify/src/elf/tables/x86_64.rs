//! Tables of x86-64 code, checked by what value analysis proves for each computed jump and call.
//!
//! Where the index is bounded, all words within the bound had to follow. Those within a range of more than four values that no
//! comparison states, and those past the symbol of a variable, must also be shown to be entries, as where the end is unknown. Where
//! nothing bounds the index, the last changed word must be *necessary*, leading to code that nothing else reaches, or `open` finds a
//! weaker reason. And each word that stays must be *possible*: the words after the changed ones do not lead to an instruction of the
//! same function that moved. Such a table ends at the latest at the start of another table, at the end of the section, and at a word
//! that leads to no instruction.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::evidence::Evidence;
use super::extent::{End, Table};
use super::names::{held_addresses, named_places, variable_starts};
use super::shapes::{Shape, merged};
use super::words::{TableWord, is_own_distance, may_be_entered};
use super::{TableOutcome, disjoint};
use crate::elf::dispatch::{Endings, Entry, Follow, KeptRegisters, Region, Thunks};
use crate::elf::functions::CodeOutcome;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::written_places;
use crate::exception_table::CallSite;
use reorder_base::address::Address;

/// Compilers write no longer tables; this bounds the work for hostile ones without an end.
const MAX_WORDS: u64 = 1 << 16;
/// Compilers choose a table for no fewer cases: LLVM for four (`min-jump-table-entries`), GCC on x86 for five. GCC can
/// find some of them unreachable later, so the writer does not rely on this.
const FEWEST_CASES: u64 = 4;
/// The limit of a table without a bound.
const LAST: Address = Address(u64::MAX);

/// Checks all tables of the image; gives also the words that jumps read or that followed, ascending and disjoint.
pub(super) fn check(pair: ImagePair<'_>, code: &CodeOutcome) -> (TableOutcome, Vec<Range<Address>>) {
    if code.dispatching.is_empty() {
        return Default::default();
    }
    analysed(pair, code, Follow::Distances, |tables, shapes| check_shapes(tables, shapes, &code.formed))
}

/// Gives `then` the result of the value analysis of every function with computed jumps.
pub(super) fn analysed<T>(
    pair: ImagePair<'_>,
    code: &CodeOutcome,
    follow: Follow,
    then: impl FnOnce(Tables<'_>, Vec<(u32, Shape)>) -> T,
) -> T {
    let evidence = Evidence::of(pair);
    let thunks = Thunks::of(pair.old, pair.moves);
    let mut entries = code.entries.clone();
    entries.par_sort_unstable();
    let endings = Endings::of(pair.old, pair.moves, &code.last_calls);
    let kept = KeptRegisters::of(pair.old);
    let variables = variable_starts(pair);
    let mut tables = Tables {
        pair,
        evidence: &evidence,
        thunks: &thunks,
        endings: &endings,
        kept: &kept,
        entries: &entries,
        references: &code.references,
        named: named_places(pair, &code.references, &variables),
        variables,
        written: written_places(pair.old).into_iter().map(Address).collect(),
        starts: Vec::new(),
        possible: Vec::new(),
        follow,
    };
    let shapes = tables.shapes(&code.dispatching);
    then(tables, shapes)
}

fn check_shapes(
    mut tables: Tables<'_>,
    shapes: Vec<(u32, Shape)>,
    formed: &[Address],
) -> (TableOutcome, Vec<Range<Address>>) {
    // Words before the first one that is read may be of the table, too.
    let starts = |table: &Table| [(table.start, table.owner), (table.origin(), table.owner)];
    tables.possible = shapes.iter().flat_map(|(_, shape)| &shape.tables).flat_map(starts).collect();
    tables.possible.sort_unstable();
    tables.possible.dedup();
    let mut all = merged(&shapes);
    all.iter_mut().for_each(|table| table.end = tables.possible_end(table));
    // A certain table of which some first words are never read replaces the candidate at its anchor.
    let anchors: BTreeSet<Address> =
        all.iter().filter(|table| !table.is_candidate).map(|table| table.anchor).collect();
    all.retain(|table| !table.is_candidate || !anchors.contains(&table.start));
    let checked: Vec<TableOutcome> = all
        .par_iter()
        .map(|table| {
            let at = shapes.binary_search_by_key(&table.owner, |(owner, _)| *owner);
            let shape = at.ok().and_then(|at| shapes.get(at)).map(|(_, shape)| shape);
            tables.check(table, shape)
        })
        .collect();
    let mut outcome = TableOutcome::default();
    for found in checked {
        outcome.append(found);
    }
    let known = known_words(&all, &outcome);
    if shapes.iter().any(|(_, shape)| !shape.from_anywhere.is_empty()) {
        let held = held_addresses(tables.pair, formed);
        let stale = tables.check_loaded_bases(&shapes, &held, &known);
        outcome.differences.extend(stale);
    }
    (outcome, known)
}

/// Words that followed their targets, and those of tables whose ends are proven; ascending and disjoint.
fn known_words(tables: &[Table], outcome: &TableOutcome) -> Vec<Range<Address>> {
    let proven = tables.iter().filter_map(|table| match table.end {
        End::Proven(count) if !table.is_candidate => {
            Some(table.start..table.start.plus(count.min(MAX_WORDS) * u64::from(table.width)))
        }
        _ => None,
    });
    disjoint(outcome.followed.iter().cloned().chain(proven).collect())
}

/// The input of all checks of tables.
pub(super) struct Tables<'a> {
    pub(super) pair: ImagePair<'a>,
    pub(super) evidence: &'a Evidence<'a>,
    pub(super) thunks: &'a Thunks,
    pub(super) endings: &'a Endings<'a>,
    pub(super) kept: &'a KeptRegisters<'a>,
    /// Jumps into the middle of functions, sorted.
    pub(super) entries: &'a [Entry],
    /// Addresses of data that code refers to, sorted.
    pub(super) references: &'a [Address],
    /// `references`, and what pointers, exported symbols and `variables` name, sorted.
    pub(super) named: Vec<Address>,
    /// Where variables begin, sorted.
    pub(super) variables: Vec<Address>,
    /// Places that the loader writes to, which hold no distances, sorted.
    pub(super) written: Vec<Address>,
    /// Where tables start for certain, sorted.
    pub(super) starts: Vec<Address>,
    /// Addresses where tables start or may start, each with the index of the function, sorted.
    pub(super) possible: Vec<(Address, u32)>,
    /// Which tables the value analysis follows.
    pub(super) follow: Follow,
}

impl Tables<'_> {
    pub(super) fn region(&self, owner: u32) -> Option<Region> {
        Region::of(self.pair.old, self.pair.moves, self.entries, owner)
    }

    pub(super) fn call_sites(&self, region: &Region) -> Vec<CallSite> {
        let members =
            region.members.iter().filter_map(|&member| self.pair.moves.as_slice().get(member as usize));
        members.flat_map(|range| self.evidence.call_sites(range.old_start.0, range.size)).collect()
    }

    pub(super) fn pads(&self, region: &Region) -> Vec<u64> {
        let mut pads: Vec<u64> = self.call_sites(region).iter().map(|site| site.pad).collect();
        pads.sort_unstable();
        pads.dedup();
        pads
    }

    /// The start of the next table that is certain to be one.
    fn next_start(&self, table: &Table) -> Address {
        let first = table.certain_start();
        let after = self.starts.partition_point(|&start| start <= first);
        self.starts.get(after).copied().unwrap_or(LAST)
    }

    /// The end of a table. One inside another table is only a limit: the compiler knew more than the comparison says. Rust may compare
    /// only the marks above a value's few cases.
    fn possible_end(&self, table: &Table) -> End {
        let end = |count: u64| table.start.plus(count.min(MAX_WORDS) * u64::from(table.width));
        match table.end {
            End::Proven(count) if end(count) > self.next_start(table) => End::Unknown(count),
            end => end,
        }
    }

    /// Checks one table.
    fn check(&self, table: &Table, shape: Option<&Shape>) -> TableOutcome {
        let Some(owner) = self.pair.moves.as_slice().get(table.owner as usize) else {
            return TableOutcome::default();
        };
        let next = self.next_start(table);
        let width = u64::from(table.width);
        let listed = self.evidence.is_listed(table.start);
        let (most, limit) = match table.end {
            End::Proven(count) => (count, LAST),
            End::Calculated(count) | End::Unknown(count) => (count, next),
        };
        let mut read = Vec::new();
        let mut are_own_distances = table.is_candidate && table.width == 4;
        for number in 0..most.min(MAX_WORDS) {
            let place = table.start.plus(number * width);
            let word = TableWord::at(self.pair, table.anchor, place, table.width);
            let is_word = place < limit && self.written.binary_search(&place).is_err();
            let Some(word) = word.filter(|_| is_word) else { break };
            let is_known = listed.is_none() || self.evidence.is_listed(place) == Some(true);
            if !is_known || !self.is_entry(table, owner.old_start..owner.old_end(), &word) {
                break;
            }
            if number > 0 && matches!(table.end, End::Unknown(_)) && self.may_end_at(table, place) {
                break;
            }
            are_own_distances = are_own_distances && is_own_distance(self.pair, place);
            if number > 0 && are_own_distances && self.leads_by_chance(table, &word) {
                break;
            }
            read.push(word);
        }
        let is_still = |word: &TableWord| !word.has_changed && word.is_followed(self.pair);
        if read.iter().all(is_still) {
            let followed =
                self.followed_before(table, owner.old_start..owner.old_end()).into_iter().collect();
            return TableOutcome { words: read.len(), followed, ..TableOutcome::default() };
        }
        let has_inside = |names: &[Address]| table.words_before_name(names) < read.len();
        let is_certain = match table.end {
            End::Proven(_) => true,
            End::Calculated(count) => read.len() as u64 == count && !has_inside(&self.named),
            End::Unknown(_) => listed == Some(true),
        };
        let may_be_shorter = match table.end {
            End::Proven(_) => has_inside(&self.variables),
            // Otherwise `check_open` has run.
            End::Calculated(count) => is_certain && count > FEWEST_CASES,
            End::Unknown(_) => false,
        };
        if let Some(outcome) = self.check_counted(table, &read, shape) {
            return outcome;
        }
        let mut outcome = match is_certain {
            true => self.check_with_unread(table, &read, next, shape),
            false => self.check_open(table, &read, shape),
        };
        if may_be_shorter && outcome.differences.is_empty() {
            // Each word that the index can reach had to follow. But the compiler may have known more about the index than its code
            // shows. Then the table is shorter, and the last of these words are data that had to stay.
            outcome.differences = self.check_open(table, &read, shape).differences;
        }
        outcome.followed.extend(self.followed_before(table, owner.old_start..owner.old_end()));
        outcome
    }

    /// Checks a candidate against the lengths of unknown tables. If all words up to such a length followed and lead into the
    /// function, the candidate is that table; `None` otherwise.
    fn check_counted(
        &self,
        table: &Table,
        read: &[TableWord],
        shape: Option<&Shape>,
    ) -> Option<TableOutcome> {
        let owner = self.pair.moves.as_slice().get(table.owner as usize)?;
        let is_home = |word: &TableWord| (owner.old_start..owner.old_end()).contains(&word.target);
        let counts = shape.filter(|_| table.is_candidate).map(|shape| &shape.counts)?;
        let fitting = counts.iter().filter_map(|&count| read.get(..usize::try_from(count).ok()?));
        let words = fitting
            .filter(|words| words.iter().all(|word| is_home(word) && word.is_followed(self.pair)))
            .max_by_key(|words| words.len())?;
        let certain = self.check_certain(table, words);
        let changed_after = read[words.len()..].iter().any(|word| word.has_changed);
        (!changed_after).then_some(certain)
    }

    /// The words before a table that no index reads; they may follow as those of the table do.
    fn followed_before(&self, table: &Table, owner: Range<Address>) -> Option<Range<Address>> {
        let width = u64::from(table.width);
        let before = (1..=table.unread.min(MAX_WORDS)).map_while(|number| {
            let place = Address(table.start.0.wrapping_sub(number * width));
            let word = TableWord::at(self.pair, table.anchor, place, table.width)?;
            (word.is_followed(self.pair) && self.is_entry(table, owner.clone(), &word)).then_some(place)
        });
        before.last().map(|first| first..table.start)
    }

    /// Whether `word` of a candidate leads to the end of another function or into it by chance, where it is counted from the start of the
    /// candidate: distances from their own places do.
    fn leads_by_chance(&self, table: &Table, word: &TableWord) -> bool {
        let is_home = || self.region(table.owner).is_none_or(|region| region.contains(word.target.0));
        !word.is_followed(self.pair) && !word.leads_to_function(self.pair) && !is_home()
    }

    /// Whether a word can be an entry: it leads to an instruction; a distance from code leads to the start of a function or
    /// into `owner`.
    fn is_entry(&self, table: &Table, owner: Range<Address>, word: &TableWord) -> bool {
        let Some(home) = self.pair.moves.containing(word.target) else {
            // Impossible cases lead to the end of the function or of one of its parts, and any function may be such a part.
            return self.pair.moves.ending_at(word.target).is_some();
        };
        // Distances from code lead to starts of functions, or stay in the function.
        let is_sum = table.anchor != table.origin();
        if is_sum && home.old_start != word.target && home.old_start != owner.start {
            return false;
        }
        may_be_entered(self.pair, home, word.target)
    }

    /// Checks a table of which every word is an entry.
    fn check_certain(&self, table: &Table, read: &[TableWord]) -> TableOutcome {
        let stale = read.iter().find(|word| !word.is_followed(self.pair));
        let end = stale.or(read.last()).map_or(table.start, |word| word.place);
        let whole = if stale.is_some() { end } else { end.plus(u64::from(table.width)) };
        TableOutcome {
            words: read.len(),
            differences: stale.map(|word| word.stale(self.pair, table.start)).into_iter().collect(),
            followed: Some(table.start..whole).filter(|range| !range.is_empty()).into_iter().collect(),
        }
    }

    /// Every word is an entry, and words after them may be: the compiler knew less about the index than the analysis does,
    /// and wrote words that are never read. Such words reach up to a count that the code compares with, or up to the last
    /// one that leads to code that nothing else reaches; code names none of them.
    fn check_with_unread(
        &self,
        table: &Table,
        read: &[TableWord],
        limit: Address,
        shape: Option<&Shape>,
    ) -> TableOutcome {
        let mut outcome = self.check_certain(table, read);
        let width = u64::from(table.width);
        let after = |number: u64| {
            let place = table.start.plus((read.len() as u64 + number) * width);
            TableWord::at(self.pair, table.anchor, place, table.width).filter(|_| place < limit)
        };
        if !outcome.differences.is_empty() || !after(0).is_some_and(|word| word.has_changed) {
            return outcome;
        }
        let Some(region) = self.region(table.owner) else { return outcome };
        let is_named = |word: &TableWord| self.named.binary_search(&word.place).is_ok();
        let is_entry = |word: &TableWord| {
            region.position(word.target.0).is_some() && word.is_followed(self.pair) && !is_named(word)
        };
        let unread: Vec<TableWord> = (0..MAX_WORDS).map_while(after).take_while(is_entry).collect();
        let least = read.len() as u64 + table.unread;
        let counts = region.compared_counts().into_iter().filter_map(|count| count.checked_sub(least));
        let counted = counts.filter(|&count| count <= unread.len() as u64).max().unwrap_or(0);
        let reached = self.reached_otherwise(table, &region, shape, read);
        let is_necessary =
            |word: &TableWord| region.position(word.target.0).is_some_and(|position| !reached[position]);
        let necessary = unread.iter().rposition(is_necessary).map_or(0, |last| last as u64 + 1);
        let count = counted.max(necessary);
        if count > 0 {
            let first = table.start.plus(read.len() as u64 * width);
            outcome.followed.push(first..first.plus(count * width));
        }
        outcome
    }
}
