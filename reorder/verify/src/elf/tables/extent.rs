//! What is known of one table, and how far it reaches.

use crate::elf::dispatch::{Bounds, Word};
use reorder_base::address::Address;

/// From this bound on, a calculated bound only reflects the width of the index, a byte or more, not its values.
const MIN_TYPE_BOUND: u64 = 255;

/// How the end of a table is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The code compares the index: this many words, unless a variable begins among them.
    Proven(u64),
    /// A calculation bounds the index: this many words, unless some of them are other data.
    Calculated(u64),
    /// At most this many words.
    Unknown(u64),
}

/// A table of words that are added to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Address of the first word.
    pub(super) start: Address,
    /// The address that words are added to.
    pub(super) anchor: Address,
    /// Bytes of a word.
    pub(super) width: u8,
    pub(super) end: End,
    /// Words before the first one that is read. Only smaller indices would read them, but the table may begin there.
    pub(super) unread: u64,
    /// Index of a function that jumps through it.
    pub(super) owner: u32,
    /// Whether it is only possible, not certain, that code jumps through it.
    pub(super) is_candidate: bool,
}

impl Table {
    /// The table that `word` is read from.
    pub(super) fn of(anchor: u64, word: Word, owner: u32) -> Self {
        let (least, end) = end_of(word.index);
        let word = word.counted_from(anchor);
        let start = Address(word.table).plus(least.wrapping_mul(u64::from(word.width)));
        // A table of distances from itself begins at its anchor.
        let unread = if word.table == anchor { least } else { 0 };
        let (anchor, width) = (Address(anchor), word.width);
        Self { start, anchor, width, end, unread, owner, is_candidate: false }
    }

    /// A table that may start at `start`, of distances from itself.
    pub(super) fn candidate(start: Address, owner: u32) -> Self {
        Self {
            start,
            anchor: start,
            width: 4,
            end: End::Unknown(u64::MAX),
            unread: 0,
            owner,
            is_candidate: true,
        }
    }

    /// The first word that is certain to be of this table. Code names a table by its label, and adds words to that label's
    /// address. The bounds of the index may admit words before the label that are never read, and that may be the last ones of
    /// another table. Never before `start`.
    pub(super) fn certain_start(&self) -> Address {
        let before = self.anchor.0.checked_sub(self.start.0);
        let is_word = |before: &u64| {
            let number = before / u64::from(self.width);
            before.is_multiple_of(u64::from(self.width))
                && self.end.count().is_some_and(|count| number < count)
        };
        before.filter(is_word).map_or(self.start, |_| self.anchor)
    }

    /// Address of the word with index zero.
    pub(super) fn origin(&self) -> Address {
        Address(self.start.0.wrapping_sub(self.unread.wrapping_mul(u64::from(self.width))))
    }

    /// Number of words before the first of `names`, sorted, past the start. Data may begin there.
    pub(super) fn words_before_name(&self, names: &[Address]) -> usize {
        let after = names.partition_point(|&name| name <= self.start);
        let name = names.get(after).map_or(u64::MAX, |name| name.distance_from(self.start));
        usize::try_from(name / u64::from(self.width)).unwrap_or(usize::MAX)
    }

    /// Number of words up to and with the one in which the last of `names`, sorted, among the first `words` words lies; 0 if there is
    /// none.
    pub(super) fn words_up_to_last_name(&self, names: &[Address], words: usize) -> usize {
        let width = u64::from(self.width);
        let after = names.partition_point(|&name| name < self.start.plus(words as u64 * width));
        let last = names[..after].last().filter(|&&name| name > self.start);
        last.map_or(0, |name| (name.distance_from(self.start) / width) as usize + 1)
    }

    /// The sort key of tables; uses with equal keys are uses of one table.
    pub(super) fn key(&self) -> (Address, Address, u8) {
        (self.start, self.anchor, self.width)
    }
}

/// The smallest index that is read, and the number of words from there on.
pub(super) fn end_of(index: Bounds) -> (u64, End) {
    let is_free = index.is_free();
    let least = if is_free { 0 } else { index.least };
    let count = index.most.saturating_sub(least).saturating_add(1);
    let end = match (index.is_compared, index.most) {
        _ if is_free => End::Unknown(u64::MAX),
        (true, _) => End::Proven(count),
        (false, most) if most < MIN_TYPE_BOUND => End::Calculated(count),
        _ => End::Unknown(count),
    };
    (least, end)
}

impl End {
    /// The number of words that the bounds of the index admit.
    pub(super) fn count(self) -> Option<u64> {
        match self {
            Self::Proven(count) | Self::Calculated(count) => Some(count),
            Self::Unknown(_) => None,
        }
    }

    /// The end of a table that two dispatches use.
    pub(super) fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Proven(one), Self::Proven(two)) => Self::Proven(one.max(two)),
            (Self::Unknown(one) | Self::Proven(one) | Self::Calculated(one), Self::Unknown(two)) => {
                Self::Unknown(one.max(two))
            }
            (Self::Unknown(one), Self::Proven(two) | Self::Calculated(two)) => Self::Unknown(one.max(two)),
            (Self::Calculated(one), Self::Calculated(two)) => Self::Calculated(one.max(two)),
            (Self::Calculated(limit), Self::Proven(count))
            | (Self::Proven(count), Self::Calculated(limit)) => {
                if count >= limit {
                    Self::Proven(count)
                } else {
                    Self::Calculated(limit)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_begins_where_its_words_count_from() {
        let free = Bounds { least: 0, most: u64::MAX, is_compared: false };
        let start = |table, anchor, index| {
            Table::of(anchor, Word { table, width: 4, index, is_extended: true }, 0).start.0
        };
        // movslq 0x2c(%rdx,%rdi,4) with cases from -11 on, and -8(%rdx,%rdi,4) with cases from 2 on.
        assert_eq!((start(0x204c, 0x2020, free), start(0x2018, 0x2020, free)), (0x2020, 0x2020));
        // A bounded index determines where the code reads.
        let bounded = Bounds { least: 2, most: 7, is_compared: true };
        assert_eq!(start(0x2018, 0x2020, bounded), 0x2020);
        // Words that count from elsewhere begin where they are read.
        assert_eq!(start(0x9000, 0x2020, free), 0x9000);
    }

    #[test]
    fn words_before_the_label_are_not_certain_to_be_of_the_table() {
        let start = |table, least, most| {
            let index = Bounds { least, most, is_compared: true };
            let word = Word { table, width: 4, index, is_extended: true };
            Table::of(0x2020, word, 0).certain_start().0
        };
        // -16(%rdx,%rdi,4), with a label and indices from 0 on; then with indices that all read before the label.
        assert_eq!((start(0x2010, 0, 31), start(0x2010, 0, 3)), (0x2020, 0x2010));
        assert_eq!((start(0x2020, 2, 9), start(0x2012, 0, 31)), (0x2028, 0x2012));
    }
}
