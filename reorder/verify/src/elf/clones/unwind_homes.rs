//! The unwind entry that covers a fragment's original.

use crate::elf::unwind_walk::UnwindEntry;
use reorder_base::address::Address;

/// The old entries by address.
pub(super) struct Homes<'known> {
    /// Ascending by start.
    by_start: Vec<&'known UnwindEntry>,
    /// The greatest end of each entry and all before it.
    reach: Vec<u64>,
}

impl<'known> Homes<'known> {
    /// The entries of the image without copies.
    pub(super) fn of(known: &'known [UnwindEntry]) -> Self {
        let mut by_start: Vec<&UnwindEntry> = known.iter().filter(|entry| entry.size > 0).collect();
        by_start.sort_unstable_by_key(|entry| (entry.start, entry.offset));
        let ends = by_start.iter().scan(0, |reach, entry| {
            *reach = entry.start.saturating_add(entry.size).max(*reach);
            Some(*reach)
        });
        let reach = ends.collect();
        Self { by_start, reach }
    }

    /// The entry that covers all of `start..end`; `None` if none covers any of it. The error says why neither is so.
    pub(super) fn covering(
        &self,
        start: Address,
        end: Address,
    ) -> Result<Option<&'known UnwindEntry>, String> {
        let after = self.by_start.partition_point(|entry| entry.start <= start.0);
        let begins_inside = self.by_start.get(after).is_some_and(|entry| entry.start < end.0);
        let before = after.checked_sub(2).and_then(|at| self.reach.get(at));
        let is_shared = before.is_some_and(|reach| *reach > start.0);
        let home = self.by_start[..after].last().filter(|entry| start.0 < entry.start + entry.size);
        match home {
            _ if begins_inside || is_shared => Err("several entries of the original".to_owned()),
            Some(home) if end.0 <= home.start + home.size => Ok(Some(home)),
            Some(_) => Err("an entry of a part of the original".to_owned()),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: usize, start: u64, size: u64) -> UnwindEntry {
        UnwindEntry {
            offset,
            start_field: offset + 8,
            start,
            size,
            exception_table: None,
            personality: None,
            relative: [None, None],
        }
    }

    #[test]
    fn one_entry_covers_all_of_a_fragment_or_none_any() {
        let known = [
            entry(0, 0x10, 0x10),
            entry(1, 0x20, 8),
            // Inside of the first of two, which reaches beyond it.
            entry(2, 0x40, 0x20),
            entry(3, 0x44, 4),
            entry(4, 0x70, 0),
        ];
        let homes = Homes::of(&known);
        let covering = |start, end| {
            homes.covering(Address(start), Address(end)).map(|entry| entry.map(|entry| entry.offset)).ok()
        };
        assert_eq!(covering(0x10, 0x20), Some(Some(0)));
        assert_eq!(covering(0x18, 0x1a), Some(Some(0)));
        assert_eq!((covering(0x18, 0x21), covering(0x26, 0x29)), (None, None), "a part");
        assert_eq!(
            (covering(0x28, 0x40), covering(0x70, 0x71), covering(0, 0x10)),
            (Some(None), Some(None), Some(None))
        );
        assert_eq!((covering(0x44, 0x46), covering(0x50, 0x52)), (None, None), "shared");
        assert_eq!(covering(0x40, 0x42), Some(Some(2)));
    }
}
