//! Functions whose code can be read in one way only: from the first byte on, all bytes are instructions, and all their branches
//! within the function lead to instructions.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::view::ElfView;
use crate::moves::{AddressMoves, Move};
use reorder_base::address::Address;

/// What was read last: places that ascend read each function once.
#[derive(Default)]
pub(in crate::elf) struct WholeFunctions {
    last: Option<(Address, Option<BTreeMap<u64, Instruction>>)>,
}

impl WholeFunctions {
    /// Whether the bytes before and at `place`, which seem to be a `LEA` of `target`, are certainly parts of other instructions.
    pub(in crate::elf) fn forms_other(
        &mut self,
        image: &ElfView<'_>,
        functions: &AddressMoves,
        target: u64,
        place: u64,
    ) -> bool {
        let Some(function) = functions.containing(Address(place)) else { return false };
        if self.last.as_ref().is_none_or(|(start, _)| *start != function.old_start) {
            self.last = Some((function.old_start, read(image, function)));
        }
        let read = self.last.as_ref().and_then(|(_, read)| read.as_ref());
        let around = read.and_then(|read| read.range(..place).next_back());
        around.is_some_and(|(_, instruction)| {
            let is_lea = instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand();
            !(is_lea && instruction.ip_rel_memory_address() == target)
        })
    }
}

/// The instructions of the function by their addresses; `None` if it may be read in another way.
fn read(image: &ElfView<'_>, function: &Move) -> Option<BTreeMap<u64, Instruction>> {
    let (start, end) = (function.old_start.0, function.old_end().0);
    let code = image.code_at(start, end)?.at(start, function.size)?;
    let all: BTreeMap<u64, Instruction> = Decoder::with_ip(64, code, start, DecoderOptions::NONE)
        .into_iter()
        .map(|instruction| (!instruction.is_invalid()).then(|| (instruction.ip(), instruction)))
        .collect::<Option<_>>()?;
    let range = start..end;
    let ends_there = all.last_key_value().is_some_and(|(_, last)| last.next_ip() == range.end);
    let branches = all.values().filter(|instruction| {
        matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::Call
        )
    });
    let mut targets = branches.map(|branch| branch.near_branch_target());
    let is_instruction = |target: u64| !range.contains(&target) || all.contains_key(&target);
    (ends_there && targets.all(is_instruction)).then_some(all)
}
