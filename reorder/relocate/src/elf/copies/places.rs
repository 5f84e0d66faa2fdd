//! Which fragment holds an address of the original code, and after which one the copy of a jump table lies.

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

    /// Position of the fragment after which the copy of `table` lies, so that code and table are on one page: the first one, in the
    /// order of the copies, that reads it. `None` if no copy does.
    pub(super) fn home_of(&self, table: &Table) -> Option<usize> {
        table.fields.keys().filter_map(|field| self.fragment_at(*field)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use crate::elf::copies::tables::{Entry, Table};
    use reorder_base::address::Address;

    #[test]
    fn a_table_lies_after_the_first_fragment_that_reads_it() {
        let places =
            Places { by_original: vec![(Address(8), Address(12), 2), (Address(20), Address(30), 1)] };
        let home = |fields: &[u64]| {
            let fields = fields.iter().map(|field| (Address(*field), Address(*field - 1))).collect();
            places.home_of(&Table { base: Address(0), entry: Entry::Distance, targets: Vec::new(), fields })
        };
        assert_eq!(home(&[9, 29]), Some(1));
        assert_eq!(home(&[11, 12]), Some(2));
        assert_eq!(home(&[7, 12, 30]), None);
    }
}
