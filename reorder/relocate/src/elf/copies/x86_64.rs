//! Steps of x86-64 code.
//! Source: AMD64 Architecture Programmer's Manual, volume 3, "Instruction Encoding".

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::step::{Form, Reference, Step, Use};
use reorder_base::address::Address;
use reorder_image::code_reference::CodeForm;

/// The instruction at the start of `bytes`, which lie at `address`; `None` when it may not be copied.
pub(super) fn step(bytes: &[u8], address: Address) -> Option<Step> {
    let mut decoder = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return None;
    }
    let length = instruction.len() as u8;
    let reference = match reference(&decoder, &instruction) {
        Stated::Nothing => None,
        Stated::Address(reference) => Some(reference),
        Stated::Unusual => return None,
    };
    let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    let is_trap = matches!(instruction.flow_control(), FlowControl::Interrupt | FlowControl::Exception);
    let is_skippable = instruction.flow_control() == FlowControl::Return;
    let continues = continues(&instruction);
    Some(Step { length, continues, is_call, is_skippable, is_trap, reference, guard: None })
}

fn continues(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => false,
        // The program's own handler may continue after a trap.
        _ => instruction.mnemonic() != Mnemonic::Hlt,
    }
}

enum Stated {
    Nothing,
    Address(Reference),
    /// A branch or an operand that no compiler for this processor writes.
    Unusual,
}

fn reference(decoder: &Decoder<'_>, instruction: &Instruction) -> Stated {
    let constants = decoder.get_constant_offsets(instruction);
    let (target, offset, width, usage) = match instruction.op0_kind() {
        OpKind::NearBranch64 => {
            let usage = if instruction.flow_control() == FlowControl::Call { Use::Call } else { Use::Jump };
            let (offset, width) = (constants.immediate_offset(), constants.immediate_size());
            (instruction.near_branch_target(), offset, width, usage)
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::FarBranch16 | OpKind::FarBranch32 => {
            return Stated::Unusual;
        }
        _ if instruction.is_ip_rel_memory_operand() => {
            if instruction.memory_base() != Register::RIP {
                return Stated::Unusual;
            }
            let (offset, width) = (constants.displacement_offset(), constants.displacement_size());
            (instruction.ip_rel_memory_address(), offset, width, Use::Value)
        }
        _ => return Stated::Nothing,
    };
    let end = (instruction.len() - offset) as u8;
    let form = match (width, usage) {
        (4, _) => Form::Far(CodeForm::Relative32 { end }),
        (_, Use::Value) => return Stated::Unusual,
        _ if instruction.is_jcc_short() || instruction.is_jmp_short() => Form::Short,
        // `JRCXZ` and the loop instructions.
        _ => Form::Near(i8::MAX as u32),
    };
    let place = Address(instruction.ip()).plus(offset as u64);
    Stated::Address(Reference { target: Address(target), place, form, usage })
}
