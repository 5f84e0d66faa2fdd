//! Distances between functions that data holds, where one function names both that data and the address to add: it may keep both
//! on the stack, pass the sum on or store it, so what becomes of them is not asked.

use std::collections::BTreeSet;

use super::Builder;
use super::context::addresses_formed;
use crate::elf::analysis::computed_addresses::MAX_TABLE_WORDS;
use crate::pins::PinReason;
use reorder_base::address::Address;

/// Pairs of a function and a table that are tried for one atom; a table whose first distance leads nowhere near is none.
const MAX_PAIRS: usize = 1 << 17;
/// Words that may lead to the first function itself before one leads to another.
const MAX_LEADING_ZEROS: u64 = 16;

/// Words of one width that may be distances between functions.
#[derive(Clone, Copy)]
struct Table {
    start: Address,
    width: u64,
    /// The first that is not zero.
    first: u64,
}

impl Builder<'_, '_> {
    /// Pins the functions to which the words of a table lead from a function, and that one too, where the atom names both and adds
    /// registers.
    pub(super) fn keep_stored_distances(&mut self) {
        if !self.words.iter().any(|word| adds_registers(*word)) {
            return;
        }
        let context = self.context;
        let (mut bases, mut places) = (BTreeSet::new(), BTreeSet::new());
        addresses_formed(context.image, self.atom.clone(), |address| {
            bases.extend(context.loaded_at(address).filter(|base| context.is_start(*base)));
            bases.extend(Some(address).filter(|base| context.is_start(*base)));
            // The large code model loads the address of the table from a literal.
            places.extend([Some(address), self.word(address, 8).map(Address)].into_iter().flatten());
        });
        let tables: Vec<Table> = places
            .into_iter()
            .filter(|place| !context.text.contains(place))
            .flat_map(|start| [self.table(start, 8), self.table(start, 4)])
            .flatten()
            .collect();
        let pairs = bases.iter().flat_map(|base| tables.iter().map(move |table| (*base, *table)));
        for (base, table) in pairs.take(MAX_PAIRS) {
            let reached = self.reached_from(base, table);
            if reached.is_empty() {
                continue;
            }
            if self.atom.contains(&base) || reached.iter().any(|target| self.atom.contains(target)) {
                self.pin(PinReason::ComputedAddress, table.start);
            }
            let others = reached.into_iter().chain([base]).filter(|target| !self.atom.contains(target));
            self.result.summed.extend(others);
        }
    }

    /// The words at `start`, if the first that is not zero comes soon, and is less than the code is long.
    fn table(&self, start: Address, width: u64) -> Option<Table> {
        let text = &self.context.text;
        let words = (0..=MAX_LEADING_ZEROS).map_while(|number| self.word(start.plus(number * width), width));
        let first = words.into_iter().find(|word| *word != 0)?;
        let is_near = first.cast_signed().unsigned_abs() < text.end.distance_from(text.start);
        is_near.then_some(Table { start, width, first })
    }

    /// The functions to which the words of `table` lead from `base`, up to the first that leads to none; nothing if there is only
    /// one: a small number often leads from one function to another.
    fn reached_from(&self, base: Address, table: Table) -> BTreeSet<Address> {
        let mut reached = BTreeSet::new();
        if !self.context.is_start(base.plus(table.first)) {
            return reached;
        }
        for number in 0..MAX_TABLE_WORDS as u64 {
            let distance = self.word(table.start.plus(number * table.width), table.width);
            let Some(target) = distance.map(|distance| base.plus(distance)) else { break };
            if target != base && !self.context.is_start(target) {
                break;
            }
            reached.extend((target != base).then_some(target));
        }
        if reached.len() > 1 { reached } else { BTreeSet::new() }
    }

    /// The word of `width` bytes at `place`, sign-extended.
    fn word(&self, place: Address, width: u64) -> Option<u64> {
        let bytes = self.context.image.bytes_at(place, width)?;
        match bytes.first_chunk::<8>() {
            Some(word) => Some(u64::from_le_bytes(*word)),
            None => Some(i64::from(i32::from_le_bytes(*bytes.first_chunk()?)).cast_unsigned()),
        }
    }
}

/// `ADD` or `SUB` of two 64-bit registers, shifted or extended.
fn adds_registers(word: u32) -> bool {
    word & 0x9f00_0000 == 0x8b00_0000
}
