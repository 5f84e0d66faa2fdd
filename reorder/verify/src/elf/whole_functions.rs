//! Functions whose code can be read in one way only: from the first byte on, all bytes are instructions, and whatever the function
//! states of its own code (entries, branches, addresses) is the start of one. It has no computed jumps.
//!
//! That other code enters such a function at instructions alone is assumed, as for every function whose code is compared.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::clones::function_starts;
use super::view::ElfView;
use crate::moves::{AddressMoves, Move};
use reorder_base::address::Address;

/// Reads each function once.
pub(in crate::elf) struct WholeFunctions<'a> {
    image: &'a ElfView<'a>,
    functions: &'a AddressMoves,
    /// What unwind entries and symbols call the start of a function; `None` if that cannot be read.
    entries: Option<BTreeSet<Address>>,
    /// By the start of the function, where its instructions begin; `None` if it may be read in another way.
    starts: BTreeMap<Address, Option<Vec<u64>>>,
}

impl<'a> WholeFunctions<'a> {
    pub(in crate::elf) fn new(image: &'a ElfView<'a>, functions: &'a AddressMoves) -> Self {
        Self { image, functions, entries: function_starts(image).ok(), starts: BTreeMap::new() }
    }

    /// Whether the bytes around `place`, which look like a `LEA` of `target` with its displacement there, are certainly parts of other
    /// instructions.
    pub(in crate::elf) fn is_no_lea(&mut self, target: u64, place: u64) -> bool {
        const OPCODE: u64 = 2;
        const DISPLACEMENT: u64 = 4;
        let Some(function) = self.functions.containing(Address(place)) else { return false };
        let (start, end) = (function.old_start.0, function.old_end().0);
        if place < start.saturating_add(OPCODE) || place.saturating_add(DISPLACEMENT) > end {
            return false;
        }
        let starts = self.starts_of(function).unwrap_or_default();
        let around = starts[..starts.partition_point(|start| *start < place)].last().copied();
        let code = self.image.code_at(start, end).and_then(|section| section.at(start, function.size));
        let code = around.and_then(|around| Some((code?.get((around - start) as usize..)?, around)));
        code.is_some_and(|(code, around)| {
            let instruction = Decoder::with_ip(64, code, around, DecoderOptions::NONE).decode();
            let is_lea = instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand();
            !(is_lea && instruction.ip_rel_memory_address() == target)
        })
    }

    /// Whether `address` is certainly in the middle of an instruction.
    pub(in crate::elf) fn is_within_instruction(&mut self, address: u64) -> bool {
        let function = self.functions.containing(Address(address));
        let starts = function.and_then(|function| self.starts_of(function));
        starts.is_some_and(|starts| starts.binary_search(&address).is_err())
    }

    fn starts_of(&mut self, function: &Move) -> Option<&[u64]> {
        let Self { image, functions, entries, starts } = self;
        let read = || match entries {
            Some(entries) if !functions.is_found(function.old_start) => read(image, function, entries),
            _ => None,
        };
        starts.entry(function.old_start).or_insert_with(read).as_deref()
    }
}

fn read(image: &ElfView<'_>, function: &Move, entries: &BTreeSet<Address>) -> Option<Vec<u64>> {
    let (start, end) = (function.old_start.0, function.old_end().0);
    let code = image.code_at(start, end)?.at(start, function.size)?;
    let mut stated: Vec<u64> =
        entries.range(function.old_start..function.old_end()).map(|entry| entry.0).collect();
    let (mut starts, mut last) = (Vec::new(), start);
    for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        if instruction.is_invalid() || instruction.flow_control() == FlowControl::IndirectBranch {
            return None;
        }
        starts.push(instruction.ip());
        last = instruction.next_ip();
        stated.extend(stated_address(&instruction));
    }
    let is_instruction =
        |address: &u64| !(start..end).contains(address) || starts.binary_search(address).is_ok();
    (last == end && stated.iter().all(is_instruction)).then_some(starts)
}

/// The address that an instruction branches to or refers to, by its distance.
fn stated_address(instruction: &Instruction) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address()),
    }
}
