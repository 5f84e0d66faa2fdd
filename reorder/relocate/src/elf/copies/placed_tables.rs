//! Copies of jump tables: their bytes, and the operands of copied instructions that name them.

use super::obstacle::Obstacle;
use super::placed::Copies;
use super::tables::{Entry, Table};
use reorder_base::address::{Address, NewAddress};

/// The copy of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedTable<'run> {
    /// Its first address.
    pub start: NewAddress,
    /// The original.
    pub table: &'run Table,
}

impl PlacedTable<'_> {
    /// First address after it.
    pub(super) fn end(&self) -> NewAddress {
        self.start.plus(self.table.entry.size() * self.table.targets.len() as u64)
    }
}

/// An instruction that names a table of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// Its operand.
    field: Address,
    /// Its first byte.
    instruction: Address,
    /// The copy of the table.
    table: NewAddress,
}

/// The instructions that name one of `tables`, if it is one of addresses; ascending.
pub(super) fn reads_of(tables: &[PlacedTable<'_>]) -> Vec<Read> {
    let of_addresses = tables.iter().filter(|placed| placed.table.entry == Entry::Target);
    let read = |(&field, &instruction): (&Address, &Address), table| Read { field, instruction, table };
    let mut reads: Vec<Read> = of_addresses
        .flat_map(|placed| placed.table.fields.iter().map(|field| read(field, placed.start)))
        .collect();
    reads.sort_unstable_by_key(|read| read.field);
    reads
}

impl Copies<'_> {
    /// The bytes of the copy of a table.
    ///
    /// # Errors
    /// A distance that does not fit, which a segment next to the image does not have.
    pub(super) fn table_bytes(&self, table: &PlacedTable<'_>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for target in &table.table.targets {
            let target = self.branch_target(*target);
            match table.table.entry {
                Entry::Target => bytes.extend(target.0.to_le_bytes()),
                Entry::Distance => {
                    let distance = target.distance_from(table.start) as i64;
                    bytes.extend(i32::try_from(distance).ok()?.to_le_bytes());
                }
            }
        }
        Some(bytes)
    }

    /// The copy of the table whose address the instruction with this field forms.
    pub(super) fn table_of_field(&self, target: Address, field: Address) -> Option<NewAddress> {
        let known = self.tables.binary_search_by_key(&target, |placed| placed.table.base).ok()?;
        let placed = &self.tables[known];
        placed.table.fields.contains_key(&field).then_some(placed.start)
    }

    /// Writes the addresses of copied tables in `copy`, the bytes of the copy with this number, whose original names tables of
    /// addresses.
    ///
    /// # Errors
    /// An instruction whose operand does not hold the address.
    pub(super) fn lead_table_reads(&self, index: usize, copy: &mut [u8]) -> Result<(), (Obstacle, Address)> {
        let start = self.placed[index].start;
        let range = self.fragments[index].original(self.bodies);
        let first = self.reads.partition_point(|read| read.field < range.start);
        for read in self.reads[first..].iter().take_while(|read| read.field < range.end) {
            let Some(copied) = self.copy_of(read.instruction) else { continue };
            let place = copied.plus(read.field.distance_from(read.instruction)).distance_from(start) as usize;
            if let Some(bytes) = copy.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                let table =
                    i32::try_from(read.table.0).map_err(|_| (Obstacle::ShortReach, read.instruction))?;
                *bytes = table.to_le_bytes();
            }
        }
        Ok(())
    }
}
