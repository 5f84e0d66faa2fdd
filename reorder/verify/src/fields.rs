//! The bytes of an x86-64 instruction that hold an address relative to the instruction.
//!
//! Relocation may change exactly these bytes. Prefixes, opcode and operand forms, which determine the length, lie outside
//! of them.

use iced_x86::{Decoder, Instruction, OpKind, Register};

/// An address field of one decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressField {
    /// Position in the instruction.
    pub(crate) offset: usize,
    /// Bytes: 1 or 4, signed, relative to the end of the instruction.
    pub(crate) width: usize,
    /// The address that it encodes.
    pub(crate) target: u64,
    /// Whether control goes there; otherwise the address is computed, read or written.
    pub(crate) is_branch: bool,
}

/// How an instruction addresses relative to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// It does not.
    None,
    /// Through one field.
    Field(AddressField),
    /// In a relative form that compilers never emit (16-bit branches, 32-bit instruction pointers).
    Unsupported,
}

/// Finds the address field of the instruction that `decoder` has just decoded.
pub(crate) fn addressing(decoder: &Decoder<'_>, instruction: &Instruction) -> Addressing {
    let is_branch = match instruction.op0_kind() {
        OpKind::NearBranch64 => true,
        OpKind::NearBranch16 | OpKind::NearBranch32 => return Addressing::Unsupported,
        _ if !instruction.is_ip_rel_memory_operand() => return Addressing::None,
        _ if instruction.memory_base() != Register::RIP => return Addressing::Unsupported,
        _ => false,
    };
    let constants = decoder.get_constant_offsets(instruction);
    let (offset, width, target) = if is_branch {
        (constants.immediate_offset(), constants.immediate_size(), instruction.near_branch_target())
    } else {
        (constants.displacement_offset(), constants.displacement_size(), instruction.ip_rel_memory_address())
    };
    match width {
        1 | 4 => Addressing::Field(AddressField { offset, width, target, is_branch }),
        _ => Addressing::Unsupported,
    }
}

/// The field's value, widened to an address distance.
pub(crate) fn read_field(bytes: &[u8], width: usize) -> Option<u64> {
    match width {
        1 => bytes.first().map(|&byte| i64::from(byte as i8) as u64),
        _ => super::bytes::displacement_at(bytes, 0),
    }
}

/// Writes `distance` into a field of `width` bytes; `false` when it does not fit.
pub(crate) fn write_field(bytes: &mut [u8], width: usize, distance: u64) -> bool {
    let signed = distance as i64;
    match (width, i8::try_from(signed), i32::try_from(signed)) {
        (1, Ok(short), _) => bytes.copy_from_slice(&short.to_le_bytes()),
        (4, _, Ok(near)) => bytes.copy_from_slice(&near.to_le_bytes()),
        _ => return false,
    }
    true
}
