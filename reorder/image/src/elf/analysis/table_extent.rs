//! The end of a jump table.
//!
//! A word can be an entry if it leads to an instruction. A table is followed by arbitrary data, which can look the same.
//! Data may also be read from its end or from an address outside of it, so references do not separate tables from arrays.
//! Two kinds of evidence do:
//!
//! * the code before the load: if a comparison bounds the index to n entries, and n words can be entries, these are the table; if a
//!   later word is necessary, the end is unknown. A mask is only a limit: for `switch (x & 7)` with five cases and an unreachable
//!   default, compilers write five words, not eight;
//! * necessity: if a word leads to an instruction that neither other code nor another table reaches, it is an entry, since
//!   compilers emit no dead code; and so are all words before it.
//!
//! Later words that repeat earlier ones, or lead where only this and other tables lead, count only if another table or the section's
//! end follows them. An array can hold the distance to a case by chance.
//!
//! Something that refers to a place in a table may refer to an array that begins there. So words from there on prove
//! nothing, unless the index is bounded and a word after the last such place is necessary; within a mask, the last word.
//!
//! If words remain that can be entries but are not proven to be, the end is unknown: the owner is pinned, and so is all code
//! to which these words can lead.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::blocks::{Block, BlockIndex, GapContent};
use super::index_value::LargestIndex;
use super::jump_tables::{TableContext, end_is_own, next_at_end};
use super::references::is_boundary;
use crate::elf::section::Section;
use reorder_base::address::Address;

/// Bound on the entries of one table; compilers emit fewer.
const MAX_ENTRIES: usize = 1 << 16;
/// Number of first words of a possible table of which one must lead into its owner.
const PROBED_WORDS: usize = 8;
/// Bytes of the largest gap that aligns what follows a table.
const MAX_PADDING: usize = 63;

/// Where a word leads if it is an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An instruction of the owner, or its end: compilers send impossible cases there.
    Own(Address),
    /// An instruction of another block.
    Other(BlockIndex, Address),
    /// Code that never moves.
    Fixed,
    /// The end of a block that no code follows. Compilers send impossible cases to where a part of the function ends.
    Nowhere,
}

impl Target {
    /// The instruction, if it can move.
    fn address(self) -> Option<Address> {
        match self {
            Self::Own(address) | Self::Other(_, address) => Some(address),
            Self::Fixed | Self::Nowhere => None,
        }
    }
}

/// The extent of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The number of entries, at least one.
    Proven(u32),
    /// The end is unknown. The blocks that entries may lead to, without the owner.
    Unproven(Vec<BlockIndex>),
}

/// The block that dispatches.
pub(crate) struct Owner<'owner> {
    /// Its index.
    pub index: BlockIndex,
    /// The block.
    pub block: &'owner Block,
    /// Its instructions that neither a branch nor the instruction before them reaches, sorted.
    pub orphans: &'owner [Address],
}

/// What the code that reads a table shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The address that distances count from, which is the first word's.
    pub base: Address,
    /// The largest index that the code can reach, if something bounds it.
    pub bound: Option<LargestIndex>,
}

/// The tables of all dispatches. Each ends where the next begins, at the latest.
pub(crate) struct AllTables {
    /// Their addresses, sorted.
    bases: Vec<Address>,
    /// Where their words may lead, each with the table, sorted.
    targets: Vec<(Address, Address)>,
}

impl AllTables {
    /// From each table with the block that dispatches through it.
    pub(crate) fn new(context: &TableContext<'_, '_>, shown: &[(BlockIndex, Shown)]) -> Self {
        let mut bases: Vec<Address> = shown.iter().map(|(_, table)| table.base).collect();
        bases.sort_unstable();
        bases.dedup();
        let mut all = Self { bases, targets: Vec::new() };
        let targets = shown.par_iter().flat_map_iter(|&(index, table)| {
            let block = context.partition.block(index);
            let entries = possible_entries(context, index, block, table.base, all.limit(table));
            entries.into_iter().filter_map(move |(_, target)| Some((target.address()?, table.base)))
        });
        let mut targets: Vec<_> = targets.collect();
        targets.par_sort_unstable();
        targets.dedup();
        all.targets = targets;
        all
    }

    /// The largest number of entries of a table.
    fn limit(&self, table: Shown) -> usize {
        (self.room(table.base) / 4)
            .min(table.bound.map_or(u64::MAX, |bound| bound.entries()))
            .min(MAX_ENTRIES as u64) as usize
    }

    /// Bytes from `base` to the next table; all ones if none follows.
    fn room(&self, base: Address) -> u64 {
        let next = self.bases.partition_point(|other| *other <= base);
        self.bases.get(next).map_or(u64::MAX, |next| next.distance_from(base))
    }

    /// Whether a table other than that at `base` may lead to `target`.
    fn others_lead_to(&self, target: Address, base: Address) -> bool {
        let first = self.targets.partition_point(|&(other, _)| other < target);
        self.targets[first..].iter().take_while(|&&(other, _)| other == target).any(|&(_, from)| from != base)
    }
}

/// The extent of a table.
pub(crate) fn extent(
    context: &TableContext<'_, '_>,
    owner: &Owner<'_>,
    table: Shown,
    all: &AllTables,
) -> Extent {
    let Shown { base, bound } = table;
    let mut entries = possible_entries(context, owner.index, owner.block, base, all.limit(table));
    let is_bounded = bound.is_some_and(|bound| bound.entries() == entries.len() as u64)
        && entries.iter().all(|(_, target)| {
            !matches!(target, Target::Other(other, _) if !is_part(context, owner.index, *other))
        });
    let is_complete = is_bounded && bound.is_some_and(|bound| bound.is_stated);
    if !is_complete {
        // Words that lead nowhere stay as they are, so it does not matter whether the last ones are entries.
        let used = entries.iter().rposition(|(_, target)| *target != Target::Nowhere);
        entries.truncate(used.map_or(0, |last| last + 1));
    }
    let unnamed = words_before_name(context, base);
    let is_shared =
        |target: Target| target.address().is_some_and(|address| all.others_lead_to(address, base));
    let necessary = |entries: &[(u32, Target)]| necessary_entries(context, owner, entries, &is_shared);
    if bound.is_some() {
        // The compiler may not have used this bound: then the table has entries past it, which are never read. Their count is not proven.
        let all_entries =
            possible_entries(context, owner.index, owner.block, base, all.limit(Shown { base, bound: None }));
        if necessary(&all_entries[..all_entries.len().min(unnamed)]) > entries.len() {
            return Extent::Unproven(others(context, owner.index, owner.block, &all_entries));
        }
    }
    // A necessary word proves all words before it, whatever is named among them.
    let needed = necessary(&entries);
    let is_past_names = needed >= words_up_to_last_name(context, base, entries.len());
    let certain = if is_complete && is_past_names || is_bounded && needed == entries.len() {
        entries.len()
    } else {
        let entries = &entries[..entries.len().min(unnamed)];
        certain_entries(context, owner, base, (entries, necessary(entries)), all)
    };
    if certain == entries.len() && certain > 0 {
        return Extent::Proven(certain as u32);
    }
    Extent::Unproven(others(context, owner.index, owner.block, &entries))
}

/// The blocks that the words at `base` may lead to, if the owner dispatches through them in an unknown way.
pub(crate) fn reached(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    block: &Block,
    base: Address,
) -> Vec<BlockIndex> {
    others(context, index, block, &possible_entries(context, index, block, base, MAX_ENTRIES))
}

/// The instructions of the owner that the words at `base` may lead to.
pub(crate) fn own_targets<'context>(
    context: &'context TableContext<'_, '_>,
    index: BlockIndex,
    block: &'context Block,
    base: Address,
) -> impl Iterator<Item = Address> + use<'context> {
    let entries = possible_entries(context, index, block, base, MAX_ENTRIES);
    entries.into_iter().filter_map(|(_, target)| match target {
        Target::Own(address) => Some(address),
        _ => None,
    })
}

/// Whether the words at `base` look like a table of the block: the first leads into it, or the first ones lead to code
/// and one of them into the block.
pub(crate) fn may_be_table(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    block: &Block,
    base: Address,
) -> bool {
    let entries = possible_entries(context, index, block, base, PROBED_WORDS);
    let leads_in = |(_, target): &(u32, Target)| match target {
        Target::Own(_) => true,
        Target::Other(other, _) => is_related(context, index, *other),
        Target::Fixed | Target::Nowhere => false,
    };
    entries.first().is_some_and(leads_in) || entries.len() > 2 && entries.iter().any(leads_in)
}

/// The blocks that entries lead to, without the owner. One that leads to the owner's end may mean the block that starts there.
fn others(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    block: &Block,
    entries: &[(u32, Target)],
) -> Vec<BlockIndex> {
    let blocks = entries.iter().filter_map(|(_, target)| match *target {
        Target::Other(other, _) => Some(other),
        Target::Own(address) if address == block.end => next_at_end(context, index),
        Target::Own(_) | Target::Fixed | Target::Nowhere => None,
    });
    blocks.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Number of words before the first named place past the table's start. Data may begin there.
fn words_before_name(context: &TableContext<'_, '_>, base: Address) -> usize {
    let after = context.named_data.partition_point(|name| *name <= base);
    let name = context.named_data.get(after).map_or(u64::MAX, |name| name.distance_from(base));
    usize::try_from(name / 4).unwrap_or(usize::MAX)
}

/// Number of words up to and with the one in which the last of the names among the first `entries` words lies; 0 if there is none.
fn words_up_to_last_name(context: &TableContext<'_, '_>, base: Address, entries: usize) -> usize {
    let after = context.named_data.partition_point(|name| *name < base.plus(4 * entries as u64));
    let last = context.named_data[..after].last().filter(|name| **name > base);
    last.map_or(0, |name| name.distance_from(base) as usize / 4 + 1)
}

/// Whether only a table can lead to the target.
fn needs_table(context: &TableContext<'_, '_>, owner: &Owner<'_>, target: Target) -> bool {
    match target {
        Target::Own(address) => owner.orphans.binary_search(&address).is_ok(),
        Target::Other(block, address) => {
            is_part(context, owner.index, block)
                && !context.uses.is_referenced(block)
                && context.partition.block(block).start == address
        }
        Target::Fixed | Target::Nowhere => false,
    }
}

/// Number of words up to the last one that leads where nothing else does; `is_shared` says where another table leads.
fn necessary_entries(
    context: &TableContext<'_, '_>,
    owner: &Owner<'_>,
    entries: &[(u32, Target)],
    is_shared: &impl Fn(Target) -> bool,
) -> usize {
    let mut seen = BTreeSet::new();
    let mut last = 0;
    for (index, &(word, target)) in entries.iter().enumerate() {
        if seen.insert(word) && needs_table(context, owner, target) && !is_shared(target) {
            last = index + 1;
        }
    }
    last
}

/// Number of entries that are proven without a bound; the first `necessary` ones are.
fn certain_entries(
    context: &TableContext<'_, '_>,
    owner: &Owner<'_>,
    base: Address,
    (entries, necessary): (&[(u32, Target)], usize),
    all: &AllTables,
) -> usize {
    let (before, after) = entries.split_at(necessary);
    let mut known: BTreeSet<u32> = before.iter().map(|(word, _)| *word).collect();
    let mut likely = necessary;
    for &(word, target) in after {
        // Past the necessary words, a new target that needs a table is another table's too.
        if known.insert(word) && !needs_table(context, owner, target) {
            break;
        }
        likely += 1;
    }
    if is_last(context, base, likely, all) { likely } else { necessary }
}

/// Whether only padding separates the first `entries` words from the next table or the section's end.
fn is_last(context: &TableContext<'_, '_>, base: Address, entries: usize, all: &AllTables) -> bool {
    let Some(bytes) = table_bytes(context, base) else { return false };
    let end = usize::try_from(all.room(base)).map_or(bytes.len(), |room| bytes.len().min(room));
    let padding = bytes.get(4 * entries..end);
    padding.is_some_and(|padding| padding.len() <= MAX_PADDING && padding.iter().all(|&byte| byte == 0))
}

/// The words from `base` on that can be entries, at most `limit`.
fn possible_entries(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    block: &Block,
    base: Address,
    limit: usize,
) -> Vec<(u32, Target)> {
    let bytes = table_bytes(context, base).unwrap_or_default();
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let places = (0..).map(|position| base.plus(4 * position));
    let entries = words.zip(places).take(limit).map_while(|(word, place)| {
        if overlaps(context.loader_places, place) {
            return None;
        }
        let target = target_of(context, index, block, base.plus(i64::from(word as i32) as u64))?;
        Some((word, target))
    });
    entries.collect()
}

/// The bytes from `base` to the end of its section, if a table can be there.
fn table_bytes<'data>(context: &TableContext<'_, 'data>, base: Address) -> Option<&'data [u8]> {
    let can_hold = |section: &&Section<'_>| {
        section.is_loaded() && section.has_bytes() && !section.is_executable() && section.contains(base)
    };
    let section = context.file.sections.iter().find(can_hold).filter(|_| base.0.is_multiple_of(4))?;
    context.file.section_bytes(section).get(base.distance_from(section.address) as usize..)
}

fn target_of(
    context: &TableContext<'_, '_>,
    index: BlockIndex,
    block: &Block,
    target: Address,
) -> Option<Target> {
    let (partition, code) = (context.partition, context.code);
    let ends_here = target == block.end;
    if ends_here && (end_is_own(partition, block) || next_at_end(context, index).is_some()) {
        return Some(Target::Own(target));
    }
    let before = partition.block_containing(target.plus(u64::MAX));
    let nowhere = before.filter(|before| partition.block(*before).end == target).map(|_| Target::Nowhere);
    if code.arena_of(target).is_none() {
        return nowhere;
    }
    if let Some(gap) = partition.gap_containing(target) {
        return match partition.gaps[gap].content {
            GapContent::Code => Some(Target::Fixed),
            GapContent::Padding => nowhere,
            GapContent::Opaque => None,
        };
    }
    let other = partition.block_containing(target)?;
    is_boundary(code, context.boundaries, target).then_some(match other == index {
        true => Target::Own(target),
        false => Target::Other(other, target),
    })
}

fn is_related(context: &TableContext<'_, '_>, index: BlockIndex, other: BlockIndex) -> bool {
    context.related.binary_search(&(index, other)).is_ok()
}

/// Whether `other` can be a part that the compiler split off the owner.
fn is_part(context: &TableContext<'_, '_>, index: BlockIndex, other: BlockIndex) -> bool {
    is_related(context, index, other) || context.uses.may_be_part(other)
}

/// Whether any byte of the word at `place` is listed.
fn overlaps(sorted: &[Address], place: Address) -> bool {
    let first = sorted.partition_point(|address| *address < place);
    sorted.get(first).is_some_and(|address| address.distance_from(place) < 4)
}
