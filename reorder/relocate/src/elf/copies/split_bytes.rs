//! Bytes that look like an instruction and are parts of others: in functions that can be read in one way only.

use std::collections::BTreeMap;
use std::ops::Range;

use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::{Block, BlockIndex};

use super::step::{Step, Use};
use super::x86_64;

/// Finds such bytes. Each function is read once.
pub(super) struct SplitBytes<'run> {
    analysis: &'run Analysis<'run>,
    /// Functions that nothing describes, ascending: where they begin and end is a guess.
    found: &'run [Range<Address>],
    /// Where the instructions of each function end that was asked for; `None` if it may be read in another way.
    ends: BTreeMap<BlockIndex, Option<Vec<Address>>>,
}

impl<'run> SplitBytes<'run> {
    pub(super) fn new(analysis: &'run Analysis<'run>, found: &'run [Range<Address>]) -> Self {
        Self { analysis, found, ends: BTreeMap::new() }
    }

    /// Whether the bytes around `place`, which look like a `LEA` with its displacement there, are certainly parts of other
    /// instructions of x86-64.
    pub(super) fn are_no_lea(&mut self, place: Address) -> bool {
        const OPCODE: u64 = 2;
        const DISPLACEMENT: u64 = 4;
        let (first, end) = (place.0.saturating_sub(OPCODE), place.plus(DISPLACEMENT));
        let Some((index, block)) = self.block(place) else { return false };
        let is_whole = block.code().start.0 <= first && end <= block.end;
        is_whole && self.ends_of(index).is_some_and(|ends| ends.binary_search(&end).is_err())
    }

    /// Whether `address` is certainly in the middle of an instruction of x86-64.
    pub(super) fn has_middle_at(&mut self, address: Address) -> bool {
        let Some((index, block)) = self.block(address) else { return false };
        let is_inside = block.code().start < address;
        is_inside && self.ends_of(index).is_some_and(|ends| ends.binary_search(&address).is_err())
    }

    fn block(&self, address: Address) -> Option<(BlockIndex, &'run Block)> {
        let index = self.analysis.partition.block_containing(address)?;
        let block = self.analysis.partition.block(index);
        let next = self.found.partition_point(|found| found.end <= block.start);
        let is_found = self.found.get(next).is_some_and(|found| found.start < block.end);
        (self.analysis.code.processor == Processor::X86_64 && !is_found).then_some((index, block))
    }

    fn ends_of(&mut self, index: BlockIndex) -> Option<&[Address]> {
        let analysis = self.analysis;
        self.ends.entry(index).or_insert_with(|| read(analysis, analysis.partition.block(index))).as_deref()
    }
}

/// Where the instructions of `block` end, if all its bytes are instructions, its functions begin with one, and so does what its
/// instructions state of it. A computed jump may lead anywhere.
fn read(analysis: &Analysis<'_>, block: &Block) -> Option<Vec<Address>> {
    let range = block.code();
    let mut stated: Vec<Address> = block.function_starts().collect();
    let (mut at, mut ends) = (range.start, Vec::new());
    while at < range.end {
        let step = x86_64::step(analysis.code.bytes(at..range.end), at)?;
        if is_computed_jump(&step) {
            return None;
        }
        stated.extend(step.reference.map(|reference| reference.target));
        at = at.plus(u64::from(step.length));
        ends.push(at);
    }
    let is_known = |address: &Address| {
        !range.contains(address) || *address == range.start || ends.binary_search(address).is_ok()
    };
    (at == range.end && stated.iter().all(is_known)).then_some(ends)
}

fn is_computed_jump(step: &Step) -> bool {
    let is_direct = step.reference.is_some_and(|reference| reference.usage == Use::Jump);
    !step.continues && !is_direct && !step.is_skippable && !step.is_trap
}
