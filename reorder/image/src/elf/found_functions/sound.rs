//! Which of the places that were reached are whole functions.

use std::ops::Range;

use fixedbitset::FixedBitSet;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

use super::search::{MAX_ROUNDS, Search, Stated, stated};
use crate::elf::code::CodeOffset;
use reorder_base::address::Address;

/// The number of four or eight bytes that an instruction states: at a fixed address, maybe an address.
fn number(instruction: &Instruction) -> Option<u64> {
    let is_wide =
        |kind: OpKind| matches!(kind, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
    let operand = (0..instruction.op_count()).find(|operand| is_wide(instruction.op_kind(*operand)))?;
    instruction.try_immediate(operand).ok()
}

impl<'run, 'data> Search<'run, 'data> {
    /// All functions that are sound, ascending: their instructions follow each other without a gap, all branches lead to one of
    /// them, and nothing reads their bytes as data. None if the search was ended early.
    pub(super) fn sound_ranges(&self, described: &[Range<Address>]) -> Vec<Range<Address>> {
        if !self.is_complete {
            return Vec::new();
        }
        let ranges: Vec<Range<Address>> = self.ranges().filter(|range| self.is_swept(range)).collect();
        let mut begins = FixedBitSet::with_capacity(self.code.span());
        let mut inside = FixedBitSet::with_capacity(self.code.span());
        for range in &ranges {
            inside.insert_range(self.index(range.start)..self.index(range.end));
            self.instructions(range)
                .for_each(|instruction| begins.insert(self.index(Address(instruction.ip()))));
        }
        let is_code = |address: u64| self.code.arena_of(Address(address)).is_some();
        let is_sound = |instruction: Instruction| match stated(&instruction) {
            Some(Stated::Target(target)) if is_code(target) => {
                let target = self.index(Address(target));
                !inside.contains(target) || begins.contains(target)
            }
            Some(Stated::Read(target)) if is_code(target) => !inside.contains(self.index(Address(target))),
            _ => true,
        };
        let mut disturbed: Vec<u64> = self
            .described_instructions(described)
            .filter(|instruction| !is_sound(*instruction))
            .map(|instruction| instruction.near_branch_target())
            .collect();
        disturbed.sort_unstable();
        let is_calm = |range: &Range<Address>| {
            let first = disturbed.partition_point(|target| *target < range.start.0);
            disturbed.get(first).is_none_or(|target| *target >= range.end.0)
        };
        let is_sound = |range: &Range<Address>| is_calm(range) && self.instructions(range).all(is_sound);
        ranges.into_iter().filter(is_sound).collect()
    }

    /// Those of `ranges` whose starts are in `named`, or are stated by code of a remaining range or of a `described` function that
    /// decodes. The others were stated only by code that was left out. `None` if leaving out one after the other does not end.
    pub(super) fn stated_ranges(
        &self,
        mut ranges: Vec<Range<Address>>,
        described: &[Range<Address>],
        named: &[Address],
    ) -> Option<Vec<Range<Address>>> {
        let mut known = FixedBitSet::with_capacity(self.code.span());
        named.iter().for_each(|address| known.insert(self.index(*address)));
        let is_code = |address: &u64| self.code.arena_of(Address(*address)).is_some();
        // No function vouches for itself.
        let state = |known: &mut FixedBitSet, instruction: &Instruction, own: &Range<Address>| {
            let address = match stated(instruction) {
                Some(Stated::Target(address) | Stated::Address(address)) => Some(address),
                _ => number(instruction).filter(|_| self.code.is_fixed_address),
            };
            let address = address.filter(is_code).map(Address).filter(|address| !own.contains(address));
            known.extend(address.map(|address| self.index(address)));
        };
        let nothing = Address(0)..Address(0);
        self.described_instructions(described)
            .for_each(|instruction| state(&mut known, &instruction, &nothing));
        for _ in 0..MAX_ROUNDS {
            let mut named = known.clone();
            for range in &ranges {
                for instruction in self.instructions(range) {
                    state(&mut named, &instruction, range);
                }
            }
            let before = ranges.len();
            ranges.retain(|range| named.contains(self.index(range.start)));
            if ranges.len() == before {
                return Some(ranges);
            }
        }
        None
    }

    /// From each start to the end of the last instruction that is reached before the next one.
    fn ranges(&self) -> impl Iterator<Item = Range<Address>> + '_ {
        let starts: Vec<usize> = self.starts.ones().collect();
        (0..starts.len()).filter_map(move |number| {
            let start = self.code.address(CodeOffset(starts[number] as u32));
            let arena = self.code.arena_of(start)?;
            let next =
                starts.get(number + 1).map_or(arena.end, |next| self.code.address(CodeOffset(*next as u32)));
            let next = next.min(arena.end);
            let last =
                (starts[number]..self.index(next)).rev().find(|place| self.reached.contains(*place))?;
            let last = self.code.address(CodeOffset(last as u32));
            let end = last.plus(self.decode(last)?.len() as u64);
            (end <= next).then_some(start..end)
        })
    }

    /// Whether `range` decodes to its end without a gap, each instruction that control reaches in it is one of these, and no known
    /// instruction reads its bytes.
    pub(super) fn is_swept(&self, range: &Range<Address>) -> bool {
        let mut next = range.start;
        for instruction in self.instructions(range) {
            if instruction.is_invalid() {
                return false;
            }
            let (first, end) = (self.index(next), self.index(next) + instruction.len());
            let has_other = self.reached.contains_any_in_range(first + 1..end);
            if has_other || self.read.range(first as u32..end as u32).next().is_some() {
                return false;
            }
            next = Address(instruction.next_ip());
        }
        next == range.end
    }

    /// All instructions of those `described` functions that decode.
    pub(super) fn described_instructions<'all>(
        &'all self,
        described: &'all [Range<Address>],
    ) -> impl Iterator<Item = Instruction> + use<'all, 'run, 'data> {
        let decodes = move |range: &&Range<Address>| {
            let is_whole = self.code.arena_of(range.start).is_some_and(|arena| range.end <= arena.end);
            is_whole && self.instructions(range).all(|instruction| !instruction.is_invalid())
        };
        described.iter().filter(decodes).flat_map(|range| self.instructions(range))
    }

    pub(super) fn instructions(
        &self,
        range: &Range<Address>,
    ) -> impl Iterator<Item = Instruction> + use<'data> {
        let bytes = self.code.bytes(range.clone());
        Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE).into_iter()
    }
}
