//! What follows a function whose last instruction is a call.
//!
//! Compilers end functions with calls that never return. If such a call does return, control runs into what follows, with
//! the address of that place in the link register. A function that begins there would return to itself, so what follows is
//! not a separate function but the rest of this one: it restores a return address that it did not save, calls without saving
//! one, or branches back.

use std::ops::Range;

use super::{CodeContext, words_of};
use crate::decode::aarch64::{Operation, Register, WORD, decode, uses};
use reorder_base::address::Address;

/// The register with the address to return to.
const LINK: Register = Register(30);

/// Whether the function at `target` has an instruction that returns: calls of it return.
pub(super) fn comes_back(context: &CodeContext<'_>, target: Address) -> bool {
    /// Words that are examined: longer functions that never return are rarely called as the last instruction.
    const MAX_EXAMINED: u64 = 1 << 12;
    if context.starts.binary_search(&target).is_err() {
        return false;
    }
    let next = context.starts.partition_point(|start| *start <= target);
    let end = context.starts.get(next).copied().unwrap_or(context.text.end);
    let size = end.distance_from(target).min(MAX_EXAMINED * WORD);
    let words = words_of(context.image.bytes_at(target, size).unwrap_or_default());
    words.into_iter().any(|word| decode(word, target) == Operation::Return)
}

/// What follows a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Following {
    /// It can only be the rest of the function.
    Rest,
    /// It would return to itself if control reached it from a call.
    OwnFunction,
    /// It may be the rest or another function, such as code that never returns.
    Either,
}

/// What follows `function`.
pub(super) fn following(context: &CodeContext<'_>, function: &Range<Address>) -> Following {
    let next = context.starts.partition_point(|start| *start <= function.end);
    let end = context.starts.get(next).copied().unwrap_or(context.text.end);
    let size = end.0.saturating_sub(function.end.0);
    let words = words_of(context.image.bytes_at(function.end, size).unwrap_or_default());
    let (mut is_rest, mut returns) = (false, false);
    for (index, &word) in words.iter().enumerate() {
        let used = uses(word);
        let (reads, writes) = (used.reads >> LINK.0 & 1 == 1, used.writes >> LINK.0 & 1 == 1);
        match decode(word, function.end.plus(index as u64 * WORD)) {
            Operation::Call(_) | Operation::CallRegister(_) => is_rest = true,
            Operation::Return if reads => returns = true,
            Operation::Return => is_rest = true,
            Operation::Branch(target) => is_rest |= function.contains(&target),
            // Saved, in memory or in another register.
            Operation::Move(_, LINK) => return Following::OwnFunction,
            _ if reads && !writes && is_memory(word) => return Following::OwnFunction,
            _ => is_rest |= writes,
        }
    }
    match (is_rest, returns) {
        (true, _) => Following::Rest,
        (false, true) => Following::OwnFunction,
        (false, false) => Following::Either,
    }
}

fn is_memory(word: u32) -> bool {
    word >> 25 & 0b0101 == 0b0100
}
