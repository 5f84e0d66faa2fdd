//! Follows control, one instruction at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fixedbitset::FixedBitSet;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::evidence::{Evidence, evidence};
use crate::decode::control::stops;
use crate::decode::padding::is_no_operation;
use crate::elf::code::{CodeOffset, CodeSpace};
use reorder_base::address::Address;

/// What has been reached so far. The sets hold offsets of code.
pub(super) struct Search<'run, 'data> {
    pub(super) code: &'run CodeSpace<'data>,
    /// First bytes of instructions that control reaches.
    pub(super) reached: FixedBitSet,
    /// Those that control reaches from the instruction before.
    fallen_into: FixedBitSet,
    /// First bytes of functions.
    pub(super) starts: FixedBitSet,
    /// Indirect jumps after which no code was looked at yet.
    computed_jumps: BTreeSet<u32>,
    /// Where code after computed jumps was looked at.
    passed: FixedBitSet,
    /// Jumps to multiples of what functions are aligned to: from, to.
    aligned_jumps: Vec<(u32, u32)>,
    /// Places in code that instructions read.
    pub(super) read: BTreeSet<u32>,
    /// Addresses of code that instructions form.
    formed: BTreeSet<u32>,
    /// Places that pointers or instructions name, functions or not.
    named: FixedBitSet,
    waiting: Vec<Address>,
    /// No bound on the work ended the search early.
    pub(super) is_complete: bool,
}

/// Instructions that are examined for each byte of code, at most.
const EXAMINED_EACH: usize = 8;

/// Rounds of finding what earlier rounds lead to; programs need fewer than ten.
pub(super) const MAX_ROUNDS: usize = 64;

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
        let read =
            self.described_instructions(described).filter_map(|instruction| match stated(&instruction)? {
                Stated::Read(target) => self.code.arena_of(Address(target)).map(|_| Address(target)),
                Stated::Target(_) | Stated::Address(_) => None,
            });
        let read: Vec<u32> = read.map(|target| self.code.offset(target).0).collect();
        self.read.extend(read);
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

    pub(super) fn index(&self, address: Address) -> usize {
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

    pub(super) fn decode(&self, place: Address) -> Option<Instruction> {
        let arena = self.code.arena_of(place)?;
        let bytes = self.code.bytes(place..arena.end);
        let instruction = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

/// The address that an instruction states.
pub(super) enum Stated {
    /// It jumps or calls there.
    Target(u64),
    /// It keeps it.
    Address(u64),
    /// It reads or writes there.
    Read(u64),
}

pub(super) fn stated(instruction: &Instruction) -> Option<Stated> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        return Some(Stated::Target(instruction.near_branch_target()));
    }
    let address = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())?;
    Some(match instruction.mnemonic() {
        Mnemonic::Lea => Stated::Address(address),
        _ => Stated::Read(address),
    })
}
