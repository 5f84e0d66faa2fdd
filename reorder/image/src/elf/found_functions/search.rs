//! Follows control, one instruction at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fixedbitset::FixedBitSet;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::evidence::{Evidence, evidence};
use crate::decode::padding::is_no_operation;
use crate::elf::code::{CodeOffset, CodeSpace};
use reorder_base::address::Address;

/// What has been reached so far. The sets hold offsets of code.
pub(super) struct Search<'run, 'data> {
    pub(super) code: &'run CodeSpace<'data>,
    /// First bytes of instructions that control reaches.
    reached: FixedBitSet,
    /// Those that control reaches from the instruction before.
    fallen_into: FixedBitSet,
    /// First bytes of functions.
    starts: FixedBitSet,
    /// Indirect jumps after which no code was looked at yet.
    computed_jumps: BTreeSet<u32>,
    /// Where code after computed jumps was looked at.
    passed: FixedBitSet,
    /// Jumps to multiples of what functions are aligned to: from, to.
    aligned_jumps: Vec<(u32, u32)>,
    /// Places in code that instructions read.
    read: BTreeSet<u32>,
    /// Addresses of code that instructions form.
    formed: BTreeSet<u32>,
    /// Places that pointers or instructions name, functions or not.
    named: FixedBitSet,
    waiting: Vec<Address>,
    /// No bound on the work ended the search early.
    is_complete: bool,
}

/// Instructions that are examined for each byte of code, at most.
const EXAMINED_EACH: usize = 8;

/// Rounds of finding what earlier rounds lead to; programs need fewer than ten.
const MAX_ROUNDS: usize = 64;

/// What compilers align functions to.
const ALIGNMENT: u64 = 16;

impl<'run, 'data> Search<'run, 'data> {
    /// Nothing has been reached of `code`.
    pub(super) fn new(code: &'run CodeSpace<'data>) -> Self {
        let places = || FixedBitSet::with_capacity(code.span());
        Self {
            code,
            reached: places(),
            fallen_into: places(),
            starts: places(),
            computed_jumps: BTreeSet::new(),
            passed: places(),
            named: places(),
            aligned_jumps: Vec::new(),
            read: BTreeSet::new(),
            formed: BTreeSet::new(),
            waiting: Vec::new(),
            is_complete: true,
        }
    }

    /// Notes what the `described` functions read.
    pub(super) fn read_by(&mut self, described: &[Range<Address>]) {
        for instruction in self.described_instructions(described) {
            if let Some(Stated::Read(target)) = stated(&instruction)
                && self.code.arena_of(Address(target)).is_some()
            {
                self.read.insert(self.code.offset(Address(target)).0);
            }
        }
    }

    /// All instructions of those `described` functions that decode.
    fn described_instructions(&self, described: &[Range<Address>]) -> Vec<Instruction> {
        let decodes = |range: &&Range<Address>| {
            let is_whole = self.code.arena_of(range.start).is_some_and(|arena| range.end <= arena.end);
            is_whole && self.instructions(range).all(|instruction| !instruction.is_invalid())
        };
        described.iter().filter(decodes).flat_map(|range| self.instructions(range)).collect()
    }

    /// Functions begin at `starts`, which are in code.
    pub(super) fn start_at(&mut self, starts: &[Address]) {
        starts.iter().for_each(|start| self.start(*start));
        self.complete();
    }

    /// Starts functions at likely addresses: those that reached code forms, and targets of the pointers `pointed`.
    /// Pointers are (place, target), sorted by place; all targets are in code.
    pub(super) fn start_where_likely(&mut self, pointed: &[(Address, Address)]) {
        // Honest code examines each place a few times.
        let mut budget = EXAMINED_EACH * self.code.span();
        pointed.iter().for_each(|(_, target)| self.named.insert(self.index(*target)));
        for _ in 0..MAX_ROUNDS {
            let formed = self.formed.iter().map(|offset| self.code.address(CodeOffset(*offset)));
            let mut candidates: Vec<Address> = formed.collect();
            candidates.iter().for_each(|place| self.named.insert(self.index(*place)));
            candidates.retain(|place| !self.is_start(*place));
            let mut listed = BTreeMap::new();
            for (number, (_, target)) in pointed.iter().enumerate() {
                if !self.is_start(*target) {
                    candidates.push(*target);
                    *listed.entry(*target).or_insert(false) |= self.stands_by_function(pointed, number);
                }
            }
            candidates.sort_unstable();
            candidates.dedup();
            candidates.retain(|place| match evidence(self, *place, &mut budget) {
                Evidence::LeadsToFunction => true,
                Evidence::Decodes => listed.get(place).is_some_and(|is_listed| *is_listed),
                Evidence::None => false,
            });
            if candidates.is_empty() {
                return;
            }
            candidates.into_iter().for_each(|start| self.start(start));
            self.complete();
        }
    }

    /// Whether one of the two words before or after a pointer is a pointer to a function.
    fn stands_by_function(&self, pointed: &[(Address, Address)], number: usize) -> bool {
        const WORD: u64 = 8;
        let place = pointed[number].0;
        let close = number.saturating_sub(2)..pointed.len().min(number + 3);
        pointed[close].iter().any(|(other, target)| {
            let distance = other.0.abs_diff(place.0);
            (distance == WORD || distance == 2 * WORD) && self.is_start(*target)
        })
    }

    /// Whether a function begins at `place`.
    pub(super) fn is_start(&self, place: Address) -> bool {
        self.starts.contains(self.index(place))
    }

    /// Whether a function begins at `place`, or something else names it.
    pub(super) fn is_named(&self, place: Address) -> bool {
        self.is_start(place) || self.named.contains(self.index(place))
    }

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
            .iter()
            .filter(|instruction| !is_sound(**instruction))
            .map(Instruction::near_branch_target)
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
    /// decodes. The others were stated only by code that was left out.
    pub(super) fn stated_ranges(
        &self,
        mut ranges: Vec<Range<Address>>,
        described: &[Range<Address>],
        named: &[Address],
    ) -> Vec<Range<Address>> {
        let mut known = FixedBitSet::with_capacity(self.code.span());
        named.iter().for_each(|address| known.insert(self.index(*address)));
        let state = |known: &mut FixedBitSet, instruction: &Instruction| match stated(instruction) {
            Some(Stated::Target(address) | Stated::Address(address))
                if self.code.arena_of(Address(address)).is_some() =>
            {
                known.insert(self.index(Address(address)));
            }
            _ => {}
        };
        self.described_instructions(described).iter().for_each(|instruction| state(&mut known, instruction));
        for _ in 0..MAX_ROUNDS {
            let mut stated = known.clone();
            for range in &ranges {
                // No function vouches for itself by its own loops.
                let is_own = |instruction: &Instruction| matches!(self::stated(instruction), Some(Stated::Target(target)) if range.contains(&Address(target)));
                let others = self.instructions(range).filter(|instruction| !is_own(instruction));
                others.for_each(|instruction| state(&mut stated, &instruction));
            }
            let before = ranges.len();
            ranges.retain(|range| stated.contains(self.index(range.start)));
            if ranges.len() == before {
                return ranges;
            }
        }
        Vec::new()
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
    fn is_swept(&self, range: &Range<Address>) -> bool {
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

    fn instructions(&self, range: &Range<Address>) -> impl Iterator<Item = Instruction> + use<'data> {
        let bytes = self.code.bytes(range.clone());
        Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE).into_iter()
    }

    fn index(&self, address: Address) -> usize {
        self.code.offset(address).0 as usize
    }

    fn start(&mut self, start: Address) {
        let index = self.index(start);
        if !self.starts.put(index) {
            self.waiting.push(start);
        }
    }

    /// Follows control to its end.
    fn complete(&mut self) {
        for _ in 0..MAX_ROUNDS {
            self.follow();
            let starts_before = self.starts.count_ones(..);
            self.split_at_jumps();
            self.go_on_after_computed_jumps();
            if self.waiting.is_empty() && self.starts.count_ones(..) == starts_before {
                return;
            }
        }
        self.is_complete = false;
    }

    /// Follows control from all waiting places.
    fn follow(&mut self) {
        while let Some(place) = self.waiting.pop() {
            let Some(arena) = self.code.arena_of(place) else { continue };
            let bytes = self.code.bytes(place..arena.end);
            let mut decoder = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            let mut is_first = true;
            while decoder.can_decode() {
                let index = self.index(Address(decoder.ip()));
                if !is_first {
                    self.fallen_into.insert(index);
                }
                is_first = false;
                if self.reached.contains(index) {
                    break;
                }
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() {
                    break;
                }
                self.reached.insert(index);
                self.note(&instruction);
                if stops(&instruction) {
                    break;
                }
            }
        }
    }

    /// Notes where an instruction leads.
    fn note(&mut self, instruction: &Instruction) {
        let code = self.code;
        let offset_in_code =
            |address: u64| code.arena_of(Address(address)).map(|_| code.offset(Address(address)).0);
        let place = code.offset(Address(instruction.ip())).0;
        if instruction.flow_control() == FlowControl::IndirectBranch {
            self.computed_jumps.insert(place);
        }
        match stated(instruction) {
            Some(Stated::Target(target)) => {
                let Some(offset) = offset_in_code(target) else { return };
                if instruction.flow_control() == FlowControl::Call {
                    self.start(Address(target));
                    return;
                }
                if target.is_multiple_of(ALIGNMENT) {
                    self.aligned_jumps.push((place, offset));
                }
                self.waiting.push(Address(target));
            }
            Some(Stated::Read(target)) => self.read.extend(offset_in_code(target)),
            Some(Stated::Address(target)) => self.formed.extend(offset_in_code(target)),
            None => {}
        }
    }

    /// Starts functions where a jump leaves its function for an aligned place into which no code falls: it is a tail call.
    fn split_at_jumps(&mut self) {
        let mut leaving = Vec::new();
        let starts: Vec<usize> = self.starts.ones().collect();
        for &(from, to) in &self.aligned_jumps {
            let (low, high) = (from.min(to) as usize, from.max(to) as usize);
            let next = starts.get(starts.partition_point(|start| *start <= low));
            let crosses = next.is_some_and(|start| *start <= high);
            if crosses && !self.fallen_into.contains(to as usize) {
                leaving.push(to as usize);
            }
        }
        for start in leaving {
            self.starts.insert(start);
        }
    }

    /// Code goes on after the jumps, returns and calls of a function with computed jumps, up to filler of the linker.
    fn go_on_after_computed_jumps(&mut self) {
        let jumps = std::mem::take(&mut self.computed_jumps);
        for jump in jumps {
            let place = self.code.address(CodeOffset(jump));
            let Some(arena) = self.code.arena_of(place) else { continue };
            let mut place = place;
            while place < arena.end {
                let index = self.index(place);
                let is_other = self.starts.contains(index) || self.read.contains(&(index as u32));
                let Some(instruction) = self.decode(place) else { break };
                // An earlier pass went on from here.
                if is_other || self.passed.put(index) || instruction.mnemonic() == Mnemonic::Int3 {
                    break;
                }
                if !self.reached.contains(index) && !is_no_operation(&instruction) {
                    self.waiting.push(place);
                    self.follow();
                    if !self.reached.contains(index) {
                        break;
                    }
                }
                place = place.plus(instruction.len() as u64);
            }
        }
    }

    fn decode(&self, place: Address) -> Option<Instruction> {
        let arena = self.code.arena_of(place)?;
        let bytes = self.code.bytes(place..arena.end);
        let instruction = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

/// The address that an instruction states.
enum Stated {
    /// It jumps or calls there.
    Target(u64),
    /// It keeps it.
    Address(u64),
    /// It reads or writes there.
    Read(u64),
}

fn stated(instruction: &Instruction) -> Option<Stated> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        return Some(Stated::Target(instruction.near_branch_target()));
    }
    let address = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())?;
    Some(match instruction.mnemonic() {
        Mnemonic::Lea => Stated::Address(address),
        _ => Stated::Read(address),
    })
}

/// Whether control does not go on after an instruction.
pub(super) fn stops(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => true,
        FlowControl::Interrupt => instruction.mnemonic() == Mnemonic::Int3,
        _ => instruction.mnemonic() == Mnemonic::Hlt,
    }
}
