//! Which fragment holds an address of the original code, and which one a jump table lies beside.

use super::bodies::Body;
use super::fragments::Fragment;
use super::tables::Table;
use reorder_base::address::Address;

/// The originals of fragments.
pub(super) struct Places {
    /// Where each starts and ends, with the position of the fragment; ascending.
    by_original: Vec<(Address, Address, usize)>,
}

impl Places {
    /// Those of `fragments`.
    pub(super) fn new(bodies: &[Body], fragments: &[Fragment]) -> Self {
        let place = |(index, fragment): (usize, &Fragment)| {
            let range = fragment.original(bodies);
            (range.start, range.end, index)
        };
        let mut by_original: Vec<_> = fragments.iter().enumerate().map(place).collect();
        by_original.sort_unstable();
        Self { by_original }
    }

    /// Position of the fragment whose original holds `address`.
    pub(super) fn fragment_at(&self, address: Address) -> Option<usize> {
        let after = self.by_original.partition_point(|(start, ..)| *start <= address);
        let &(_, _, index) = self.by_original[..after].last().filter(|(_, end, _)| address < *end)?;
        Some(index)
    }

    /// Position of the fragment after which the copy of `table` lies: one that reads it, since whatever runs that dispatch needs both.
    /// `None` if no copy reads it.
    pub(super) fn home_of(&self, table: &Table) -> Option<usize> {
        table.fields.keys().find_map(|field| self.fragment_at(*field))
    }
}
