//! Tables of x86-64 code, by what value analysis proves of each computed jump and call.
//!
//! Where the end is proven, exactly those words had to follow. Where it is not, each changed word must be *necessary*: the
//! last one leads to code that nothing else reaches, or repeats an earlier word; and each word that stays must be *possible*:
//! what comes after the changed ones does not lead to an instruction of the same function that moved. Such a table surely
//! ends at the start of another table, at the end of the section, and at a word that leads to no instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;

use super::TableOutcome;
use super::evidence::Evidence;
use super::extent::{End, Table, end_of};
use super::words::{TableWord, may_be_entered};
use crate::address::Address;
use crate::verify::dispatch::{Endings, Entry, Region, Surroundings, Thunks, Word, analyse, targets};
use crate::verify::functions::CodeOutcome;
use crate::verify::pair::ImagePair;
use crate::verify::report::Difference;

/// Longer tables are not written by compilers; a bound for hostile ones without an end.
const MAX_WORDS: u64 = 1 << 16;

/// What value analysis says of one function.
#[derive(Debug, Default)]
struct Shape {
    tables: Vec<Table>,
    /// Jumps whose tables are known: place, address that is added, word.
    jumps: Vec<(u64, u64, Word)>,
    /// How many words the other jumps read of tables that are not known, where that is certain.
    counts: Vec<u64>,
    /// Whether all jumps are understood.
    is_clear: bool,
}

/// Checks all tables of the image.
pub(super) fn check(pair: ImagePair<'_>, code: &CodeOutcome) -> TableOutcome {
    if code.dispatching.is_empty() {
        return TableOutcome::default();
    }
    let evidence = Evidence::of(pair);
    let thunks = Thunks::of(pair.old, pair.moves);
    let mut entries = code.entries.clone();
    entries.par_sort_unstable();
    let endings = Endings::of(pair.old, pair.moves, &code.last_calls);
    let mut tables = Tables {
        pair,
        evidence: &evidence,
        thunks: &thunks,
        endings: &endings,
        entries: &entries,
        references: &code.references,
        starts: Vec::new(),
        possible: Vec::new(),
    };
    let shapes = tables.shapes(&code.dispatching);
    tables.possible = shapes.iter().flat_map(|(_, shape)| &shape.tables).map(|table| (table.start, table.owner)).collect();
    tables.possible.sort_unstable();
    tables.possible.dedup();
    let mut all = merged(&shapes);
    // What is certain of a table whose first words are never read says all of it.
    let anchors: BTreeSet<u64> = all.iter().filter(|table| !table.is_candidate).map(|table| table.anchor).collect();
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
    outcome
}

/// The tables of all functions, each once, by place.
fn merged(shapes: &[(u32, Shape)]) -> Vec<Table> {
    let mut all: Vec<Table> = shapes.iter().flat_map(|(_, shape)| &shape.tables).copied().collect();
    all.sort_by_key(|table| (table.key(), table.is_candidate, table.owner));
    all.dedup_by(|next, last| {
        let is_same = next.key() == last.key();
        // What code certainly jumps by is no mere candidate.
        if is_same && !next.is_candidate {
            last.end = last.end.joined(next.end);
        }
        is_same
    });
    all
}

/// Where tables start that code jumps by, sorted. One table starts once, however many of its first words a jump leaves out.
fn certain_starts(shapes: &[(u32, Shape)]) -> Vec<u64> {
    let mut first: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for table in shapes.iter().flat_map(|(_, shape)| &shape.tables).filter(|table| !table.is_candidate) {
        let start = first.entry((table.anchor, table.origin())).or_insert(table.start);
        *start = table.start.min(*start);
    }
    let mut starts: Vec<u64> = first.into_values().collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

struct Tables<'a> {
    pair: ImagePair<'a>,
    evidence: &'a Evidence<'a>,
    thunks: &'a Thunks,
    endings: &'a Endings<'a>,
    /// Jumps into the middle of functions, sorted.
    entries: &'a [Entry],
    /// Addresses of data that code refers to, sorted.
    references: &'a [u64],
    /// Where tables start for certain, sorted.
    starts: Vec<u64>,
    /// Where tables of functions start or may start, sorted: the address, and the position of the function.
    possible: Vec<(u64, u32)>,
}

impl Tables<'_> {
    fn region(&self, owner: u32) -> Option<Region> {
        Region::of(self.pair.old, self.pair.moves, self.entries, owner)
    }

    fn pads(&self, region: &Region) -> Vec<u64> {
        let members = region.members.iter().filter_map(|&member| self.pair.moves.as_slice().get(member as usize));
        members.flat_map(|range| self.evidence.pads(range.old_start.0, range.size)).collect()
    }

    /// What the code of functions says, by position.
    ///
    /// Where a table without a known end seems to run on into the next one, it seems to lead to places that it does not lead
    /// to, and code that jumps by the next one may not be understood. So it is first taken to end wherever code names data.
    /// That can only lose ways, and what jumps by a table on fewer ways does so on all: this gives the starts of tables. Only
    /// they end tables when the code is looked at again.
    fn shapes(&mut self, owners: &[u32]) -> Vec<(u32, Shape)> {
        self.starts = self.references.to_vec();
        let shape = |tables: &Self, owner: u32| tables.shape(owner).unwrap_or_default();
        let mut shapes: Vec<(u32, Shape)> = owners.par_iter().map(|&owner| (owner, shape(self, owner))).collect();
        let mut starts = certain_starts(&shapes);
        self.starts.clone_from(&starts);
        let is_proven = |table: &Table| matches!(table.end, End::Proven(_));
        let open = shapes.par_iter_mut().filter(|(_, shape)| !shape.is_clear || !shape.tables.iter().all(is_proven));
        open.for_each(|(owner, found)| *found = shape(self, *owner));
        starts.append(&mut certain_starts(&shapes));
        starts.sort_unstable();
        starts.dedup();
        self.starts = starts;
        shapes
    }

    /// What the code of a function says.
    fn shape(&self, owner: u32) -> Option<Shape> {
        let region = self.region(owner)?;
        let around = Surroundings { thunks: self.thunks, endings: self.endings, starts: &self.starts };
        let found = analyse(&region, self.pair.old, around, &self.pads(&region));
        let mut shape = Shape::default();
        let mut is_clear = found.is_complete;
        for computed in &found.computed {
            match computed.sum {
                Some((anchor, word)) => {
                    shape.tables.push(Table::of(anchor, word, owner));
                    if !computed.is_call {
                        shape.jumps.push((computed.place, anchor, word));
                    }
                }
                None if computed.is_call => {}
                None => {
                    is_clear = false;
                    let (least, end) = end_of(computed.index);
                    shape.counts.extend(match end {
                        End::Proven(count) => Some(least.saturating_add(count)),
                        _ => None,
                    });
                }
            }
        }
        if !is_clear {
            // Some jump goes by a table that is not known: any that the function reads, and any data that it names.
            let reads = found.reads.iter().filter(|word| word.width == 4).map(|word| word.table);
            let named = region.named_data(self.pair.old);
            shape.tables.extend(reads.chain(named).map(|start| Table::candidate(start, owner)));
        }
        shape.is_clear = is_clear;
        Some(shape)
    }

    /// Checks one table.
    fn check(&self, table: &Table, shape: Option<&Shape>) -> TableOutcome {
        let Some(owner) = self.pair.moves.as_slice().get(table.owner as usize) else {
            return TableOutcome::default();
        };
        let after = self.starts.partition_point(|&start| start <= table.start);
        let next = self.starts.get(after).copied().unwrap_or(u64::MAX);
        let width = u64::from(table.width);
        let listed = self.evidence.is_listed(table.start);
        let (most, limit) = match table.end {
            End::Proven(count) => (count, u64::MAX),
            End::Calculated(count) | End::Unknown(count) => (count, next),
        };
        let mut read = Vec::new();
        for number in 0..most.min(MAX_WORDS) {
            let place = table.start.wrapping_add(number * width);
            let word = TableWord::at(self.pair, table.anchor, place, table.width);
            let Some(word) = word.filter(|_| place < limit) else { break };
            let is_known = listed.is_none() || self.evidence.is_listed(place) == Some(true);
            if !is_known || !self.is_entry(table, owner.old_start.0..owner.old_end().0, &word) {
                break;
            }
            read.push(word);
        }
        let is_still = |word: &TableWord| !word.has_changed && word.is_followed(self.pair);
        if read.iter().all(is_still) {
            let followed = self.followed_before(table, owner.old_start.0..owner.old_end().0).into_iter().collect();
            return TableOutcome { words: read.len(), followed, ..TableOutcome::default() };
        }
        let is_plain = |count: u64| {
            let end = table.start.wrapping_add(count * width);
            let inside = self.references.partition_point(|&reference| reference <= table.start);
            read.len() as u64 == count && self.references.get(inside).is_none_or(|&reference| reference >= end)
        };
        let is_certain = match table.end {
            End::Proven(_) => true,
            End::Calculated(count) => is_plain(count),
            End::Unknown(_) => listed == Some(true),
        };
        if let Some(outcome) = self.check_counted(table, &read, shape) {
            return outcome;
        }
        let mut outcome = match is_certain {
            true => self.check_with_unread(table, &read, next, shape),
            false => self.check_open(table, &read, shape),
        };
        outcome.followed.extend(self.followed_before(table, owner.old_start.0..owner.old_end().0));
        outcome
    }

    /// A table that code only may jump by, as long as one of the jumps says that theirs is, with all words in the function:
    /// it is that table if all of them followed.
    fn check_counted(&self, table: &Table, read: &[TableWord], shape: Option<&Shape>) -> Option<TableOutcome> {
        let owner = self.pair.moves.as_slice().get(table.owner as usize)?;
        let is_home = |word: &TableWord| (owner.old_start.0..owner.old_end().0).contains(&word.target);
        let counts = shape.filter(|_| table.is_candidate).map(|shape| &shape.counts)?;
        let fitting = counts.iter().filter_map(|&count| read.get(..usize::try_from(count).ok()?));
        let words = fitting
            .filter(|words| words.iter().all(|word| is_home(word) && word.is_followed(self.pair)))
            .max_by_key(|words| words.len())?;
        let certain = self.check_certain(table, words);
        let changed_after = read[words.len()..].iter().any(|word| word.has_changed);
        (!changed_after).then_some(certain)
    }

    /// The words in front of a table that no index reads: they may have followed, as those of the table did.
    fn followed_before(&self, table: &Table, owner: Range<u64>) -> Option<Range<u64>> {
        let width = u64::from(table.width);
        let before = (1..=table.unread.min(MAX_WORDS)).map_while(|number| {
            let place = table.start.wrapping_sub(number * width);
            let word = TableWord::at(self.pair, table.anchor, place, table.width)?;
            (word.is_followed(self.pair) && self.is_entry(table, owner.clone(), &word)).then_some(place)
        });
        before.last().map(|first| first..table.start)
    }

    /// Whether a word can be an entry: it leads to an instruction, and what is called is a function.
    fn is_entry(&self, table: &Table, owner: Range<u64>, word: &TableWord) -> bool {
        let Some(home) = self.pair.moves.containing(Address(word.target)) else {
            return self.pair.moves.ending_at(Address(word.target)).is_some_and(|home| home.old_end().0 == owner.end);
        };
        // Distances that count from code lead to starts of functions, or stay in one.
        let is_sum = table.anchor != table.origin();
        if is_sum && home.old_start.0 != word.target && home.old_start.0 != owner.start {
            return false;
        }
        may_be_entered(self.pair, home, word.target)
    }

    /// Every word is an entry.
    fn check_certain(&self, table: &Table, read: &[TableWord]) -> TableOutcome {
        let stale = read.iter().find(|word| !word.is_followed(self.pair));
        let end = stale.or(read.last()).map_or(table.start, |word| word.place);
        let whole = if stale.is_some() { end } else { end.wrapping_add(u64::from(table.width)) };
        TableOutcome {
            words: read.len(),
            differences: stale.map(|word| word.stale(self.pair, table.start)).into_iter().collect(),
            followed: [table.start..whole].into_iter().filter(|range| !range.is_empty()).collect(),
        }
    }

    /// Every word is an entry, and words after them may be: the compiler knew less of the index than the analysis, and wrote
    /// words that are never read. Those up to a count that the code compares with are such, and those up to the last that
    /// leads to code that nothing else reaches; code names none of them.
    fn check_with_unread(&self, table: &Table, read: &[TableWord], limit: u64, shape: Option<&Shape>) -> TableOutcome {
        let mut outcome = self.check_certain(table, read);
        let width = u64::from(table.width);
        let after = |number: u64| {
            let place = table.start.wrapping_add((read.len() as u64 + number) * width);
            TableWord::at(self.pair, table.anchor, place, table.width).filter(|_| place < limit)
        };
        if !outcome.differences.is_empty() || !after(0).is_some_and(|word| word.has_changed) {
            return outcome;
        }
        let Some(region) = self.region(table.owner) else { return outcome };
        let is_named = |word: &TableWord| self.references.binary_search(&word.place).is_ok();
        let is_entry = |word: &TableWord| {
            region.position(word.target).is_some() && word.is_followed(self.pair) && !is_named(word)
        };
        let unread: Vec<TableWord> = (0..MAX_WORDS).map_while(after).take_while(is_entry).collect();
        let least = read.len() as u64 + table.unread;
        let counts = region.compared_counts().into_iter().filter_map(|count| count.checked_sub(least));
        let counted = counts.filter(|&count| count <= unread.len() as u64).max().unwrap_or(0);
        let reached = self.reached_otherwise(table, &region, shape, read);
        let is_necessary = |word: &TableWord| region.position(word.target).is_some_and(|position| !reached[position]);
        let necessary = unread.iter().rposition(is_necessary).map_or(0, |last| last as u64 + 1);
        let count = counted.max(necessary);
        if count > 0 {
            let first = table.start.wrapping_add(read.len() as u64 * width);
            outcome.followed.push(first..first.wrapping_add(count * width));
        }
        outcome
    }

    /// The words are entries up to some point.
    fn check_open(&self, table: &Table, read: &[TableWord], shape: Option<&Shape>) -> TableOutcome {
        let changed = read.iter().rposition(|word| word.has_changed).map_or(0, |last| last + 1);
        let (taken, rest) = read.split_at(changed);
        let mut outcome = TableOutcome { words: changed, ..TableOutcome::default() };
        if let Some(word) = taken.iter().find(|word| !word.is_followed(self.pair)) {
            outcome.differences.push(word.stale(self.pair, table.start));
            return outcome;
        }
        let Some(region) = self.region(table.owner) else { return outcome };
        let reached = self.reached_otherwise(table, &region, shape, &[]);
        let is_necessary = |word: &TableWord| match region.position(word.target) {
            Some(position) => !reached[position],
            None => self.evidence.is_orphan(word.target),
        };
        if let Some(word) = self.unnecessary(taken, &is_necessary)
            && !self.is_counted(table, read, changed, &region)
            && !self.ends_by_itself(table, read, changed, &region)
        {
            outcome.differences.push(word.difference(
                self.pair,
                table.start,
                "no change: nothing shows that the table reaches this far",
            ));
            return outcome;
        }
        if let Some(difference) = self.left_behind(table, rest, changed == 0, &region, &is_necessary) {
            outcome.differences.push(difference);
        }
        if let Some(last) = taken.last() {
            outcome.followed.push(table.start..last.place.wrapping_add(u64::from(table.width)));
        }
        outcome
    }

    /// Whether what comes after the changed words can be none of the table: code refers to it, or it leads to no instruction.
    /// The weakest reason; it is taken only where all changed words stay in the function, and where the analysis knows no end.
    fn ends_by_itself(&self, table: &Table, read: &[TableWord], changed: usize, region: &Region) -> bool {
        let end = table.start.wrapping_add(changed as u64 * u64::from(table.width));
        let owner = self.pair.moves.as_slice().get(table.owner as usize);
        let is_after = |word: &TableWord| owner.is_some_and(|owner| owner.old_end().0 == word.target);
        let is_home = |word: &TableWord| region.position(word.target).is_some() || is_after(word);
        let is_end = || self.references.binary_search(&end).is_ok() || read[changed..].iter().all(|word| word.is_followed(self.pair));
        matches!(table.end, End::Unknown(_)) && read[..changed].iter().all(is_home) && is_end()
    }

    /// Whether the code compares something with the number of words that changed; those after them up to that number led to
    /// what stayed.
    fn is_counted(&self, table: &Table, read: &[TableWord], changed: usize, region: &Region) -> bool {
        let (least, words) = (changed as u64 + table.unread, read.len() as u64 + table.unread);
        let still = read[changed..].iter().take_while(|word| word.is_followed(self.pair)).count() as u64;
        let counts = region.compared_counts();
        counts.iter().any(|&count| (least..=(least + still).min(words)).contains(&count))
    }

    /// The first changed word that nothing shows to be an entry.
    fn unnecessary<'w>(
        &self,
        taken: &'w [TableWord],
        is_necessary: &impl Fn(&TableWord) -> bool,
    ) -> Option<&'w TableWord> {
        let certain = taken.iter().rposition(is_necessary).map_or(0, |last| last + 1);
        let earlier = &taken[..certain];
        let repeats = |word: &&TableWord| earlier.iter().any(|before| before.target == word.target);
        taken[certain..].iter().find(|word| !repeats(word))
    }

    /// A word that stayed although it can only be understood as an entry that had to follow.
    fn left_behind(
        &self,
        table: &Table,
        rest: &[TableWord],
        is_all: bool,
        region: &Region,
        is_necessary: &impl Fn(&TableWord) -> bool,
    ) -> Option<Difference> {
        let is_stale = |word: &&TableWord| !word.is_followed(self.pair);
        let end = rest.iter().position(|word| self.starts_another(word.place, region)).unwrap_or(rest.len());
        let rest = &rest[..end];
        let first = rest.first()?;
        let leads_home = region.contains(first.target);
        // The first of all words is one; of an address that is only named, nothing is.
        let is_entry = if table.is_candidate { is_all && leads_home } else { leads_home };
        let stale = Some(first).filter(is_stale).filter(|_| is_entry).or_else(|| {
            let is_demanded = |word: &&TableWord| !table.is_candidate && is_necessary(word);
            // Up to a word that must be one, all are.
            let last = rest.iter().rposition(|word| is_demanded(&word)).map_or(0, |last| last + 1);
            rest[..last].iter().find(is_stale)
        });
        stale.map(|word| word.stale(self.pair, table.start))
    }

    /// Whether a table of another function may start at `place`: that function names the place, and the word there leads
    /// into it when it counts from there. No function reads words of both.
    fn starts_another(&self, place: u64, region: &Region) -> bool {
        let first = self.possible.partition_point(|&(start, _)| start < place);
        let here = self.possible[first..].iter().take_while(|&&(start, _)| start == place);
        let target = TableWord::at(self.pair, place, place, 4).map(|word| word.target);
        here.filter(|(_, owner)| !region.members.contains(owner)).any(|&(_, owner)| {
            let home = self.pair.moves.as_slice().get(owner as usize).zip(target);
            home.is_some_and(|(home, target)| {
                (home.old_start.0..home.old_end().0).contains(&target) && may_be_entered(self.pair, home, target)
            })
        })
    }

    /// The instructions of a region that control reaches without the table, but for `taken` of its words.
    fn reached_otherwise(
        &self,
        table: &Table,
        region: &Region,
        shape: Option<&Shape>,
        taken: &[TableWord],
    ) -> Vec<bool> {
        let others: Vec<(u64, u64, Word)> = shape
            .into_iter()
            .flat_map(|shape| &shape.jumps)
            .filter(|(_, anchor, word)| Table::of(*anchor, *word, table.owner).key() != table.key())
            .copied()
            .collect();
        let places = |place: u64| {
            let other = others.iter().filter(|(at, ..)| *at == place);
            other.flat_map(|&(_, anchor, word)| targets(self.pair.old, (anchor, word), &self.starts)).collect::<Vec<u64>>()
        };
        let roots = region.outer_entries().chain(self.pads(region)).chain(taken.iter().map(|word| word.target));
        region.reached(roots, places, self.endings)
    }
}
