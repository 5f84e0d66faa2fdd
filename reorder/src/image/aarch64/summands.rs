//! What a call or a jump may lead to that goes to a sum nobody understands.

use super::Builder;
use super::context::addresses_formed;
use crate::address::Address;

/// Longest table of stored distances that is looked through.
const LONGEST_TABLE: u64 = 256;

impl Builder<'_, '_> {
    /// The functions whose addresses the atom forms stay, and those at stored distances from them: either may be a part of
    /// the sum.
    pub(super) fn keep_summands(&mut self) {
        let (mut bases, mut tables) = (Vec::new(), Vec::new());
        addresses_formed(self.context.image, self.atom.clone(), |address| {
            let is_code = self.context.text.contains(&address);
            if is_code { &mut bases } else { &mut tables }.push(address);
        });
        bases.sort_unstable();
        bases.dedup();
        tables.sort_unstable();
        tables.dedup();
        for table in tables {
            for distance in self.distances_at(table) {
                let targets = bases.iter().map(|base| base.plus(distance));
                let reached = targets.filter(|target| self.context.is_start_elsewhere(*target, &self.atom));
                self.result.possible_targets.extend(reached);
            }
        }
        let others = bases.into_iter().filter(|base| !self.atom.contains(base));
        self.result.possible_targets.extend(others);
    }

    /// Words of four and of eight bytes at `table`.
    fn distances_at(&self, table: Address) -> Vec<u64> {
        let image = self.context.image;
        let word = |width: u64, index: u64| image.bytes_at(table.plus(width * index), width);
        let narrow = (0..LONGEST_TABLE).map_while(|index| word(4, index)?.first_chunk());
        let narrow = narrow.map(|bytes| i64::from(i32::from_le_bytes(*bytes)) as u64);
        let wide = (0..LONGEST_TABLE).map_while(|index| word(8, index)?.first_chunk());
        narrow.chain(wide.map(|bytes| u64::from_le_bytes(*bytes))).collect()
    }
}
