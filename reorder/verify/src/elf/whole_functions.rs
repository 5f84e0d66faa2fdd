//! Functions whose code can be read in one way only: from the first byte on, all bytes are instructions, and all their branches
//! within the function lead to instructions.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use super::view::ElfView;
use crate::moves::{AddressMoves, Move};
use reorder_base::address::Address;

/// Reads each function once.
#[derive(Default)]
pub(in crate::elf) struct WholeFunctions {
    /// By the start of the function, where its instructions begin; `None` if it may be read in another way.
    starts: BTreeMap<Address, Option<Vec<u64>>>,
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
        let starts = self.starts_of(image, function).unwrap_or_default();
        let around = starts[..starts.partition_point(|start| *start < place)].last();
        let (start, end) = (function.old_start.0, function.old_end().0);
        let code = image.code_at(start, end).and_then(|section| section.at(start, function.size));
        let code = around.and_then(|around| Some((code?.get((around - start) as usize..)?, *around)));
        code.is_some_and(|(code, around)| {
            let instruction = Decoder::with_ip(64, code, around, DecoderOptions::NONE).decode();
            let is_lea = instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand();
            !(is_lea && instruction.ip_rel_memory_address() == target)
        })
    }

    /// Whether certainly no instruction begins at `address`, which lies inside a function.
    pub(in crate::elf) fn is_within_instruction(
        &mut self,
        image: &ElfView<'_>,
        functions: &AddressMoves,
        address: u64,
    ) -> bool {
        let function = functions.containing(Address(address));
        let starts = function.and_then(|function| self.starts_of(image, function));
        starts.is_some_and(|starts| starts.binary_search(&address).is_err())
    }

    fn starts_of(&mut self, image: &ElfView<'_>, function: &Move) -> Option<&[u64]> {
        self.starts.entry(function.old_start).or_insert_with(|| read(image, function)).as_deref()
    }
}

fn read(image: &ElfView<'_>, function: &Move) -> Option<Vec<u64>> {
    let (start, end) = (function.old_start.0, function.old_end().0);
    let code = image.code_at(start, end)?.at(start, function.size)?;
    let (mut starts, mut targets, mut last) = (Vec::new(), Vec::new(), start);
    for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return None;
        }
        starts.push(instruction.ip());
        last = instruction.next_ip();
        let is_branch = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::Call
        );
        targets.extend(is_branch.then(|| instruction.near_branch_target()));
    }
    let is_instruction =
        |target: &u64| !(start..end).contains(target) || starts.binary_search(target).is_ok();
    (last == end && targets.iter().all(is_instruction)).then_some(starts)
}
