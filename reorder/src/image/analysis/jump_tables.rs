//! Where the x86-64 jump tables are, how long they are, and whose they are.
//!
//! Takes the blocks with a register jump and all data addresses that code forms; gives the tables, and pins for
//! what cannot be proven. A table is `base + 4·k` → signed distance from the base to an instruction of its owner
//! (or of a part of the same function, or the owner's end, where compilers send the impossible cases). It ends
//! where an entry leads elsewhere or where other code refers to. That extent was never seen to run long, since
//! whatever follows a table is itself referred to; a comparison that lets more entries through pins the owner.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use rayon::prelude::*;

use crate::address::Address;
use crate::image::analysis::blocks::{Block, BlockIndex, GapContent, Partition};
use crate::image::analysis::dispatch::{BlockFlow, Dispatch};
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::analysis::references::{Finding, is_boundary};
use crate::image::boundaries::Boundaries;
use crate::image::code::CodeSpace;
use crate::image::decode::x86_64::DecodedBlock;
use crate::image::elf::file::ElfFile;

/// A table of four-byte distances from its own start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JumpTable {
    /// The address that the distances are relative to, which is also the first entry's.
    pub base: Address,
    /// Number of entries; at least one.
    pub entries: u32,
    /// The block that dispatches through it.
    pub owner: BlockIndex,
}

impl JumpTable {
    /// One past the last entry.
    pub fn end(&self) -> Address {
        self.base.plus(4 * u64::from(self.entries))
    }

    /// What the entries lead to, in order.
    pub fn targets<'data>(&self, file: &ElfFile<'data>) -> impl Iterator<Item = Address> + use<'data> {
        let base = self.base;
        let bytes = file.bytes_at(base, 4 * u64::from(self.entries)).unwrap_or(&[]);
        bytes.chunks_exact(4).map(move |word| {
            let distance = i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            base.plus(distance as u64)
        })
    }
}

/// Everything that bounds tables.
pub struct TableContext<'context, 'data> {
    /// The image.
    pub file: &'context ElfFile<'data>,
    /// Its code.
    pub code: &'context CodeSpace<'data>,
    /// Blocks and gaps.
    pub partition: &'context Partition,
    /// Instruction boundaries of all blocks.
    pub boundaries: &'context Boundaries,
    /// Sorted data addresses that code or pointers refer to.
    pub data_references: &'context [Address],
    /// Sorted places that the loader writes.
    pub loader_places: &'context [Address],
    /// Sorted pairs of blocks that are parts of one function, in both directions.
    pub related: &'context [(BlockIndex, BlockIndex)],
}

/// All provable tables, sorted by base.
pub fn find_tables(
    context: &TableContext<'_, '_>,
    decoded: &[DecodedBlock],
    findings: &mut Vec<Finding>,
) -> Vec<JumpTable> {
    let results: Vec<(Vec<JumpTable>, Vec<Finding>)> = decoded
        .par_iter()
        .enumerate()
        .filter(|(_, block)| block.has_register_jump && block.invalid_at.is_none())
        .map_init(InstructionInfoFactory::new, |factory, (index, block)| {
            tables_of_block(context, BlockIndex(index as u32), block, factory)
        })
        .collect();
    let mut tables = Vec::new();
    for (block_tables, block_findings) in results {
        tables.extend(block_tables);
        findings.extend(block_findings);
    }
    tables.sort_by_key(|table| (table.base, table.owner));
    drop_shared(&mut tables, findings);
    tables
}

/// Tables with two owners belong to neither; both stay.
fn drop_shared(tables: &mut Vec<JumpTable>, findings: &mut Vec<Finding>) {
    let mut overlapping = vec![false; tables.len()];
    for index in 1..tables.len() {
        let (before, table) = (tables[index - 1], tables[index]);
        if table.base < before.end() {
            overlapping[index - 1] = true;
            overlapping[index] = true;
            let pin = Pin { reason: PinReason::SharedTable, evidence: table.base };
            findings.extend([Finding::Pin(before.owner, pin), Finding::Pin(table.owner, pin)]);
        }
    }
    let mut keep = overlapping.iter().map(|&overlaps| !overlaps);
    tables.retain(|_| keep.next().unwrap_or(true));
}

fn tables_of_block(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    decoded: &DecodedBlock,
    factory: &mut InstructionInfoFactory,
) -> (Vec<JumpTable>, Vec<Finding>) {
    let block = context.partition.block(index);
    let code = block.code();
    let decoder = Decoder::with_ip(64, context.code.bytes(code.clone()), code.start.0, DecoderOptions::NONE);
    let flow = BlockFlow::new(decoder.into_iter().collect());
    let mut findings = Vec::new();
    let mut pin = |reason, evidence| findings.push(Finding::Pin(index, Pin { reason, evidence }));
    let candidates: BTreeSet<Address> = decoded.table_candidates.iter().copied().collect();
    let plausible: Vec<Address> =
        candidates.iter().copied().filter(|&base| extent(context, index, block, base) > 0).collect();
    let mut bases = BTreeSet::new();
    for (jump, dispatch) in flow.dispatches(&|address| context.code.arena_of(address).is_some(), factory) {
        match dispatch {
            Dispatch::Pointer => {}
            Dispatch::SelfRelative | Dispatch::Unknown => pin(PinReason::UnresolvedJump, jump),
            Dispatch::Table { bases: found, bound } => {
                let (inside, outside): (Vec<Address>, Vec<Address>) =
                    found.into_iter().partition(|base| context.code.arena_of(*base).is_some());
                if inside.iter().any(|base| *base < block.start || *base >= block.end) {
                    pin(PinReason::UnresolvedJump, jump);
                }
                // Distances between labels of this block survive a rigid move.
                if !inside.is_empty() && outside.is_empty() {
                    continue;
                }
                let mut found = match (outside.as_slice(), plausible.as_slice()) {
                    ([], [only]) => vec![*only],
                    (found, _) => found.to_vec(),
                };
                // The base register may have held other addresses on paths that do not lead here.
                if found.len() > 1 {
                    found.retain(|&base| first_entry_is_code(context, base));
                }
                if found.is_empty() {
                    pin(PinReason::UnresolvedJump, jump);
                }
                for base in found {
                    let entries = extent(context, index, block, base);
                    if entries == 0 || bound.is_some_and(|bound| bound > u64::from(entries)) {
                        pin(PinReason::UnprovenTable, jump);
                    }
                    bases.insert(base);
                }
            }
        }
    }
    // What looks like a table but is reached by no dispatch that was understood may still be one.
    for base in plausible.iter().filter(|base| !bases.contains(base)) {
        pin(PinReason::UnprovenTable, *base);
    }
    let tables: Vec<JumpTable> = bases
        .into_iter()
        .filter_map(|base| {
            let entries = extent(context, index, block, base);
            (entries > 0).then_some(JumpTable { base, entries, owner: index })
        })
        .collect();
    // An entry for the impossible case may be the end of this block or the start of the next: both move together.
    let leads_to_end = |table: &JumpTable| table.targets(context.file).any(|target| target == block.end);
    if let Some(next) = next_at_end(context, index).filter(|_| tables.iter().any(leads_to_end)) {
        findings.push(Finding::Glue(index, next));
    }
    // The parts of a function whose tables are not proven may be targets of the entries that were missed.
    if let Some(&Finding::Pin(_, pin)) = findings.first() {
        let first = context.related.partition_point(|(block, _)| *block < index);
        let parts = context.related[first..].iter().take_while(|(block, _)| *block == index);
        findings.extend(parts.map(|(_, part)| Finding::Pin(*part, pin)));
    }
    (tables, findings)
}

/// Whether the word at `base` could be an entry of any table: a distance to code.
fn first_entry_is_code(context: &TableContext<'_, '_>, base: Address) -> bool {
    let word = context.file.bytes_at(base, 4).and_then(|bytes| bytes.try_into().ok());
    word.is_none_or(|word| {
        let target = base.plus(i64::from(i32::from_le_bytes(word)) as u64);
        context.code.arena_of(target).is_some()
    })
}

/// Number of consecutive entries at `base` that lead into the owner.
fn extent(context: &TableContext<'_, '_>, index: BlockIndex, block: &Block, base: Address) -> u32 {
    if !base.0.is_multiple_of(4) {
        return 0;
    }
    let Some(section) = context.file.sections.iter().find(|section| {
        section.is_loaded() && section.has_bytes() && !section.is_executable() && section.contains(base)
    }) else {
        return 0;
    };
    let bytes = context.file.section_bytes(section);
    let start = base.distance_from(section.address) as usize;
    let mut count = 0u32;
    for word in bytes[start..].chunks_exact(4) {
        let place = base.plus(4 * u64::from(count));
        if count > 0 && is_listed(context.data_references, place) || is_listed(context.loader_places, place) {
            break;
        }
        let distance = i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let target = base.plus(distance as u64);
        if !is_entry_target(context, index, block, target) {
            break;
        }
        count += 1;
    }
    count
}

/// Whether the owner may dispatch to `target`.
fn is_entry_target(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    block: &Block,
    target: Address,
) -> bool {
    if target == block.end && (end_is_own(context.partition, block) || next_at_end(context, index).is_some())
    {
        return true;
    }
    if context.code.arena_of(target).is_none() {
        return false;
    }
    let Some(other) = context.partition.block_containing(target) else { return false };
    let is_known = other == index || context.related.binary_search(&(index, other)).is_ok();
    is_known && is_boundary(context.code, context.boundaries, target)
}

/// The block that starts exactly where this one ends.
fn next_at_end(context: &TableContext<'_, '_>, index: BlockIndex) -> Option<BlockIndex> {
    let block = context.partition.block(index);
    let next = BlockIndex(index.0 + 1);
    let follower = context.partition.blocks.get(next.0 as usize)?;
    (follower.start == block.end && follower.arena == block.arena).then_some(next)
}

/// The byte behind the block is padding or outside, so nothing else starts there.
pub fn end_is_own(partition: &Partition, block: &Block) -> bool {
    match partition.gap_containing(block.end) {
        Some(gap) => partition.gaps[gap].content == GapContent::Padding,
        None => partition.block_containing(block.end).is_none(),
    }
}

/// Whether any byte of the word at `place` is listed.
fn is_listed(sorted: &[Address], place: Address) -> bool {
    let first = sorted.partition_point(|address| *address < place);
    sorted.get(first).is_some_and(|address| address.distance_from(place) < 4)
}
