//! References in x86-64 code: operands that are addresses, stubs, relocation types.
//!
//! Takes the bytes of one function; gives each operand that states an address outside it, in the order of the
//! instructions. Nothing is proven here: bytes that do not decode end the walk, and the operands before them count.
//! Source: AMD64 Architecture Programmer's Manual, volume 3; System V ABI AMD64, "Relocation Types".

use std::ops::Range;

use iced_x86::{
    ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use super::operand::{Operand, RelocationMeaning, Usage};
use reorder_base::address::Address;

/// Calls `visit` for every operand of `body`, which is at `start`, that states an address outside it.
///
/// In a program at a fixed address (`absolute`), constants that lie in `image` count as addresses, too.
pub(super) fn visit_operands(
    body: &[u8],
    start: Address,
    absolute: Option<&Range<Address>>,
    mut visit: impl FnMut(Operand),
) {
    let own = start..start.plus(body.len() as u64);
    let mut decoder = Decoder::with_ip(64, body, start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return;
        }
        let position = instruction.ip().wrapping_sub(start.0) as usize;
        let mut report = |target: Address, usage: Usage, (offset, width): (usize, usize)| {
            if !own.contains(&target) {
                let at = position + offset;
                visit(Operand { target, usage, bytes: at..at + width });
            }
        };
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let target = Address(instruction.near_branch_target());
            if !own.contains(&target) {
                let usage =
                    if instruction.flow_control() == FlowControl::Call { Usage::Call } else { Usage::Jump };
                report(target, usage, immediate(&decoder.get_constant_offsets(&instruction)));
            }
        } else if instruction.is_ip_rel_memory_operand() {
            let target = Address(instruction.ip_rel_memory_address());
            report(
                target,
                memory_usage(&instruction),
                displacement(&decoder.get_constant_offsets(&instruction)),
            );
        } else if let Some(image) = absolute {
            for (target, usage, place) in constants(&decoder, &instruction) {
                if image.contains(&target) {
                    report(target, usage, place);
                }
            }
        }
    }
}

fn immediate(offsets: &ConstantOffsets) -> (usize, usize) {
    (offsets.immediate_offset(), offsets.immediate_size())
}

fn displacement(offsets: &ConstantOffsets) -> (usize, usize) {
    (offsets.displacement_offset(), offsets.displacement_size())
}

fn memory_usage(instruction: &Instruction) -> Usage {
    match instruction.flow_control() {
        FlowControl::IndirectCall => Usage::CallThrough,
        FlowControl::IndirectBranch => Usage::JumpThrough,
        _ if instruction.mnemonic() == Mnemonic::Lea => Usage::Address,
        _ => Usage::Memory,
    }
}

/// Constants of at least four bytes that may be addresses: a displacement and an immediate.
fn constants(
    decoder: &Decoder<'_>,
    instruction: &Instruction,
) -> impl Iterator<Item = (Address, Usage, (usize, usize))> + use<> {
    let offsets = decoder.get_constant_offsets(instruction);
    let has_displacement = offsets.displacement_size() >= 4;
    let in_memory = has_displacement.then(|| {
        let target = Address(instruction.memory_displacement64());
        // `table(,%rax,8)` reads an element as `table(%rip)` would read the first one.
        (target, memory_usage(instruction), displacement(&offsets))
    });
    let constant = if offsets.immediate_size() >= 4 {
        (0..instruction.op_count()).find_map(|operand| instruction.try_immediate(operand).ok())
    } else {
        None
    };
    let constant = constant.map(|value| (Address(value), Usage::Address, immediate(&offsets)));
    in_memory.into_iter().chain(constant)
}

/// The slot that a linker's stub at `start` jumps through, if the bytes there are such a stub.
///
/// Before the jump there is at most a marker for indirect branches and the stub's number.
pub(super) fn stub_slot(bytes: &[u8], start: Address) -> Option<Address> {
    let decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
    let jump = decoder.into_iter().find(|instruction| instruction.flow_control() != FlowControl::Next)?;
    let is_slot = jump.flow_control() == FlowControl::IndirectBranch && jump.memory_base() == Register::RIP;
    is_slot.then(|| Address(jump.ip_rel_memory_address()))
}

/// What a relocation of type `kind` says about its place; `None` where no address of the image is stored.
pub(super) fn relocation_meaning(kind: u32) -> Option<RelocationMeaning> {
    match kind {
        // RELATIVE, IRELATIVE
        8 | 37 => Some(RelocationMeaning::Addend),
        // 64, GLOB_DAT, JUMP_SLOT, 32, 32S
        1 | 6 | 7 | 10 | 11 => Some(RelocationMeaning::Symbol),
        // PC32, PC64
        2 | 24 => Some(RelocationMeaning::Distance),
        _ => None,
    }
}
