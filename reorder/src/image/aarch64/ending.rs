//! What stands behind a function whose last instruction is a call.
//!
//! Nearly always the call never comes back. If it does, control runs into what follows, with the address of just that place in
//! the link register. A function that begins there would return to itself, so what follows is no function of its own, but
//! the rest of this one: it restores a return address that it did not save, calls without saving one, or goes back.

use std::ops::Range;

use super::{CodeContext, words_of};
use crate::address::Address;
use crate::image::decode::aarch64::{Operation, Register, WORD, decode, uses};

/// The register with the address to return to.
const LINK: Register = Register(30);

/// Whether nothing but padding stands behind the last call.
pub(super) fn ends_with_call(operations: &[Operation]) -> bool {
    let last = operations.iter().rev().find(|operation| **operation != Operation::Nop);
    matches!(last, Some(Operation::Call(_) | Operation::CallRegister(_)))
}

/// Whether what stands behind `function` can only be its rest.
pub(super) fn is_continued(context: &CodeContext<'_>, function: &Range<Address>) -> bool {
    let next = context.starts.partition_point(|start| *start <= function.end);
    let end = context.starts.get(next).copied().unwrap_or(context.text.end);
    let size = end.0.saturating_sub(function.end.0);
    let words = words_of(context.image.bytes_at(function.end, size).unwrap_or_default());
    let mut is_rest = false;
    for (index, &word) in words.iter().enumerate() {
        let used = uses(word);
        let (reads, writes) = (used.reads >> LINK.0 & 1 == 1, used.writes >> LINK.0 & 1 == 1);
        match decode(word, function.end.plus(index as u64 * WORD)) {
            Operation::Call(_) | Operation::CallRegister(_) => is_rest = true,
            Operation::Return => is_rest |= !reads,
            Operation::Branch(target) => is_rest |= function.contains(&target),
            // Saved, in memory or in another register.
            Operation::Move(_, LINK) => return false,
            _ if reads && !writes && is_memory(word) => return false,
            _ => is_rest |= writes,
        }
    }
    is_rest
}

fn is_memory(word: u32) -> bool {
    word >> 25 & 0b0101 == 0b0100
}
