//! Where the x86-64 jump tables are, how long they are, and whose they are.
//!
//! Takes all blocks and the data addresses that they form; gives the tables, and pins for what cannot be proven. A table is
//! `base + 4·k` → signed distance from the base to an instruction: of its owner, of a part that the compiler split off,
//! or the owner's end, where compilers send the impossible cases. `table_extent` tells where it ends. A block that forms
//! the address of what looks like a table of its own stays if no dispatch through it was understood, whatever its jumps
//! look like: hardened code jumps by `ret`.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use rayon::prelude::*;

use crate::boundaries::Boundaries;
use crate::decode::x86_64::DecodedBlock;
use crate::elf::analysis::block_uses::BlockUses;
use crate::elf::analysis::blocks::{Block, BlockIndex, GapContent, Partition};
use crate::elf::analysis::dispatch::{BlockFlow, Dispatch};
use crate::elf::analysis::index_value::LargestIndex;
use crate::elf::analysis::references::Finding;
use crate::elf::analysis::table_extent::{
    AllTables, Extent, Owner, Shown, extent, may_be_table, own_targets, reached,
};
use crate::elf::code::CodeSpace;
use crate::elf::file::ElfFile;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

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
    /// Sorted addresses of data to which code, pointers or other images may refer.
    pub named_data: &'context [Address],
    /// Landing pads, sorted.
    pub landing_pads: &'context [Address],
    /// How blocks are reached.
    pub uses: &'context BlockUses,
    /// Sorted places that the loader writes.
    pub loader_places: &'context [Address],
    /// Sorted pairs of blocks that are parts of one function, in both directions.
    pub related: &'context [(BlockIndex, BlockIndex)],
}

/// What is known of all jumps through a register.
pub(crate) struct FoundTables {
    /// All provable tables, sorted by base.
    pub(crate) tables: Vec<JumpTable>,
    /// Blocks that jump to the sum of a distance and an address that they do not form themselves, sorted.
    pub(crate) loading: Vec<BlockIndex>,
    /// Blocks of which every jump was examined and goes to a pointer or counts from an address that the block forms, sorted.
    pub(crate) explained: Vec<BlockIndex>,
    /// What must stay for tables that are not proven.
    pub(crate) findings: Vec<Finding>,
}

/// The tables of all blocks.
pub(crate) fn find_tables(context: &TableContext<'_, '_>, decoded: &[DecodedBlock]) -> FoundTables {
    let dispatches: Vec<BlockDispatches> = decoded
        .par_iter()
        .enumerate()
        .with_min_len(64)
        .filter(|(_, block)| block.invalid_at.is_none())
        .map_init(InstructionInfoFactory::new, |factory, (index, block)| {
            let index = BlockIndex(index as u32);
            if block.has_register_jump {
                return Some(dispatches_of_block(context, index, block, factory));
            }
            let suspects: Vec<Address> = distinct(&block.table_candidates)
                .filter(|&base| may_be_table(context, index, context.partition.block(index), base))
                .collect();
            (!suspects.is_empty()).then(|| BlockDispatches { suspects, ..BlockDispatches::new(index) })
        })
        .flatten()
        .collect();
    let shown: Vec<(BlockIndex, Shown)> = dispatches.iter().flat_map(BlockDispatches::shown).collect();
    let all = AllTables::new(context, &shown);
    let results: Vec<(Vec<JumpTable>, Vec<Finding>)> =
        dispatches.par_iter().map(|dispatches| tables_of_block(context, dispatches, &all)).collect();
    let (mut tables, mut findings) = (Vec::new(), Vec::new());
    for (block_tables, block_findings) in results {
        tables.extend(block_tables);
        findings.extend(block_findings);
    }
    tables.sort_by_key(|table: &JumpTable| (table.base, table.owner));
    let (tables, shared) = drop_shared(context, tables);
    findings.extend(shared);
    let owners = |is_wanted: fn(&BlockDispatches) -> bool| {
        dispatches.iter().filter(|block| is_wanted(block)).map(|block| block.owner).collect()
    };
    FoundTables {
        tables,
        loading: owners(|block| block.has_loaded_base),
        explained: owners(|block| block.has_jumps && block.is_named && block.unresolved.is_empty()),
        findings,
    }
}

/// What the jumps of one block do.
struct BlockDispatches {
    owner: BlockIndex,
    /// Bases of tables, with the largest index that the code can reach.
    tables: BTreeMap<Address, Option<LargestIndex>>,
    /// What may be a table, but is not known to be one.
    suspects: Vec<Address>,
    /// Jumps that are not explained.
    unresolved: Vec<Address>,
    orphans: Vec<Address>,
    /// Some jump leads to the sum of a distance and an address that the block does not form.
    has_loaded_base: bool,
    /// All jumps were examined: blocks without are here for what looks like a table.
    has_jumps: bool,
    /// All sums count from addresses that the block forms.
    is_named: bool,
}

impl BlockDispatches {
    fn new(owner: BlockIndex) -> Self {
        let (tables, suspects, unresolved) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self {
            owner,
            tables,
            suspects,
            unresolved,
            orphans: Vec::new(),
            has_loaded_base: false,
            has_jumps: false,
            is_named: true,
        }
    }

    /// The tables that the block dispatches through.
    fn shown(&self) -> impl Iterator<Item = (BlockIndex, Shown)> + '_ {
        self.tables.iter().map(|(&base, &bound)| (self.owner, Shown { base, bound }))
    }
}

fn distinct(addresses: &[Address]) -> impl Iterator<Item = Address> + use<> {
    addresses.iter().copied().collect::<BTreeSet<_>>().into_iter()
}

/// Tables with two owners belong to neither; both stay, and so does what the entries lead to.
fn drop_shared(context: &TableContext<'_, '_>, mut tables: Vec<JumpTable>) -> (Vec<JumpTable>, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut overlapping = vec![false; tables.len()];
    for index in 1..tables.len() {
        let (before, table) = (tables[index - 1], tables[index]);
        if table.base < before.end() {
            overlapping[index - 1] = true;
            overlapping[index] = true;
            let pin = Pin { reason: PinReason::SharedTable, evidence: table.base };
            for table in [before, table] {
                let targets = table.targets(context.file);
                let reached = targets.filter_map(|target| context.partition.block_containing(target));
                findings.push(Finding::Pin(table.owner, pin));
                findings.extend(reached.map(|block| Finding::Pin(block, pin)));
            }
        }
    }
    let mut keep = overlapping.iter().map(|&overlaps| !overlaps);
    tables.retain(|_| keep.next().unwrap_or(true));
    (tables, findings)
}

fn dispatches_of_block(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    decoded: &DecodedBlock,
    factory: &mut InstructionInfoFactory,
) -> BlockDispatches {
    let block = context.partition.block(index);
    let code = block.code();
    let decoder = Decoder::with_ip(64, context.code.bytes(code.clone()), code.start.0, DecoderOptions::NONE);
    let flow = BlockFlow::new(decoder.into_iter().collect());
    let mut dispatches = BlockDispatches::new(index);
    let candidates: Vec<Address> = distinct(&decoded.table_candidates).collect();
    let plausible: Vec<Address> =
        candidates.iter().copied().filter(|&base| may_be_table(context, index, block, base)).collect();
    let mut entered: Vec<Address> =
        plausible.iter().flat_map(|&base| own_targets(context, index, block, base)).collect();
    entered.sort_unstable();
    let is_code = |address: Address| context.code.arena_of(address).is_some();
    let is_entered =
        |address: Address| entered.binary_search(&address).is_ok() || context.uses.is_entered(address);
    dispatches.has_jumps = true;
    for (jump, dispatch) in flow.dispatches(&is_code, &is_entered, factory) {
        match dispatch {
            Dispatch::Pointer => {}
            Dispatch::SelfRelative | Dispatch::Unknown => dispatches.unresolved.push(jump),
            Dispatch::Table { bases: found, has_loaded_base, is_named } => {
                dispatches.has_loaded_base |= has_loaded_base;
                dispatches.is_named &= is_named;
                let (inside, outside): (Vec<_>, Vec<_>) =
                    found.into_iter().partition(|(base, _)| context.code.arena_of(*base).is_some());
                if inside.iter().any(|(base, _)| *base < block.start || *base >= block.end) {
                    dispatches.unresolved.push(jump);
                }
                // Distances between labels of this block survive a rigid move.
                if !inside.is_empty() && outside.is_empty() {
                    continue;
                }
                let mut found = match (outside.as_slice(), plausible.as_slice()) {
                    ([], [only]) => vec![(*only, None)],
                    (found, _) => found.to_vec(),
                };
                // The base register may have held other addresses on paths that do not lead here.
                if found.len() > 1 {
                    found.retain(|&(base, _)| first_entry_is_code(context, base));
                }
                if found.is_empty() {
                    dispatches.unresolved.push(jump);
                }
                for (base, bound) in found {
                    let known = dispatches.tables.entry(base).or_insert(bound);
                    *known = known.and_then(|known| bound.map(|bound| bound.max(known)));
                }
            }
        }
    }
    // What looks like a table but is reached by no dispatch that was understood may still be one. After a jump that is not
    // understood everything that leads to code may.
    let is_suspect = |base: &Address| match dispatches.unresolved.is_empty() {
        true => plausible.binary_search(base).is_ok(),
        false => true,
    };
    let unknown = candidates.iter().filter(|base| !dispatches.tables.contains_key(base));
    dispatches.suspects = unknown.filter(|base| is_suspect(base)).copied().collect();
    dispatches.orphans =
        flow.orphans().filter(|address| !is_entered_otherwise(context, block, *address)).collect();
    dispatches
}

/// Something else than an instruction before or a branch of the block leads to `address`.
fn is_entered_otherwise(context: &TableContext<'_, '_>, block: &Block, address: Address) -> bool {
    block.is_entry(address)
        || context.uses.is_entered(address)
        || context.landing_pads.binary_search(&address).is_ok()
}

fn tables_of_block(
    context: &TableContext<'_, '_>,
    dispatches: &BlockDispatches,
    all: &AllTables,
) -> (Vec<JumpTable>, Vec<Finding>) {
    let index = dispatches.owner;
    let block = context.partition.block(index);
    let owner = Owner { index, block, orphans: &dispatches.orphans };
    let mut findings = Vec::new();
    let mut tables = Vec::new();
    for &jump in &dispatches.unresolved {
        findings.push(Finding::Pin(index, Pin { reason: PinReason::UnresolvedJump, evidence: jump }));
    }
    let mut distrust = |base: Address, reached: Vec<BlockIndex>| {
        let pin = Pin { reason: PinReason::UnprovenTable, evidence: base };
        let blocks = std::iter::once(index).chain(reached);
        findings.extend(blocks.map(|block| Finding::Pin(block, pin)));
    };
    for &base in &dispatches.suspects {
        let is_table = dispatches.unresolved.is_empty() || may_be_table(context, index, block, base);
        let reached = reached(context, index, block, base);
        if is_table || !reached.is_empty() {
            distrust(base, reached);
        }
    }
    for (_, table) in dispatches.shown() {
        match extent(context, &owner, table, all) {
            Extent::Proven(entries) => tables.push(JumpTable { base: table.base, entries, owner: index }),
            Extent::Unproven(reached) => distrust(table.base, reached),
        }
    }
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

/// The block that starts exactly where this one ends.
pub(crate) fn next_at_end(context: &TableContext<'_, '_>, index: BlockIndex) -> Option<BlockIndex> {
    let block = context.partition.block(index);
    let next = BlockIndex(index.0 + 1);
    let follower = context.partition.blocks.get(next.0 as usize)?;
    (follower.start == block.end && follower.arena == block.arena).then_some(next)
}

/// The byte after the block is padding or outside, so nothing else starts there.
pub(crate) fn end_is_own(partition: &Partition, block: &Block) -> bool {
    match partition.gap_containing(block.end) {
        Some(gap) => partition.gaps[gap].content == GapContent::Padding,
        None => partition.block_containing(block.end).is_none(),
    }
}
