//! Compares one instruction of an original with that of its copy: whether both do the same, and where they lead.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

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
    /// The whole address is kept, or the contents of memory there are used.
    Value,
    /// The address must be the same: a part of it is kept, or the contents of memory there are used.
    Same,
}

/// Two instructions that are equal except for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Bytes of each.
    pub(super) length: u64,
    /// Control may continue after them.
    pub(super) continues: bool,
    /// The addresses that they state: old, new, and their use.
    pub(super) stated: Option<(Address, NewAddress, Use)>,
}

/// Compares the first instructions of `old` and `new`, which lie at these addresses; `None` when they differ in more than an
/// address, or cannot be decoded.
pub(super) fn compare(processor: Processor, old: (&[u8], Address), new: (&[u8], NewAddress)) -> Option<Pair> {
    match processor {
        Processor::X86_64 => compare_x86_64(old, new),
        Processor::Aarch64 => compare_aarch64(old, new),
    }
}

fn compare_x86_64(
    (old, old_address): (&[u8], Address),
    (new, new_address): (&[u8], NewAddress),
) -> Option<Pair> {
    let mut decoders = [(old, old_address.0), (new, new_address.0)]
        .map(|(bytes, address)| Decoder::with_ip(64, bytes, address, DecoderOptions::NONE));
    let [before, after] = decoders.each_mut().map(Decoder::decode);
    if before.is_invalid() || after.is_invalid() || before.len() != after.len() {
        return None;
    }
    let length = before.len();
    let continues = match before.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => false,
        // Handlers of traps may continue after them.
        _ => before.mnemonic() != Mnemonic::Hlt,
    };
    let [first, second] = &decoders;
    let stated = match (addressing(first, &before), addressing(second, &after)) {
        (Addressing::None, Addressing::None) if old[..length] == new[..length] => None,
        (Addressing::Field(field), Addressing::Field(other)) => {
            let bytes = field.offset..field.offset + field.width;
            let is_same = (field.offset, field.width) == (other.offset, other.width)
                && old[..bytes.start] == new[..bytes.start]
                && old[bytes.end..length] == new[bytes.end..length];
            let usage = match (field.is_branch, before.flow_control()) {
                (false, _) => Use::Value,
                (true, FlowControl::Call) => Use::Call,
                (true, _) => Use::Jump,
            };
            Some(is_same.then_some((Address(field.target), NewAddress(other.target), usage))?)
        }
        _ => return None,
    };
    Some(Pair { length: length as u64, continues, stated })
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
    Some(Pair { length: 4, continues: !effects(before).ends || is_breakpoint(before), stated })
}

/// Whether `word` is `BRK`, after which a handler may continue.
fn is_breakpoint(word: u32) -> bool {
    word & 0xffe0_001f == 0xd420_0000
}

/// Target of the unconditional jump at the start of `bytes`, which lie at `address`; `None` if there is no such jump.
pub(super) fn jump_target(processor: Processor, bytes: &[u8], address: NewAddress) -> Option<NewAddress> {
    match processor {
        Processor::X86_64 => {
            let instruction = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode();
            let is_jump = instruction.flow_control() == FlowControl::UnconditionalBranch;
            is_jump.then(|| NewAddress(instruction.near_branch_target()))
        }
        Processor::Aarch64 => {
            let word = u32_at(bytes, 0)?;
            (form(word) == Form::Branch).then(|| NewAddress(Form::Branch.target(word, address.0)))
        }
    }
}
