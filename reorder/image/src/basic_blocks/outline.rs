//! From instructions to basic blocks.

use std::ops::Range;

use super::tables::{Table, targets};
use super::{LoadedBytes, Unclear};
use reorder_base::address::Address;

/// The instructions and basic blocks of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The function's bytes; fields that state addresses outside of it are zero, so that the same source compiled into
    /// another build of the image gives the same bytes.
    pub masked: Vec<u8>,
    /// Ascending; the first begins at 0. Padding after a block belongs to none.
    pub blocks: Vec<BasicBlock>,
    /// Where its jumps lead outside of it, ascending, each once.
    pub leaving: Vec<Address>,
    /// Where its calls and jumps lead outside of it, in the order of its instructions.
    pub called: Vec<Address>,
    /// Where these instructions begin, parallel to `called`.
    pub called_at: Vec<u32>,
    /// Where instructions begin that call or jump to an address in a register or in memory, ascending; of x86-64 alone.
    pub computed: Vec<u32>,
    /// Where its instructions begin, ascending.
    instructions: Vec<u32>,
    /// Where instructions begin after which control may not go on at all, or late, ascending.
    calls: Vec<u32>,
    /// Bytes.
    size: u32,
}

/// One basic block, in bytes from the function's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Its first byte.
    pub start: u32,
    /// The byte after its last.
    pub end: u32,
    /// Where the only block begins that can follow it, if there is one in the function.
    pub next: Option<u32>,
}

impl Outline {
    /// The block that holds the byte at `offset`.
    pub fn block_around(&self, offset: u32) -> Option<BasicBlock> {
        let after = self.blocks.partition_point(|block| block.start <= offset);
        self.blocks.get(after.checked_sub(1)?).copied().filter(|block| offset < block.end)
    }

    /// Whether control that reaches the instruction at `start` also reaches `end`, unless it is interrupted: both are in one
    /// block, and no call is between them.
    pub fn runs_through(&self, start: u32, end: u32) -> bool {
        let call = self.calls.get(self.calls.partition_point(|call| *call < start));
        call.is_none_or(|call| *call >= end)
    }

    /// Whether an instruction begins at `offset`.
    pub fn begins_instruction(&self, offset: u32) -> bool {
        self.instructions.binary_search(&offset).is_ok()
    }

    /// Whether an instruction ends right before `offset`.
    pub fn ends_instruction(&self, offset: u32) -> bool {
        offset > 0 && (offset == self.size || self.begins_instruction(offset))
    }
}

/// What one pass over the instructions found.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    pub(super) masked: Vec<u8>,
    /// Where instructions begin, ascending.
    pub(super) instructions: Vec<u32>,
    /// Where blocks begin, in any order.
    pub(super) leaders: Vec<u32>,
    /// Ends of the instructions after which control does not go on, ascending; where it is sure to go on instead.
    pub(super) stops: Vec<(u32, Option<u32>)>,
    /// Ends of the branches that may be taken or not, ascending.
    pub(super) branches: Vec<u32>,
    /// Where calls of functions or of the system begin, ascending.
    pub(super) calls: Vec<u32>,
    /// Where calls and jumps begin that compute or read their target, ascending.
    pub(super) computed: Vec<u32>,
    /// Targets of jumps outside of the function.
    pub(super) leaving: Vec<Address>,
    /// Calls and jumps that leave the function: where they begin, and their targets; in the order of the instructions.
    pub(super) called: Vec<(u32, Address)>,
    /// What may be a jump table; empty where no jump could use one.
    pub(super) tables: Vec<Table>,
}

impl Sketch {
    /// Adds the targets of jump tables and checks all targets.
    pub(super) fn finish(
        self,
        loaded: &LoadedBytes,
        file: &[u8],
        range: &Range<Address>,
    ) -> Result<Outline, Unclear> {
        let Self {
            masked,
            instructions,
            mut leaders,
            stops,
            branches,
            calls,
            computed,
            mut leaving,
            called,
            tables,
        } = self;
        let is_instruction = |offset: &u32| instructions.binary_search(offset).is_ok();
        if !leaders.iter().all(is_instruction) {
            return Err(Unclear::IntoInstruction);
        }
        let mut tables: Vec<Table> = tables;
        tables.sort_unstable();
        tables.dedup();
        // Honest tables are shorter than the code that they lead to.
        let mut budget = masked.len();
        for table in tables {
            leaders.extend(targets(loaded, file, range, table, &mut budget, is_instruction));
        }
        leaders.push(0);
        leaders.sort_unstable();
        leaders.dedup();
        leaving.sort_unstable();
        leaving.dedup();
        let size = masked.len() as u32;
        let ends = leaders.iter().skip(1).copied().chain([size]);
        let block = |(start, end): (&u32, u32)| {
            let stop = stops.get(stops.partition_point(|(stop, _)| stop <= start));
            let (end, next) = match stop.filter(|(stop, _)| *stop <= end) {
                Some((stop, next)) => (*stop, *next),
                None if branches.binary_search(&end).is_ok() || end == size => (end, None),
                None => (end, Some(end)),
            };
            BasicBlock { start: *start, end, next }
        };
        let blocks = leaders.iter().zip(ends).map(block).collect();
        let (called_at, called) = called.into_iter().unzip();
        Ok(Outline { masked, blocks, leaving, called, called_at, computed, instructions, calls, size })
    }
}
