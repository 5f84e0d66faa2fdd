//! What the code of functions states about the tables that they jump through, before any word of them is read.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use rayon::prelude::*;

use super::extent::{End, Table, end_of};
use super::names::sorted;
use super::x86_64::Tables;
use crate::elf::dispatch::{Surroundings, Word, analyse};
use reorder_base::address::Address;

/// Result of the value analysis of one function.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) tables: Vec<Table>,
    /// Jumps whose tables are known, as the value analysis states them: place, address that is added, word.
    pub(super) jumps: Vec<(u64, u64, Word)>,
    /// Numbers of words that the other jumps read from unknown tables, where those are certain.
    pub(super) counts: Vec<u64>,
    /// Places of jumps that may use an unknown table.
    pub(super) unknown: Vec<u64>,
    /// Those of them that add a word to an address that may be any.
    pub(super) from_anywhere: Vec<u64>,
    /// Tables that the function reads words of, if there are such jumps.
    pub(super) reads: Vec<u64>,
    /// Jumps to addresses that tables hold, in a program at a fixed address.
    pub(super) loaded: Vec<(u64, Option<Word>)>,
    /// Whether some computed jump leads to a place that no table is known to hold.
    pub(super) jumps_elsewhere: bool,
    /// The function and the parts that were split off, by their indices.
    pub(super) members: Vec<u32>,
    /// Whether all jumps are understood, apart from those.
    pub(super) is_clear: bool,
}

/// The tables of all functions without duplicates, sorted by address.
pub(super) fn merged(shapes: &[(u32, Shape)]) -> Vec<Table> {
    let mut all: Vec<Table> = shapes.iter().flat_map(|(_, shape)| &shape.tables).copied().collect();
    all.sort_by_key(|table| (table.key(), table.is_candidate, table.owner));
    all.dedup_by(|next, last| {
        let is_same = next.key() == last.key();
        // A table that code certainly jumps through is more than a candidate.
        if is_same && !next.is_candidate {
            last.end = last.end.joined(next.end);
        }
        is_same
    });
    all
}

/// Passes over the functions whose tables are not all proven; each may lower starts of tables that the one before found.
const MAX_PASSES: usize = 4;

/// The tables that code certainly jumps through, each with its start: the lowest that any pass finds. Some jumps skip the first words of
/// a table, and the first pass may see only those.
#[derive(Default)]
struct CertainStarts(BTreeMap<(Address, Address, u8), Address>);

impl CertainStarts {
    fn add(&mut self, shapes: &[(u32, Shape)]) {
        for table in shapes.iter().flat_map(|(_, shape)| &shape.tables).filter(|table| !table.is_candidate) {
            let first = table.certain_start();
            let start = self.0.entry((table.anchor, table.origin(), table.width)).or_insert(first);
            *start = first.min(*start);
        }
    }

    /// Their starts, sorted.
    fn sorted(&self) -> Vec<Address> {
        sorted(self.0.values().copied().collect())
    }
}

impl Tables<'_> {
    /// The results for all functions `owners`, in their order.
    ///
    /// If a table without a known end seems to run on into the next one, it seems to lead to places that it does not lead
    /// to, and code that jumps through the next one may not be understood. So at first every address of data that code names
    /// ends a table. That can only lose paths, and a jump that uses a table on fewer paths uses it on all: this gives the
    /// starts of tables. In the second pass only these starts end tables.
    pub(super) fn shapes(&mut self, owners: &[u32]) -> Vec<(u32, Shape)> {
        self.starts = self.references.to_vec();
        let shape =
            |tables: &Self, owner: u32| tables.shape(owner).unwrap_or_else(|| tables.unknown_shape(owner));
        let mut shapes: Vec<(u32, Shape)> =
            owners.par_iter().map(|&owner| (owner, shape(self, owner))).collect();
        let mut starts = CertainStarts::default();
        starts.add(&shapes);
        self.starts = starts.sorted();
        let is_proven = |table: &Table| matches!(table.end, End::Proven(_));
        let is_open = |found: &Shape| !found.is_clear || !found.tables.iter().all(is_proven);
        let open: Vec<bool> = shapes.iter().map(|(_, found)| is_open(found)).collect();
        for pass in 1..=MAX_PASSES {
            let again = shapes.par_iter_mut().zip(&open).filter(|&(_, &is_open)| is_open);
            again.for_each(|((owner, found), _)| *found = shape(self, *owner));
            starts.add(&shapes);
            let mut now = starts.sorted();
            // A pass that took a word inside a table for the start of another one missed what follows it.
            let is_stable = self.starts.iter().all(|start| now.binary_search(start).is_ok());
            if !is_stable && pass == MAX_PASSES {
                now.append(&mut self.starts);
                now = sorted(now);
            }
            self.starts = now;
            if is_stable {
                break;
            }
        }
        shapes
    }

    /// Nothing is known of any jump of a function.
    fn unknown_shape(&self, owner: u32) -> Shape {
        let range = self.pair.moves.as_slice().get(owner as usize);
        let code = range.and_then(|range| {
            let section = self.pair.old.code_at(range.old_start.0, range.old_end().0)?;
            Some((section.at(range.old_start.0, range.size)?, range.old_start.0))
        });
        let (bytes, start) = code.unwrap_or_default();
        let jumps = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE)
            .into_iter()
            .filter(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
        Shape { unknown: jumps.map(|jump| jump.ip()).collect(), ..Shape::default() }
    }

    /// The result for one function; `None` when it cannot be decoded.
    fn shape(&self, owner: u32) -> Option<Shape> {
        let region = self.region(owner)?;
        let around = Surroundings {
            thunks: self.thunks,
            endings: self.endings,
            kept: self.kept,
            starts: &self.starts,
            follow: self.follow,
        };
        let found = analyse(&region, self.pair.old, around, &self.call_sites(&region));
        let mut shape = Shape::default();
        let mut is_clear = found.is_complete;
        for computed in &found.computed {
            for &(anchor, word) in &computed.sums {
                shape.tables.push(Table::of(anchor, word, owner));
                if !computed.is_call {
                    shape.jumps.push((computed.place, anchor, word));
                }
            }
            if computed.sums.is_empty() && !computed.is_call {
                is_clear = false;
                shape.unknown.push(computed.place);
                shape.from_anywhere.extend(computed.is_from_anywhere.then_some(computed.place));
                let (least, end) = end_of(computed.index);
                shape.counts.extend(match end {
                    End::Proven(count) => Some(least.saturating_add(count)),
                    _ => None,
                });
            }
        }
        if !is_clear {
            // Some jump uses an unknown table. Candidates are all tables that the function reads and all data that it names.
            let reads = found.reads.iter().filter(|word| word.width == 4).map(|word| word.table);
            let named = region.named_data(self.pair.old);
            shape.tables.extend(reads.chain(named).map(|start| Table::candidate(Address(start), owner)));
            shape.reads = found.reads.iter().map(|word| word.table).collect();
        }
        shape.loaded = found.loaded;
        shape.jumps_elsewhere = found.jumps_elsewhere;
        shape.members = region.members.clone();
        shape.is_clear = is_clear;
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_start() {
        let table = |start, unread| Table {
            start: Address(start),
            anchor: Address(0x100),
            width: 4,
            end: End::Unknown(8),
            unread,
            owner: 0,
            is_candidate: false,
        };
        let shapes = |table| vec![(0, Shape { tables: vec![table], ..Shape::default() })];
        let mut starts = CertainStarts::default();
        starts.add(&shapes(table(0x104, 1)));
        assert_eq!(starts.sorted(), [Address(0x104)]);
        starts.add(&shapes(table(0x100, 0)));
        assert_eq!(starts.sorted(), [Address(0x100)]);
        starts.add(&shapes(table(0x104, 0)));
        assert_eq!(starts.sorted(), [Address(0x100), Address(0x104)]);
    }
}
