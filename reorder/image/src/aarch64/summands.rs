//! What a call or jump through a sum that is not understood may lead to.

use super::Builder;
use super::context::addresses_named;
use crate::decode::aarch64::{Operation, Register, WORD};
use crate::elf::analysis::computed_addresses::{MAX_SUMS, MAX_TABLE_WORDS, may_lead_to_code};
use reorder_base::address::Address;

/// Stored distances that are examined for one atom: no hand-written dispatch has more. With more it may call anything; what
/// follows the first [`MAX_TABLE_WORDS`] entries of one table is data of another kind.
const MAX_DISTANCES: usize = 1 << 20;

/// What sums may be computed from.
#[derive(Default)]
struct Parts {
    bases: Vec<Address>,
    /// Outside of the code.
    tables: Vec<Address>,
    distances: Vec<u64>,
    /// There may be more distances.
    is_cut: bool,
}

impl Builder<'_, '_> {
    /// Pins the functions whose addresses may be part of such sums, and those at stored distances from them. Where a number
    /// was added to one known address, only that one counts: most often a label of the atom itself, with a table that was
    /// lost at calls or where paths meet.
    pub(super) fn keep_summands(&mut self) {
        let parts = self.parts();
        self.result.calls_anything |= parts.is_cut;
        let mut sums = MAX_SUMS;
        for table in &parts.tables {
            self.keep_sums(&[*table], &self.distances_at(*table, &[*table], MAX_TABLE_WORDS), &mut sums);
        }
        self.keep_sums(&parts.bases, &parts.distances, &mut sums);
        let is_elsewhere = |base: &Address| self.context.text.contains(base) && !self.atom.contains(base);
        let others: Vec<Address> = parts.bases.into_iter().filter(is_elsewhere).collect();
        self.result.possible_targets.extend(others);
    }

    /// Pins functions at any of the distances, which are sorted, from any of the bases.
    fn keep_sums(&mut self, bases: &[Address], distances: &[u64], budget: &mut usize) {
        let text = self.context.text.clone();
        for base in bases {
            // Distances to the code form one run or, around zero, two.
            let first = text.start.0.wrapping_sub(base.0);
            let last = text.end.0.wrapping_sub(base.0);
            let at = |limit: u64| distances.partition_point(|distance| *distance < limit);
            let runs = match first <= last {
                true => [at(first)..at(last), 0..0],
                false => [at(first)..distances.len(), 0..at(last)],
            };
            for &distance in runs.into_iter().flat_map(|run| &distances[run]) {
                if *budget == 0 {
                    self.result.calls_anything = true;
                    return;
                }
                *budget -= 1;
                let target = base.plus(distance);
                if self.context.is_start_elsewhere(target, &self.atom) {
                    self.result.possible_targets.push(target);
                }
            }
        }
    }

    fn parts(&self) -> Parts {
        let unexplained = &self.facts.unexplained;
        let mut parts = Parts::default();
        parts.bases.extend(unexplained.bases.iter().copied().map(Address));
        addresses_named(self.context.image, self.atom.clone(), |address, _| {
            match self.context.text.contains(&address) {
                true if unexplained.is_of_anything => parts.bases.push(address),
                true => {}
                false => parts.tables.push(address),
            }
        });
        for list in [&mut parts.bases, &mut parts.tables] {
            list.sort_unstable();
            list.dedup();
        }
        for table in &parts.tables {
            let room = MAX_DISTANCES.saturating_sub(parts.distances.len());
            parts.distances.extend(self.distances_at(*table, &parts.bases, MAX_TABLE_WORDS.min(room)));
        }
        parts.is_cut = parts.distances.len() >= MAX_DISTANCES;
        parts.distances.extend(self.distances_inside());
        parts.distances.sort_unstable();
        parts.distances.dedup();
        parts
    }

    /// Numbers of four and of eight bytes at `table`, in order, up to the next address that code refers to, or the first
    /// that leads from none of the sorted `bases` to the code. Zeros mean that there is no function.
    fn distances_at(&self, table: Address, bases: &[Address], most: usize) -> Vec<u64> {
        let context = self.context;
        let (Some(&first), Some(&last)) = (bases.first(), bases.last()) else { return Vec::new() };
        let leads_to_code =
            |distance: &u64| *distance == 0 || may_lead_to_code((first, last), *distance, &context.text);
        let next = context.known.partition_point(|known| *known <= table);
        let room = context.known.get(next).map_or(u64::MAX, |known| known.distance_from(table));
        let number = |width: u64, index: u64| {
            let is_inside = (index + 1) * width <= room;
            context.image.bytes_at(table.plus(width * index), width).filter(|_| is_inside)
        };
        let narrow = (0..most as u64).map_while(|index| number(4, index)?.first_chunk());
        let wide = (0..most as u64).map_while(|index| number(8, index)?.first_chunk());
        let narrow = narrow.map(|bytes| sign_extended(u32::from_le_bytes(*bytes)));
        let mut found: Vec<u64> = narrow.take_while(leads_to_code).collect();
        found.extend(wide.map(|bytes| u64::from_le_bytes(*bytes)).take_while(leads_to_code));
        found.sort_unstable();
        found
    }

    /// Numbers that the atom holds as data, loads from the code, or builds in registers.
    fn distances_inside(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let mut built = [None::<u64>; 32];
        for (index, (&word, operation)) in self.words.iter().zip(&self.operations).enumerate() {
            if !self.facts.is_reached[index] {
                found.extend(self.numbers_at(self.place(index)));
                continue;
            }
            match operation {
                Operation::LoadLiteral(_, target) => found.extend(self.numbers_at(*target)),
                _ => {
                    let register = &mut built[usize::from(Register::at(word, 0).0)];
                    *register = moved_number(word, *register);
                    found.extend(*register);
                }
            }
        }
        found
    }

    fn numbers_at(&self, place: Address) -> impl Iterator<Item = u64> + use<> {
        let bytes = |width| self.context.image.bytes_at(place, width);
        let narrow = bytes(WORD).and_then(<[u8]>::first_chunk);
        let wide = bytes(2 * WORD).and_then(<[u8]>::first_chunk);
        let narrow = narrow.map(|bytes| sign_extended(u32::from_le_bytes(*bytes)));
        narrow.into_iter().chain(wide.map(|bytes| u64::from_le_bytes(*bytes)))
    }
}

fn sign_extended(word: u32) -> u64 {
    i64::from(word as i32) as u64
}

/// What a register holds after `MOVZ`, `MOVN` or `MOVK` if it held `before`.
fn moved_number(word: u32, before: Option<u64>) -> Option<u64> {
    let shift = (word >> 21 & 3) * 16;
    let number = u64::from(word >> 5 & 0xffff) << shift;
    match word >> 23 & 0xff {
        0b1010_0101 => Some(number),
        0b0010_0101 => Some(!number),
        0b1110_0101 => before.map(|before| before & !(0xffff << shift) | number),
        _ => None,
    }
}
