//! Compares one instruction of an original with that of its copy: whether both do the same, and where they lead.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::branch::Branch;
use super::guard::Guard;
use crate::aarch64::{Form, effects, form};
use crate::bytes::u32_at;
use crate::fields::{Addressing, addressing};
use crate::processor::Processor;
use reorder_base::address::{Address, NewAddress};

/// What an instruction does with the address that it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Jumps there.
    Jump,
    /// Calls it.
    Call,
    /// The whole address is kept.
    Value,
    /// An entry of the table there is jumped to, or loaded.
    Entry,
    /// The address must be the same: a part of it is kept, or the contents of memory there are used.
    Same,
}

/// Two instructions that are equal except for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Bytes of the old one.
    pub(super) old_length: u64,
    /// Bytes of the new one, which differ only if both are branches.
    pub(super) new_length: u64,
    /// Control may continue after them.
    pub(super) continues: bool,
    /// A handler of signals may make control continue, nothing else.
    pub(super) is_trap: bool,
    /// It calls, whether or not it states where.
    pub(super) is_call: bool,
    /// It uses its own place in a way that a copy at another place does not repeat.
    pub(super) is_placed: bool,
    /// The addresses that they state: old, new, and their use.
    pub(super) stated: Option<(Address, NewAddress, Use)>,
    /// The numbers that they keep, if these differ; in a program at a fixed address they may be addresses.
    pub(super) kept: Option<(Address, NewAddress)>,
    /// What the new one begins with besides.
    pub(super) guard: Option<Guard>,
}

impl Pair {
    /// Bytes of each, if both have the same length.
    pub(super) fn common_length(self) -> Option<u64> {
        (self.old_length == self.new_length).then_some(self.new_length)
    }
}

/// Compares the first instructions of `old` and `new`, which lie at these addresses; `None` when they differ in more than an
/// address and the width of a branch, or cannot be decoded.
pub(super) fn compare(processor: Processor, old: (&[u8], Address), new: (&[u8], NewAddress)) -> Option<Pair> {
    match processor {
        Processor::X86_64 => compare_x86_64(old, new),
        Processor::Aarch64 => compare_aarch64(old, new),
    }
}

/// [`compare`], where a guard may come before the new instruction. Its bytes count as those of the new one.
pub(super) fn compare_guarded(
    processor: Processor,
    old: (&[u8], Address),
    (new, new_address): (&[u8], NewAddress),
) -> Option<Pair> {
    let compared = compare(processor, old, (new, new_address));
    if compared.is_some() || processor != Processor::X86_64 {
        return compared;
    }
    let guard = Guard::read(new, new_address)?;
    let guarded = new.get(usize::try_from(guard.length).ok()?..)?;
    let pair = compare_x86_64(old, (guarded, new_address.plus(guard.length)))?;
    Some(Pair { new_length: guard.length + pair.new_length, guard: Some(guard), ..pair })
}

fn compare_x86_64(
    (old, old_address): (&[u8], Address),
    (new, new_address): (&[u8], NewAddress),
) -> Option<Pair> {
    let mut decoders = [(old, old_address.0), (new, new_address.0)]
        .map(|(bytes, address)| Decoder::with_ip(64, bytes, address, DecoderOptions::NONE));
    let [before, after] = decoders.each_mut().map(Decoder::decode);
    if before.is_invalid() || after.is_invalid() {
        return None;
    }
    let (old, new) = (old.get(..before.len())?, new.get(..after.len())?);
    let is_trap = matches!(before.flow_control(), FlowControl::Interrupt | FlowControl::Exception);
    let is_call = matches!(before.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    let continues = match before.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => false,
        // Handlers of traps may continue after them.
        _ => before.mnemonic() != Mnemonic::Hlt,
    };
    let [first, second] = &decoders;
    // Compared below as if the number were that of the old instruction.
    let mut same = [0; MAX_LENGTH];
    let (kept, new) = match kept_numbers((first, &before, old), (second, &after, new), &mut same) {
        Some((kept, new)) => (Some(kept), new),
        None => (None, new),
    };
    let stated = match (addressing(first, &before), addressing(second, &after)) {
        (Addressing::None, Addressing::None) if old == new => None,
        (Addressing::None, Addressing::None) => {
            let (field, table) = table_field(first, &before)?;
            let (other, copy) = table_field(second, &after)?;
            let is_same = field == other
                && old.len() == new.len()
                && old[..field.start] == new[..field.start]
                && old[field.end..] == new[field.end..];
            Some(is_same.then_some((Address(table), NewAddress(copy), Use::Entry))?)
        }
        (Addressing::Field(field), Addressing::Field(other)) if field.is_branch && other.is_branch => {
            let branch = Branch::read(old, field)?;
            let usage = if branch.1 == Branch::Call { Use::Call } else { Use::Jump };
            let is_same = Branch::read(new, other) == Some(branch);
            Some(is_same.then_some((Address(field.target), NewAddress(other.target), usage))?)
        }
        (Addressing::Field(field), Addressing::Field(other)) => {
            let bytes = field.offset..field.offset + field.width;
            let is_same = (field.offset, field.width, old.len()) == (other.offset, other.width, new.len())
                && old[..bytes.start] == new[..bytes.start]
                && old[bytes.end..] == new[bytes.end..];
            // Whoever reads the bytes of a function must see those of the original.
            let is_kept = before.mnemonic() == Mnemonic::Lea && before.op0_register().is_gpr64();
            let usage = if is_kept { Use::Value } else { Use::Same };
            Some(is_same.then_some((Address(field.target), NewAddress(other.target), usage))?)
        }
        _ => return None,
    };
    let (old_length, new_length) = (old.len() as u64, new.len() as u64);
    Some(Pair {
        old_length,
        new_length,
        continues,
        is_trap,
        is_call,
        is_placed: false,
        stated,
        kept,
        guard: None,
    })
}

/// Where an instruction that jumps through a table of addresses, or loads one of them, has the table's address; and that address.
fn table_field(decoder: &Decoder<'_>, instruction: &Instruction) -> Option<(Range<usize>, u64)> {
    let operand = match instruction.mnemonic() {
        Mnemonic::Jmp => 0,
        Mnemonic::Mov if instruction.op0_register().is_gpr64() => 1,
        _ => return None,
    };
    let is_entry = instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_base() == Register::None
        && instruction.memory_index().is_gpr64()
        && instruction.memory_index_scale() == 8
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    let constants = decoder.get_constant_offsets(instruction);
    let (offset, size) = (constants.displacement_offset(), constants.displacement_size());
    (is_entry && size == 4).then(|| (offset..offset + size, instruction.memory_displacement64()))
}

/// Bytes of the longest instruction.
const MAX_LENGTH: usize = 15;

/// Two numbers of 64 bits, at the same place of two instructions of one length, if they differ; and the bytes of the new
/// instruction with the number of the old one.
fn kept_numbers<'same>(
    (first, before, old): (&Decoder<'_>, &Instruction, &[u8]),
    (second, after, new): (&Decoder<'_>, &Instruction, &[u8]),
    same: &'same mut [u8; MAX_LENGTH],
) -> Option<((Address, NewAddress), &'same [u8])> {
    let (one, other) = (first.get_constant_offsets(before), second.get_constant_offsets(after));
    let (offset, width) = (one.immediate_offset(), one.immediate_size());
    let is_alike = before.code() == after.code()
        && old.len() == new.len()
        && (offset, width) == (other.immediate_offset(), other.immediate_size());
    let operand = before.op_count().checked_sub(1)?;
    let is_whole = match before.op_kind(operand) {
        OpKind::Immediate64 | OpKind::Immediate32to64 => true,
        OpKind::Immediate32 => before.op0_register().is_gpr32() && before.mnemonic() == Mnemonic::Mov,
        _ => false,
    };
    if !is_alike || !is_whole || !matches!(before.mnemonic(), Mnemonic::Mov | Mnemonic::Push | Mnemonic::Cmp)
    {
        return None;
    }
    let numbers = (Address(before.immediate(operand)), NewAddress(after.immediate(operand)));
    let same = same.get_mut(..new.len())?;
    same.copy_from_slice(new);
    same.get_mut(offset..offset + width)?.copy_from_slice(old.get(offset..offset + width)?);
    (numbers.0.0 != numbers.1.0).then_some((numbers, &*same))
}

fn compare_aarch64(
    (old, old_address): (&[u8], Address),
    (new, new_address): (&[u8], NewAddress),
) -> Option<Pair> {
    let (before, after) = (u32_at(old, 0)?, u32_at(new, 0)?);
    let found = form(before);
    if found != form(after) || before & !found.field() != after & !found.field() {
        return None;
    }
    let usage = match found {
        Form::Plain => None,
        Form::Branch | Form::Conditional | Form::TestBit => Some(Use::Jump),
        Form::Call => Some(Use::Call),
        Form::Literal | Form::Adr | Form::Adrp => Some(Use::Same),
    };
    let targets =
        || (Address(found.target(before, old_address.0)), NewAddress(found.target(after, new_address.0)));
    let stated = usage.map(|usage| (targets().0, targets().1, usage));
    let is_trap = is_breakpoint(before);
    let is_call = found == Form::Call || is_register_call(before);
    let continues = !effects(before).ends || is_trap;
    let is_placed = uses_place(before);
    Some(Pair {
        old_length: 4,
        new_length: 4,
        continues,
        is_trap,
        is_call,
        is_placed,
        stated,
        kept: None,
        guard: None,
    })
}

/// Whether `word` is `BRK`, after which a handler may continue.
fn is_breakpoint(word: u32) -> bool {
    word & 0xffe0_001f == 0xd420_0000
}

/// Whether `word` signs with the program counter (`PACIASPPC`, `PACM` and their relatives), authenticates with the address of
/// such a signature (`AUTIASPPC`, `RETAASPPC`), or compares and branches (`CBGT` and its relatives), which `Form` does not
/// know. Source: Arm Architecture Reference Manual, `FEAT_PAuth_LR`, `FEAT_CMPBR`.
fn uses_place(word: u32) -> bool {
    let signs = word & 0xffff_dbff == 0xdac1_83fe || word == 0xd503_24ff;
    let authenticates = matches!(word & 0xffc0_001f, 0xf380_001f | 0x5500_001f);
    let branches = matches!(word >> 24, 0x74 | 0x75 | 0xf4 | 0xf5);
    signs || authenticates || branches
}

/// Whether `word` is `BLR` or one of its forms with authentication.
fn is_register_call(word: u32) -> bool {
    word & 0xfeff_f000 == 0xd63f_0000
}

/// Target and length in bytes of the unconditional direct jump at the start of `bytes`, which lie at `address`; `None` if
/// there is no such jump.
pub(super) fn jump_target(
    processor: Processor,
    bytes: &[u8],
    address: NewAddress,
) -> Option<(NewAddress, u64)> {
    match processor {
        Processor::X86_64 => {
            let mut decoder = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE);
            let instruction = decoder.decode();
            let Addressing::Field(field) = addressing(&decoder, &instruction) else { return None };
            let is_jump = field.is_branch && Branch::read(bytes, field)? == (&[], Branch::Jump);
            is_jump.then_some((NewAddress(field.target), instruction.len() as u64))
        }
        Processor::Aarch64 => {
            let word = u32_at(bytes, 0)?;
            (form(word) == Form::Branch).then(|| (NewAddress(Form::Branch.target(word, address.0)), 4))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Address = Address(0x1000);
    const NEW: NewAddress = NewAddress(0x8000);

    fn pair(old: &[u8], new: &[u8]) -> Option<Pair> {
        compare(Processor::X86_64, (old, OLD), (new, NEW))
    }

    #[test]
    fn branches_are_the_same_at_any_width() {
        let cases: [(&[u8], &[u8], Use); 6] = [
            (&[0x74, 0x10], &[0x0f, 0x84, 0, 1, 0, 0], Use::Jump),
            (&[0x0f, 0x8f, 0, 1, 0, 0], &[0x7f, 0x10], Use::Jump),
            (&[0xeb, 0xfe], &[0xe9, 0, 0, 0, 0], Use::Jump),
            (&[0xe9, 0, 0, 0, 0], &[0xeb, 0x7f], Use::Jump),
            (&[0xe3, 0x05], &[0xe3, 0x80], Use::Jump),
            (&[0xf2, 0xe8, 0, 0, 0, 0], &[0xf2, 0xe8, 9, 0, 0, 0], Use::Call),
        ];
        for (old, new, usage) in cases {
            let found = pair(old, new).expect("the same branch");
            assert_eq!((found.old_length, found.new_length), (old.len() as u64, new.len() as u64));
            assert_eq!(found.stated.map(|stated| stated.2), Some(usage), "{old:02x?}");
        }
        let (before, after, _) =
            pair(&[0x74, 0x10], &[0x0f, 0x84, 0, 1, 0, 0]).and_then(|pair| pair.stated).expect("targets");
        assert_eq!((before, after), (Address(0x1012), NewAddress(0x8106)));
    }

    #[test]
    fn other_branches_are_not_the_same() {
        let cases: [(&[u8], &[u8]); 9] = [
            (&[0x74, 0x10], &[0x75, 0x10]),
            (&[0x74, 0x10], &[0x0f, 0x85, 0, 1, 0, 0]),
            (&[0xe3, 0x05], &[0xe2, 0x05]),
            (&[0x67, 0xe3, 0x05], &[0xe3, 0x05]),
            (&[0xe8, 0, 0, 0, 0], &[0xe9, 0, 0, 0, 0]),
            (&[0x3e, 0x74, 0x10], &[0x0f, 0x84, 0, 1, 0, 0]),
            (&[0xeb, 0], &[0xff, 0xe0]),
            (&[0x90], &[0x66, 0x90]),
            (&[0xc7, 0xf8, 0, 0, 0, 0], &[0x0f, 0x84, 0, 0, 0, 0]),
        ];
        for (old, new) in cases {
            assert_eq!(pair(old, new), None, "{old:02x?} {new:02x?}");
        }
    }

    #[test]
    fn only_whole_addresses_are_values() {
        let usage = |bytes: &[u8]| pair(bytes, bytes).and_then(|pair| pair.stated).map(|stated| stated.2);
        assert_eq!(usage(&[0x48, 0x8d, 0x05, 1, 0, 0, 0]), Some(Use::Value), "lea rax, [rip + 1]");
        assert_eq!(usage(&[0x48, 0x8b, 0x05, 1, 0, 0, 0]), Some(Use::Same), "mov rax, [rip + 1]");
        assert_eq!(usage(&[0x8d, 0x05, 1, 0, 0, 0]), Some(Use::Same), "lea eax, [rip + 1]");
        assert_eq!(usage(&[0xff, 0x25, 1, 0, 0, 0]), Some(Use::Same), "jmp [rip + 1]");
        // The immediate after the distance is compared as well.
        let compared = [0x83, 0x3d, 1, 0, 0, 0, 7];
        assert_eq!(usage(&compared), Some(Use::Same), "cmp dword [rip + 1], 7");
        assert_eq!(pair(&compared, &[0x83, 0x3d, 1, 0, 0, 0, 8]), None);
    }

    #[test]
    fn words_of_aarch64_differ_in_their_distance_alone() {
        let words = |old: u32, new: u32| {
            compare(Processor::Aarch64, (&old.to_le_bytes(), OLD), (&new.to_le_bytes(), NEW))
        };
        let found = words(0x9400_0001, 0x9400_0002).expect("bl");
        assert_eq!(found.stated, Some((OLD.plus(4), NEW.plus(8), Use::Call)));
        let calls =
            [0xd63f_0100, 0xd73f_0900, 0x9400_0001].map(|word| words(word, word).map(|pair| pair.is_call));
        assert_eq!(calls, [Some(true); 3], "blr, blraa, bl");
        assert_eq!(
            words(0xd61f_0100, 0xd61f_0100).map(|pair| (pair.is_call, pair.continues)),
            Some((false, false))
        );
        // paciasppc, pacnbibsppc, pacm, autiasppc, autibsppc, retaasppc, cbgt.
        let placed =
            [0xdac1_a3fe, 0xdac1_87fe, 0xd503_24ff, 0xf380_003f, 0xf3a0_003f, 0x5500_003f, 0x7401_4000];
        assert!(placed.into_iter().all(|word| words(word, word).is_some_and(|pair| pair.is_placed)));
        // paciasp, retaa, nop.
        let others = [0xd503_233f, 0xd65f_0bff, 0xd503_201f];
        assert!(others.into_iter().all(|word| words(word, word).is_some_and(|pair| !pair.is_placed)));
        assert_eq!(words(0x5400_0020, 0x5400_0021), None, "b.eq, b.ne");
        assert_eq!(words(0x9400_0001, 0x1400_0001), None, "bl, b");
    }

    #[test]
    fn only_a_plain_direct_jump_ends_a_copy() {
        let target = |bytes: &[u8]| jump_target(Processor::X86_64, bytes, NEW);
        assert_eq!(target(&[0xeb, 2]), Some((NEW.plus(4), 2)));
        assert_eq!(target(&[0xe9, 2, 0, 0, 0]), Some((NEW.plus(7), 5)));
        assert_eq!(
            (target(&[0x74, 2]), target(&[0xe8, 2, 0, 0, 0]), target(&[0xff, 0xe0])),
            (None, None, None)
        );
        assert_eq!((target(&[0xe9, 2]), target(&[])), (None, None));
    }
}
