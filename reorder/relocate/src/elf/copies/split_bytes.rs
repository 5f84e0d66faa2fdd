//! Bytes that look like an instruction and are parts of others.

use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::BlockIndex;

use super::x86_64;

/// Finds them. Places that ascend decode each function once.
pub(super) struct SplitBytes<'run> {
    analysis: &'run Analysis<'run>,
    /// The last function that was asked for, and where its instructions end; `None` if it has bytes that are none.
    last: Option<(BlockIndex, Option<Vec<Address>>)>,
}

impl<'run> SplitBytes<'run> {
    pub(super) fn new(analysis: &'run Analysis<'run>) -> Self {
        Self { analysis, last: None }
    }

    /// Whether no instruction ends at `end`, for certain, so that none begins there either: the bytes before it lie in a function of
    /// x86-64 that decodes completely.
    pub(super) fn are_before(&mut self, end: Address) -> bool {
        let (partition, code) = (&self.analysis.partition, &self.analysis.code);
        let last_byte = end.0.checked_sub(1).map(Address);
        let block = last_byte.and_then(|last| partition.block_containing(last));
        let Some(block) = block.filter(|_| code.processor == Processor::X86_64) else { return false };
        if self.last.as_ref().is_none_or(|(last, _)| *last != block) {
            let range = partition.block(block).start..partition.block(block).end;
            let mut at = range.start;
            let next = || {
                let step = (at < range.end).then(|| x86_64::step(code.bytes(at..range.end), at))?;
                Some(step.map(|step| {
                    at = at.plus(u64::from(step.length));
                    at
                }))
            };
            self.last = Some((block, std::iter::from_fn(next).collect()));
        }
        let ends = self.last.as_ref().and_then(|(_, ends)| ends.as_ref());
        ends.is_some_and(|ends| ends.binary_search(&end).is_err())
    }
}
