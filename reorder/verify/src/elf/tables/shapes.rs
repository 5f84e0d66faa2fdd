//! What the code of functions says of the tables that they jump by, before any word of them is looked at.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::extent::{End, Table, end_of};
use super::x86_64::Tables;
use crate::elf::dispatch::{Surroundings, Word, analyse};
use reorder_base::address::Address;

/// What value analysis says of one function.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) tables: Vec<Table>,
    /// Jumps whose tables are known: place, address that is added, word, as the value analysis states them.
    pub(super) jumps: Vec<(u64, u64, Word)>,
    /// How many words the other jumps read of tables that are not known, where that is certain.
    pub(super) counts: Vec<u64>,
    /// Whether all jumps are understood.
    pub(super) is_clear: bool,
}

/// The tables of all functions, each once, by place.
pub(super) fn merged(shapes: &[(u32, Shape)]) -> Vec<Table> {
    let mut all: Vec<Table> = shapes.iter().flat_map(|(_, shape)| &shape.tables).copied().collect();
    all.sort_by_key(|table| (table.key(), table.is_candidate, table.owner));
    all.dedup_by(|next, last| {
        let is_same = next.key() == last.key();
        // What code certainly jumps by is no mere candidate.
        if is_same && !next.is_candidate {
            last.end = last.end.joined(next.end);
        }
        is_same
    });
    all
}

/// Where tables start that code jumps by, sorted. One table starts once, however many of its first words a jump leaves out.
fn certain_starts(shapes: &[(u32, Shape)]) -> Vec<Address> {
    let mut first: BTreeMap<(Address, Address), Address> = BTreeMap::new();
    for table in shapes.iter().flat_map(|(_, shape)| &shape.tables).filter(|table| !table.is_candidate) {
        let start = first.entry((table.anchor, table.origin())).or_insert(table.start);
        *start = table.start.min(*start);
    }
    let mut starts: Vec<Address> = first.into_values().collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

impl Tables<'_> {
    /// What the code of functions says, by position.
    ///
    /// Where a table without a known end seems to run on into the next one, it seems to lead to places that it does not lead
    /// to, and code that jumps by the next one may not be understood. So it is first taken to end wherever code names data.
    /// That can only lose ways, and what jumps by a table on fewer ways does so on all: this gives the starts of tables. Only
    /// they end tables when the code is looked at again.
    pub(super) fn shapes(&mut self, owners: &[u32]) -> Vec<(u32, Shape)> {
        self.starts = self.references.to_vec();
        let shape = |tables: &Self, owner: u32| tables.shape(owner).unwrap_or_default();
        let mut shapes: Vec<(u32, Shape)> =
            owners.par_iter().map(|&owner| (owner, shape(self, owner))).collect();
        let mut starts = certain_starts(&shapes);
        self.starts.clone_from(&starts);
        let is_proven = |table: &Table| matches!(table.end, End::Proven(_));
        let open =
            shapes.par_iter_mut().filter(|(_, shape)| !shape.is_clear || !shape.tables.iter().all(is_proven));
        open.for_each(|(owner, found)| *found = shape(self, *owner));
        starts.append(&mut certain_starts(&shapes));
        starts.sort_unstable();
        starts.dedup();
        self.starts = starts;
        shapes
    }

    /// What the code of a function says.
    fn shape(&self, owner: u32) -> Option<Shape> {
        let region = self.region(owner)?;
        let around = Surroundings {
            thunks: self.thunks,
            endings: self.endings,
            kept: self.kept,
            starts: &self.starts,
        };
        let found = analyse(&region, self.pair.old, around, &self.pads(&region));
        let mut shape = Shape::default();
        let mut is_clear = found.is_complete;
        for computed in &found.computed {
            match computed.sum {
                Some((anchor, word)) => {
                    shape.tables.push(Table::of(anchor, word, owner));
                    if !computed.is_call {
                        shape.jumps.push((computed.place, anchor, word));
                    }
                }
                None if computed.is_call => {}
                None => {
                    is_clear = false;
                    let (least, end) = end_of(computed.index);
                    shape.counts.extend(match end {
                        End::Proven(count) => Some(least.saturating_add(count)),
                        _ => None,
                    });
                }
            }
        }
        if !is_clear {
            // Some jump goes by a table that is not known: any that the function reads, and any data that it names.
            let reads = found.reads.iter().filter(|word| word.width == 4).map(|word| word.table);
            let named = region.named_data(self.pair.old);
            shape.tables.extend(reads.chain(named).map(|start| Table::candidate(Address(start), owner)));
        }
        shape.is_clear = is_clear;
        Some(shape)
    }
}
