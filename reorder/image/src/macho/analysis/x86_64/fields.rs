//! The address fields of instructions, and which of them a move changes.

use std::ops::Range;

use iced_x86::{Decoder, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::X86Context;
use crate::code_reference::{CodeForm, CodeReference};
use crate::decoded_atom::DecodedAtom;
use crate::pins::PinReason;
use reorder_base::address::Address;

/// What an instruction does with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Call,
    Jump,
    /// `lea`: the address itself is the result.
    Take,
    /// Loads, stores, jumps and calls through memory.
    Memory,
}

/// A distance that an instruction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The instruction.
    pub(super) instruction: Address,
    /// The field's first byte.
    pub(super) place: Address,
    /// Bytes.
    pub(super) width: usize,
    /// Bytes from its start to the end of the instruction.
    pub(super) to_end: u8,
    /// Where it leads.
    pub(super) target: Address,
    /// How the instruction uses it.
    pub(super) used: Use,
}

impl Field {
    /// The field of the instruction that `decoder` gave last, if it has one.
    pub(super) fn of(instruction: &Instruction, decoder: &Decoder<'_>) -> Option<Self> {
        let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
        if !is_branch && instruction.memory_base() != Register::RIP {
            return None;
        }
        let constants = decoder.get_constant_offsets(instruction);
        let (target, offset, width) = match is_branch {
            true => {
                (instruction.near_branch_target(), constants.immediate_offset(), constants.immediate_size())
            }
            false => (
                instruction.ip_rel_memory_address(),
                constants.displacement_offset(),
                constants.displacement_size(),
            ),
        };
        let used = match (is_branch, instruction.flow_control()) {
            (true, FlowControl::Call) => Use::Call,
            (true, _) => Use::Jump,
            _ if instruction.mnemonic() == Mnemonic::Lea => Use::Take,
            _ => Use::Memory,
        };
        Some(Self {
            instruction: Address(instruction.ip()),
            place: Address(instruction.ip()).plus(offset as u64),
            width,
            to_end: instruction.len().saturating_sub(offset) as u8,
            target: Address(target),
            used,
        })
    }

    /// The reference that is rewritten when either end moves.
    pub(super) fn reference(&self) -> CodeReference {
        let form = CodeForm::Relative32 { end: self.to_end };
        CodeReference { place: self.place, target: self.target, form }
    }
}

/// How far outside the image an address may lie that was computed from one inside: bases of arrays whose index does not
/// start at zero.
const SLACK: u64 = 1 << 20;

/// Adds the consequences of `field` for a move of `atom`.
///
/// # Errors
/// Why the bytes cannot be code.
pub(super) fn add(
    context: &X86Context<'_>,
    atom: &Range<Address>,
    field: &Field,
    decoded: &mut DecodedAtom,
) -> Result<(), PinReason> {
    let is_branch = matches!(field.used, Use::Call | Use::Jump);
    if field.width != 4 && !(is_branch && field.width == 1) {
        return Err(PinReason::NotDecodable);
    }
    let target = field.target;
    if atom.contains(&target) {
        let takes_place = matches!(field.used, Use::Take | Use::Call);
        let is_own = target == field.instruction || target == field.place.plus(field.to_end.into());
        // To add the distance from here to another place.
        if takes_place && is_own && target != atom.start {
            return Err(PinReason::ComputedAddress);
        }
        return Ok(());
    }
    let text = context.file.text().range();
    if !is_branch {
        let Range { start, end } = context.image_range();
        if target.0 < start.0.saturating_sub(SLACK) || target.0 > end.0.saturating_add(SLACK) {
            return Err(PinReason::BranchOutsideCode);
        }
        // The end of this atom or the start of the next: both meanings of the address are kept.
        if target == atom.end && field.used == Use::Take {
            match target == text.end {
                true => return Err(PinReason::PointerInside),
                false => decoded.ties.push(target),
            }
        }
        decoded.references.push(field.reference());
        return Ok(());
    }
    if !context.is_code(target) {
        return Err(PinReason::BranchOutsideCode);
    }
    if field.width == 1 {
        match text.contains(&target) {
            true => decoded.ties.push(target),
            false => return Err(PinReason::BranchOutsideCode),
        }
        return Ok(());
    }
    if field.used == Use::Call && text.contains(&target) && context.starts.binary_search(&target).is_err() {
        // Functions are called at their start; the bytes are more likely data that look like a call.
        return Err(PinReason::BranchInsideInstruction);
    }
    decoded.references.push(field.reference());
    Ok(())
}
