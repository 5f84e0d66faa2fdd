//! Words after the first one that leads to no instruction, of a table whose end the code does not show.
//!
//! Such a word usually is other data, but compilers also send impossible cases to places that hold no code. So it does not prove
//! that the table ends there: up to the next address that code names, no word may lead to code that moved and that nothing else
//! reaches. This takes no account of how the writer found the end.

use super::extent::{End, Table};
use super::open::Others;
use super::shapes::Shape;
use super::words::{TableWord, may_be_entered};
use super::x86_64::{MAX_WORDS, Tables};
use crate::report::Difference;
use reorder_base::address::Address;

impl Tables<'_> {
    /// The first stale word from word number `first` on, before `limit`; `None` where the end of the table is known, and for
    /// tables that are only possible.
    pub(super) fn stale_past_end(
        &self,
        table: &Table,
        first: u64,
        limit: Address,
        shape: Option<&Shape>,
    ) -> Option<Difference> {
        if table.is_candidate || table.anchor != table.origin() || !matches!(table.end, End::Unknown(_)) {
            return None;
        }
        let width = u64::from(table.width);
        let start = table.start.plus(first * width);
        let next = self.references.get(self.references.partition_point(|&place| place < start));
        let limit = next.map_or(limit, |&next| next.min(limit));
        let words = (first..MAX_WORDS).map(|number| table.start.plus(number * width));
        let words = words.take_while(|place| *place < limit);
        let words = words.map_while(|place| TableWord::at(self.pair, table.anchor, place, table.width));
        let mut stale = words
            .filter(|word| self.written.binary_search(&word.place).is_err())
            .filter(|word| self.evidence.is_listed(word.place) != Some(false))
            .filter(|word| !word.has_changed && !word.is_followed(self.pair))
            .filter(|word| {
                let home = self.pair.moves.containing(word.target);
                home.is_some_and(|home| may_be_entered(self.pair, home, word.target))
            })
            .peekable();
        stale.peek()?;
        let region = self.region(table.owner)?;
        let reached = self.reached_otherwise(table, &region, shape, &[], Others::All);
        let is_necessary = |word: &TableWord| match region.position(word.target.0) {
            Some(position) => !reached[position],
            None => self.evidence.is_orphan(word.target),
        };
        stale.find(is_necessary).map(|word| word.stale(self.pair, table.start))
    }
}
