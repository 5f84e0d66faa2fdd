//! Tables whose end the code does not show: how far they reach is decided by where their words lead.

use std::collections::BTreeSet;

use super::TableOutcome;
use super::extent::{End, Table};
use super::shapes::Shape;
use super::words::{TableWord, may_be_entered};
use super::x86_64::Tables;
use crate::elf::dispatch::{Region, Word, targets};
use crate::report::Difference;
use reorder_base::address::Address;

/// The largest alignment of what follows a table, in bytes.
const MAX_ALIGNMENT: u64 = 64;

impl Tables<'_> {
    /// Checks a table whose words are entries up to an unknown point; `read` are the words that may be entries.
    pub(super) fn check_open(
        &self,
        table: &Table,
        read: &[TableWord],
        shape: Option<&Shape>,
    ) -> TableOutcome {
        let after_changed =
            |words: &[TableWord]| words.iter().rposition(|word| word.has_changed).map_or(0, |last| last + 1);
        // Words from another table's start on belong to that table, which is checked by itself.
        let starts = |word: &TableWord| {
            let is_possible = self.possible.binary_search_by_key(&word.place, |&(start, _)| start).is_ok();
            is_possible && self.named.binary_search(&word.place).is_ok()
        };
        let another = read.iter().skip(1).position(starts).map_or(read.len(), |at| at + 1);
        let changed = after_changed(&read[..another]);
        if let Some(word) = read[..changed].iter().find(|word| !word.is_followed(self.pair)) {
            let stale = word.stale(self.pair, table.start);
            return TableOutcome { words: changed, differences: vec![stale], ..TableOutcome::default() };
        }
        let taken = &read[..changed];
        let rest = &read[changed..];
        let still = rest.iter().take_while(|word| !word.has_changed).count();
        let rest = &rest[..still];
        let mut outcome = TableOutcome { words: changed, ..TableOutcome::default() };
        let Some(region) = self.region(table.owner) else { return outcome };
        let reached = self.reached_otherwise(table, &region, shape, &[]);
        let is_necessary = |word: &TableWord| match region.position(word.target.0) {
            Some(position) => !reached[position],
            None => self.evidence.is_orphan(word.target),
        };
        // All words before a necessary one are entries, even if that one is unchanged because its target stayed. A word that repeats
        // an earlier target is not necessary: it may be data that equals the earlier word by chance.
        let followed = rest.iter().take_while(|word| word.is_followed(self.pair) && !starts(word)).count();
        let mut seen = BTreeSet::new();
        let words = read[..changed + followed].iter().enumerate();
        let new_targets = words.filter(|(_, word)| seen.insert(word.target));
        let certain =
            new_targets.filter(|(_, word)| is_necessary(word)).last().map_or(0, |(last, _)| last + 1);
        let needed = certain.min(changed);
        // If the index is bounded, the comparison that matters is known; any other number in the code may equal the count by chance.
        let is_bounded = !matches!(table.end, End::Unknown(_));
        let shown = match !is_bounded && self.is_counted(table, read, changed, &region)
            || self.ends_by_itself(table, taken, rest, needed, &region)
        {
            true => changed,
            false => needed,
        };
        let unnamed = table.words_before_name(&self.named);
        // A bound on the index that includes these words, and a word after all names that must be an entry, outweigh the names. Within a
        // mask, no changed word may follow that one.
        let is_whole = table.end.count() == Some(read.len() as u64)
            && certain >= table.words_up_to_last_name(&self.named, read.len())
            && (certain >= changed || matches!(table.end, End::Proven(_)));
        if let Some(word) = taken.get(shown.min(unnamed)).filter(|_| !is_whole) {
            outcome.differences.push(word.difference(
                self.pair,
                table.start,
                "no change: nothing shows that the table reaches this far",
            ));
            return outcome;
        }
        if let Some(difference) = self.stale_entry(table, rest, changed == 0, &region, &is_necessary) {
            outcome.differences.push(difference);
        }
        if let Some(last) = taken.last() {
            outcome.followed.push(table.start..last.place.plus(u64::from(table.width)));
        }
        outcome
    }

    /// Whether another table, or the end of the section, follows the changed words, `taken`, or words of `rest` that are right as they
    /// are.
    ///
    /// This is the weakest reason, so it counts only if the words from `certain` on repeat earlier ones, or all changed words lead
    /// into the function. An array of distances to cases counts as well, if no place in it is named and another table or the section's end
    /// follows it. The reason is needed where other paths reach all code that the table leads to:
    /// switches without a default whose cases other switches of the function share, copies of one table, assembly tables that
    /// enter a run of instructions at many places, and tables of functions in which another jump is not understood.
    fn ends_by_itself(
        &self,
        table: &Table,
        taken: &[TableWord],
        rest: &[TableWord],
        certain: usize,
        region: &Region,
    ) -> bool {
        let owner = self.pair.moves.as_slice().get(table.owner as usize);
        let is_after = |word: &TableWord| owner.is_some_and(|owner| owner.old_end() == word.target);
        let is_home = |word: &TableWord| region.position(word.target.0).is_some() || is_after(word);
        let (before, after) = taken.split_at(certain);
        let known: BTreeSet<Address> = before.iter().map(|word| word.target).collect();
        let is_likely = || after.iter().all(|word| known.contains(&word.target)) || taken.iter().all(is_home);
        let right = rest.iter().take_while(|word| word.is_followed(self.pair)).count();
        let place = |count: usize| table.start.plus(count as u64 * u64::from(table.width));
        is_likely() && (taken.len()..=taken.len() + right).any(|words| self.is_last(table, place(words)))
    }

    /// Whether another table, or the end of the section, is at `end`, or comes after zeros that align it.
    fn is_last(&self, table: &Table, end: Address) -> bool {
        let Some(section) = self.pair.old.section_at(table.start.0) else { return false };
        let next = self.possible.partition_point(|&(start, _)| start < end);
        let next = self.possible.get(next).map_or(section.end(), |(next, _)| next.0.min(section.end()));
        let size = next.saturating_sub(end.0);
        let bytes = section.at(end.0, size).filter(|_| size < MAX_ALIGNMENT);
        bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
    }

    /// Whether the code compares a value with the number of changed words, or with a larger number if the words up to it
    /// lead to targets that stayed.
    fn is_counted(&self, table: &Table, read: &[TableWord], changed: usize, region: &Region) -> bool {
        let (least, words) = (changed as u64 + table.unread, read.len() as u64 + table.unread);
        let still = read[changed..].iter().take_while(|word| word.is_followed(self.pair)).count() as u64;
        let counts = region.compared_counts();
        counts.iter().any(|&count| (least..=(least + still).min(words)).contains(&count))
    }

    /// A word that stayed although it can only be an entry that had to follow.
    fn stale_entry(
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
        let leads_home = region.contains(first.target.0);
        // The first word of a table is an entry. Of a candidate, no word is certain to be one.
        let is_entry = if table.is_candidate { is_all && leads_home } else { leads_home };
        let stale = Some(first).filter(is_stale).filter(|_| is_entry).or_else(|| {
            let is_demanded = |word: &&TableWord| !table.is_candidate && is_necessary(word);
            // All words before one that must be an entry are entries too.
            let last = rest.iter().rposition(|word| is_demanded(&word)).map_or(0, |last| last + 1);
            rest[..last].iter().find(is_stale)
        });
        stale.map(|word| word.stale(self.pair, table.start))
    }

    /// Whether a table whose end the code does not show may end at `place`, because a table of another function may start
    /// there.
    pub(super) fn may_end_at(&self, table: &Table, place: Address) -> bool {
        let is_possible = self.possible.binary_search_by_key(&place, |&(start, _)| start).is_ok();
        let region = || self.region(table.owner);
        is_possible && region().is_some_and(|region| self.starts_another(place, &region))
    }

    /// Whether a table of another function may start at `place`: that function names `place`, and the word at `place`, added
    /// to `place`, leads into that function or its parts, in both images. A function never reads words of both tables.
    fn starts_another(&self, place: Address, region: &Region) -> bool {
        let first = self.possible.partition_point(|&(start, _)| start < place);
        let here = self.possible[first..].iter().take_while(|&&(start, _)| start == place);
        let word = TableWord::at(self.pair, place, place, 4).filter(|word| word.is_followed(self.pair));
        let Some(target) = word.map(|word| word.target).filter(|&target| !region.contains(target.0)) else {
            return false;
        };
        let home = self.pair.moves.containing(target);
        home.is_some_and(|home| may_be_entered(self.pair, home, target))
            && here
                .filter(|(_, owner)| !region.members.contains(owner))
                .any(|&(_, owner)| self.region(owner).is_some_and(|other| other.contains(target.0)))
    }

    /// For each instruction of a region, whether control reaches it without the table, or through its words `taken`.
    pub(super) fn reached_otherwise(
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
            other
                .flat_map(|&(_, anchor, word)| targets(self.pair.old, (anchor, word), &self.starts))
                .collect::<Vec<u64>>()
        };
        let roots =
            region.outer_entries().chain(self.pads(region)).chain(taken.iter().map(|word| word.target.0));
        region.reached(roots, places, self.endings)
    }
}
