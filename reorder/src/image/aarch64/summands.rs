//! What a call or a jump may lead to that goes to a sum nobody understands.

use super::Builder;
use super::context::addresses_formed;
use crate::address::Address;

/// Longest table of stored distances that is looked through.
const LONGEST_TABLE: u64 = 256;

impl Builder<'_, '_> {
    /// The functions whose addresses may be parts of such sums stay, and those at stored distances from them. Where a number
    /// was added to one known address, that is the only part: most often a label of the atom itself, with a table that calls
    /// or meeting paths hid.
    pub(super) fn keep_summands(&mut self) {
        let unexplained = &self.facts.unexplained;
        let mut bases: Vec<Address> = unexplained.bases.iter().copied().map(Address).collect();
        let mut tables = Vec::new();
        addresses_formed(self.context.image, self.atom.clone(), |address| {
            match self.context.text.contains(&address) {
                true if unexplained.is_of_anything => bases.push(address),
                true => {}
                false => tables.push(address),
            }
        });
        bases.sort_unstable();
        bases.dedup();
        tables.sort_unstable();
        tables.dedup();
        for table in tables {
            for distance in self.distances_at(table) {
                let targets = bases.iter().chain([&table]).map(|base| base.plus(distance));
                let reached = targets.filter(|target| self.context.is_start_elsewhere(*target, &self.atom));
                self.result.possible_targets.extend(reached);
            }
        }
        let is_elsewhere = |base: &Address| self.context.text.contains(base) && !self.atom.contains(base);
        let others = bases.into_iter().filter(is_elsewhere);
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
