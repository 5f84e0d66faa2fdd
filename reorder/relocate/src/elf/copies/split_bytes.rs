//! Bytes that look like an instruction and are parts of others: in functions that can be read in one way only.

use std::collections::BTreeMap;
use std::ops::Range;

use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::{Block, BlockIndex};

use super::step::Use;
use super::x86_64;

/// Finds them. Each function is read once.
pub(super) struct SplitBytes<'run> {
    analysis: &'run Analysis<'run>,
    /// Where the instructions of each function end that was asked for; `None` if it may be read in another way.
    ends: BTreeMap<BlockIndex, Option<Vec<Address>>>,
}

impl<'run> SplitBytes<'run> {
    pub(super) fn new(analysis: &'run Analysis<'run>) -> Self {
        Self { analysis, ends: BTreeMap::new() }
    }

    /// Whether no instruction ends at `end`, for certain, so that none begins there either: the bytes before it lie in a function of
    /// x86-64 that can be read in one way only.
    pub(super) fn are_before(&mut self, end: Address) -> bool {
        let (partition, code) = (&self.analysis.partition, &self.analysis.code);
        let last_byte = end.0.checked_sub(1).map(Address);
        let block = last_byte.and_then(|last| partition.block_containing(last));
        let Some(block) = block.filter(|_| code.processor == Processor::X86_64) else { return false };
        let analysis = self.analysis;
        let ends = self.ends.entry(block).or_insert_with(|| {
            let Block { start, end, .. } = *partition.block(block);
            ends_of(analysis, start..end, partition.block(block).function_starts())
        });
        ends.as_ref().is_some_and(|ends| ends.binary_search(&end).is_err())
    }
}

/// Where the instructions in `range` end: all its bytes are instructions, and its functions and the targets of its branches begin
/// with one.
fn ends_of(
    analysis: &Analysis<'_>,
    range: Range<Address>,
    starts: impl Iterator<Item = Address>,
) -> Option<Vec<Address>> {
    let mut entered: Vec<Address> = starts.collect();
    let (mut at, mut ends) = (range.start, Vec::new());
    while at < range.end {
        let step = x86_64::step(analysis.code.bytes(at..range.end), at)?;
        let branch = step.reference.filter(|reference| reference.usage != Use::Value);
        entered.extend(branch.map(|branch| branch.target));
        at = at.plus(u64::from(step.length));
        ends.push(at);
    }
    let is_known = |target: &Address| {
        !range.contains(target) || *target == range.start || ends.binary_search(target).is_ok()
    };
    (at == range.end && entered.iter().all(is_known)).then_some(ends)
}
