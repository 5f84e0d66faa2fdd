//! Every byte of every arena belongs to exactly one block or one gap.
//!
//! Takes the function table; gives [`Partition`]. A block is a maximal run of overlapping function ranges. A gap
//! is what lies between: padding, code without a known function, or bytes that are not code.

use std::iter;
use std::ops::Range;

use crate::decode::{aarch64_gap, gap, padding};
use crate::decoded_atom::MAX_PATCHABLE_BYTES;
use crate::elf::analysis::aarch64::prefixes::Prefixes;
use crate::elf::analysis::entry_prefix::prefix_start;
use crate::elf::analysis::pointers::CodePointer;
use crate::elf::code::CodeSpace;
use crate::elf::functions::ElfFunctions;
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// Position in [`Partition::blocks`], hence in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// Overlapping functions, or one function.
#[derive(Clone, Debug)]
pub struct Block {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// Start of the first function, after any padding that something refers to.
    pub first_function: Address,
    /// Starts of further functions, ascending; hardly any block has any.
    pub further_functions: Vec<Address>,
    /// A new start must equal the old one modulo this power of two.
    pub modulus: u64,
    /// The code reads aligned data inside itself, so the modulus is not negotiable.
    pub keeps_alignment: bool,
    /// The code takes the address of a place inside itself.
    pub takes_own_address: bool,
    /// Position of the arena in the code space.
    pub arena: u32,
}

/// What a gap holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapContent {
    /// Proven filler: free space.
    Padding,
    /// Instructions without a function: never moved, never written.
    Code,
    /// Bytes that do not decode: never moved, never written, may refer to anything.
    Opaque,
}

/// What decoding shows of one block.
#[derive(Clone, Copy, Debug)]
pub struct BlockTraits {
    /// The code reads aligned data inside itself.
    pub has_inner_data: bool,
    /// The code takes the address of a place inside itself.
    pub takes_own_address: bool,
}

/// Bytes between blocks.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// What it holds.
    pub content: GapContent,
}

impl Gap {
    /// Parts whose names count as those of one function. Each begins in the middle of the one before it.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Range<Address>> {
        const SIZE: u64 = 1 << 14;
        const STEP: u64 = SIZE / 2;
        let (start, size) = (self.start, self.end.distance_from(self.start));
        (0..size.div_ceil(STEP)).map(move |number| {
            let before = number * STEP;
            start.plus(before)..start.plus(size.min(before + SIZE))
        })
    }
}

/// All blocks and gaps, each sorted by address.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// The gaps.
    pub gaps: Vec<Gap>,
}

/// Starts keep their alignment up to this: what compilers give functions. More is kept only where code reads
/// aligned constants inside a function.
pub const ORDINARY_ALIGNMENT: u64 = 16;
/// The widest vector loads from constants inside a function.
const DATA_ALIGNMENT: u64 = 64;

impl Partition {
    /// Splits all arenas.
    pub fn new(code: &CodeSpace<'_>, functions: &ElfFunctions<'_>, pointers: &[CodePointer]) -> Self {
        let mut partition = Self { blocks: Vec::with_capacity(functions.table.len()), gaps: Vec::new() };
        let prefixes = match code.processor {
            Processor::Aarch64 => Prefixes::find(code, functions, pointers),
            Processor::X86_64 | Processor::Other => Prefixes::default(),
        };
        let mut remaining = functions.table.iter().map(|(_, function)| function).peekable();
        for (index, arena) in code.arenas.iter().enumerate() {
            let mut position = arena.start;
            while let Some(function) = remaining.next_if(|function| function.start < arena.end) {
                match partition.blocks.last_mut() {
                    Some(block) if block.arena == index as u32 && function.start < block.end => {
                        block.end = block.end.max(function.end);
                        block.modulus = block.modulus.max(alignment(function.start, ORDINARY_ALIGNMENT));
                        if block.function_starts().next_back() != Some(function.start) {
                            block.further_functions.push(function.start);
                        }
                        position = block.end;
                        continue;
                    }
                    _ => {}
                }
                let prefix = prefixes.of(function.start);
                let start = partition.push_gap(code, pointers, position, function.start, prefix);
                partition.blocks.push(Block {
                    start,
                    end: function.end,
                    first_function: function.start,
                    further_functions: Vec::new(),
                    modulus: alignment(function.start, ORDINARY_ALIGNMENT),
                    keeps_alignment: false,
                    takes_own_address: false,
                    arena: index as u32,
                });
                position = function.end;
            }
            partition.push_gap_pieces(code, position, arena.end);
        }
        partition
    }

    /// The partition after decoding: `traits` are those of the blocks, in order; `code_in_gaps` becomes the content of gaps
    /// that look like code. Blocks without traits stay as they are.
    #[must_use]
    pub fn decoded(self, traits: impl IntoIterator<Item = BlockTraits>, code_in_gaps: GapContent) -> Self {
        let Self { blocks, gaps } = self;
        let mut traits = traits.into_iter();
        let blocks = blocks.into_iter().map(|block| match traits.next() {
            Some(traits) => block.with(traits),
            None => block,
        });
        let gaps = gaps.into_iter().map(|gap| match gap.content {
            GapContent::Code => Gap { content: code_in_gaps, ..gap },
            GapContent::Padding | GapContent::Opaque => gap,
        });
        Self { blocks: blocks.collect(), gaps: gaps.collect() }
    }

    /// The block containing `address`.
    pub fn block_containing(&self, address: Address) -> Option<BlockIndex> {
        let after = self.blocks.partition_point(|block| block.start <= address);
        let index = after.checked_sub(1)?;
        (address < self.blocks[index].end).then_some(BlockIndex(index as u32))
    }

    /// The block with a function that starts at `address`, or that only no-operations separate from `address`: patchable
    /// functions have some on both sides of the start that their unwind entries state.
    pub fn entered_at(&self, code: &CodeSpace<'_>, address: Address) -> Option<BlockIndex> {
        let index = self.block_containing(address)?;
        let block = self.block(index);
        if block.is_entry(address) {
            return Some(index);
        }
        let is_filler = |range: Range<Address>| {
            let bytes = code.bytes(range.clone());
            bytes.len() as u64 <= MAX_PATCHABLE_BYTES
                && padding_length(code.processor, bytes, range.start) == bytes.len()
        };
        let (before, after) = block.starts_around(address);
        let is_entered = before.is_some_and(|before| is_filler(before..address))
            || after.is_some_and(|after| is_filler(address..after));
        is_entered.then_some(index)
    }

    /// The gap containing `address`.
    pub fn gap_containing(&self, address: Address) -> Option<usize> {
        let index = self.gaps.partition_point(|gap| gap.start <= address).checked_sub(1)?;
        (address < self.gaps[index].end).then_some(index)
    }

    /// The start of the bytes right before a block that belong to no function and are no padding. Such a gap may be code without
    /// a symbol, as in the startup files of C, and end with constants of the block; a gap that is plainly code up to its end
    /// gives `None`. Zeros that control does not reach are filler of a linker.
    pub fn bytes_before(&self, code: &CodeSpace<'_>, block: BlockIndex) -> Option<Address> {
        let start = self.block(block).start;
        let gap = self.gaps[..self.gaps.partition_point(|gap| gap.start < start)].last()?;
        let is_code_to_its_end = || {
            let bytes = code.bytes(gap.start..gap.end);
            let length = code_length(code.processor, bytes, gap.start);
            gap.content == GapContent::Code
                && (length.is_some_and(|length| length < bytes.len())
                    || gap::ends_with_jump(bytes, gap.start))
        };
        let is_before = gap.end == start && gap.content != GapContent::Padding;
        (is_before && !is_code_to_its_end()).then_some(gap.start)
    }

    /// Bytes of proven filler.
    pub fn padding_bytes(&self) -> u64 {
        let padding = self.gaps.iter().filter(|gap| gap.content == GapContent::Padding);
        padding.map(|gap| gap.end.distance_from(gap.start)).sum()
    }

    /// The block with this index.
    pub fn block(&self, index: BlockIndex) -> &Block {
        &self.blocks[index.0 as usize]
    }

    /// Adds the gap before a block, whose `prefix` may be known; returns where the block then starts.
    fn push_gap(
        &mut self,
        code: &CodeSpace<'_>,
        pointers: &[CodePointer],
        start: Address,
        end: Address,
        prefix: Option<Address>,
    ) -> Address {
        if start >= end {
            return end;
        }
        let bytes = code.bytes(start..end);
        let block_start = prefix_start(code.processor, bytes, pointers, start);
        let block_start = prefix.map_or(block_start, |prefix| prefix.min(block_start));
        self.push_gap_pieces(code, start, block_start);
        block_start
    }
}

impl Partition {
    /// Filler on both sides of code is free, whatever stands between.
    fn push_gap_pieces(&mut self, code: &CodeSpace<'_>, start: Address, end: Address) {
        if start >= end {
            return;
        }
        let bytes = code.bytes(start..end);
        let before = padding_length(code.processor, bytes, start);
        // Bytes that do not decode may end anywhere.
        let (content, length) = match code_length(code.processor, &bytes[before..], start.plus(before as u64))
        {
            Some(length) => (GapContent::Code, length),
            None => (GapContent::Opaque, bytes.len() - before),
        };
        // Zeros may be the end of a table that stands in the code.
        let length = match length {
            0 => 0,
            length => length + bytes[before + length..].iter().take_while(|byte| **byte == 0).count(),
        };
        let (code_start, code_end) = (start.plus(before as u64), start.plus((before + length) as u64));
        let pieces = [
            Gap { start, end: code_start, content: GapContent::Padding },
            Gap { start: code_start, end: code_end, content },
            Gap { start: code_end, end, content: GapContent::Padding },
        ];
        self.gaps.extend(pieces.into_iter().filter(|gap| gap.start < gap.end));
    }
}

impl Block {
    /// Start of each function inside, ascending.
    pub fn function_starts(&self) -> impl DoubleEndedIterator<Item = Address> {
        iter::once(self.first_function).chain(self.further_functions.iter().copied())
    }

    /// The starts of functions right before and after `address`, where none starts.
    fn starts_around(&self, address: Address) -> (Option<Address>, Option<Address>) {
        let further = self.further_functions.partition_point(|start| *start < address);
        let is_after_first = self.first_function < address;
        let before = match further.checked_sub(1) {
            Some(last) => self.further_functions.get(last).copied(),
            None => is_after_first.then_some(self.first_function),
        };
        let after = match is_after_first {
            true => self.further_functions.get(further).copied(),
            false => Some(self.first_function),
        };
        (before, after)
    }

    /// Whether a function starts at `address`, or the block itself does.
    pub fn is_entry(&self, address: Address) -> bool {
        address == self.start
            || address == self.first_function
            || self.further_functions.binary_search(&address).is_ok()
    }

    /// The block with these traits: it keeps the alignment that constants inside it may need.
    fn with(self, traits: BlockTraits) -> Self {
        let BlockTraits { has_inner_data, takes_own_address } = traits;
        let widest = self.function_starts().map(|start| alignment(start, DATA_ALIGNMENT)).max();
        let modulus = widest.filter(|_| has_inner_data).unwrap_or(self.modulus);
        Self { modulus, keeps_alignment: has_inner_data, takes_own_address, ..self }
    }

    /// What holds instructions: all but what stands before the first entry, which may be data.
    pub fn code(&self) -> Range<Address> {
        self.first_function..self.end
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.end.distance_from(self.start)
    }
}

pub(super) fn padding_length(processor: Processor, bytes: &[u8], start: Address) -> usize {
    match processor {
        Processor::Aarch64 => aarch64_gap::padding_length(bytes, start),
        Processor::X86_64 | Processor::Other => padding::padding_length(bytes),
    }
}

fn code_length(processor: Processor, bytes: &[u8], start: Address) -> Option<usize> {
    match processor {
        Processor::Aarch64 => aarch64_gap::code_length(bytes, start),
        Processor::X86_64 | Processor::Other => gap::code_length(bytes),
    }
}

/// The largest power of two, at most `limit`, that divides `start`.
pub fn alignment(start: Address, limit: u64) -> u64 {
    (1u64 << start.0.trailing_zeros().min(63)).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_gap_overlap_and_end_with_it() {
        let pieces = |start: u64, end: u64| {
            let gap = Gap { start: Address(start), end: Address(end), content: GapContent::Opaque };
            gap.pieces().take(9).map(|piece| (piece.start.0, piece.end.0)).collect::<Vec<_>>()
        };
        assert_eq!(pieces(0x1000, 0x6001), [(0x1000, 0x5000), (0x3000, 0x6001), (0x5000, 0x6001)]);
        // The last bytes of the address space.
        let last = u64::MAX - 0xfff;
        assert_eq!(pieces(last, u64::MAX), [(last, u64::MAX)]);
        assert_eq!(pieces(0x1000, 0x1000), []);
    }
}
