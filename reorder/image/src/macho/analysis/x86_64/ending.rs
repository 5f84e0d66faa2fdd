//! What follows a function whose last instruction is a call.
//!
//! The call almost never returns. If it does, control runs into what follows, with the stack as it was at the call. A
//! function that begins there would return to whatever is on top of the stack, unless the stack is as at the entry; so what
//! follows is the rest of this function only if the stack may be as at the entry, or if it pops values that it did not push.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use super::X86Context;
use super::walk::{Byte, Walk};
use reorder_base::address::Address;

/// What a piece of code does first with the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Puts,
    Takes,
    Calls,
    /// It ends before doing any of these.
    Nothing,
}

/// Whether the code after `atom` may be its rest.
pub(super) fn is_continued(context: &X86Context<'_>, atom: &Range<Address>, walk: &Walk<'_>) -> bool {
    let next = context.starts.partition_point(|start| *start <= atom.end);
    let end = context.starts.get(next).copied().unwrap_or_else(|| context.file.text().end());
    if atom.end >= end {
        return false;
    }
    let following = context.bytes(&(atom.end..end));
    first_use(context.bytes(atom)) != Use::Puts
        || matches!(first_use(following), Use::Takes | Use::Calls)
        || is_balanced_at_end(context.bytes(atom), walk)
}

fn first_use(bytes: &[u8]) -> Use {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if let Some(used) = use_of(&instruction) {
            return used;
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => return Use::Calls,
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ => return Use::Nothing,
        }
    }
    Use::Nothing
}

/// What an instruction other than a call or return does with the stack pointer.
fn use_of(instruction: &Instruction) -> Option<Use> {
    let is_for_stack = instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Enter => Some(Use::Puts),
        Mnemonic::Pop | Mnemonic::Popfq | Mnemonic::Leave => Some(Use::Takes),
        Mnemonic::Sub | Mnemonic::And if is_for_stack => Some(Use::Puts),
        Mnemonic::Lea if is_for_stack && instruction.memory_displacement64() as i64 <= 0 => Some(Use::Puts),
        Mnemonic::Add | Mnemonic::Lea | Mnemonic::Mov if is_for_stack => Some(Use::Takes),
        _ => None,
    }
}

/// Whether values are popped on the linear path to the last call: the stack may be as at the entry there.
fn is_balanced_at_end(bytes: &[u8], walk: &Walk<'_>) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut has_call = false;
    for position in (0..bytes.len()).rev().filter(|position| walk.state(*position) == Byte::First) {
        if decoder.set_position(position).is_err() {
            return true;
        }
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall if has_call => return false,
            FlowControl::Call | FlowControl::IndirectCall => has_call = true,
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ => return false,
        }
        match use_of(&instruction) {
            Some(Use::Takes) => return true,
            Some(_) => return false,
            None => {}
        }
    }
    false
}
