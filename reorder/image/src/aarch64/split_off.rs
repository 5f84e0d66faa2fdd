//! Whether the target of a branch uses what a register holds.
//!
//! Calls pass no arguments in the registers that hold pages (Procedure Call Standard for the Arm 64-bit Architecture, 6.1),
//! but parts that compilers split off from a function continue with its registers.

use super::{CodeContext, words_of};
use crate::decode::aarch64::{Operation, Register, WORD, decode, uses};
use reorder_base::address::Address;

/// Instructions that are examined: parts that were split off complete a page soon.
const MAX_EXAMINED: u64 = 256;

/// Registers that calls preserve: x19 to x28. Functions save them before they use them.
const SAVED: std::ops::RangeInclusive<u8> = 19..=28;

/// Whether the code at `target` reads `register` before it replaces it, as far as a linear scan shows.
pub(super) fn takes_register(context: &CodeContext<'_>, target: Address, register: Register) -> bool {
    let size = context.text.end.distance_from(target).min(MAX_EXAMINED * WORD);
    let words = words_of(context.image.bytes_at(target, size).unwrap_or_default());
    let is = |bits: u32| bits >> register.0 & 1 == 1;
    for (index, word) in words.into_iter().enumerate() {
        let used = uses(word);
        if is(used.reads) {
            return !(SAVED.contains(&register.0) && is_store_to_stack(word));
        }
        match decode(word, target.plus(index as u64 * WORD)) {
            _ if is(used.writes) => return false,
            Operation::Call(_) | Operation::CallRegister(_) if !SAVED.contains(&register.0) => return false,
            Operation::Branch(_)
            | Operation::BranchRegister(_)
            | Operation::Return
            | Operation::Trap
            | Operation::Invalid => return false,
            _ => {}
        }
    }
    false
}

/// A store of one register or two at the stack pointer.
fn is_store_to_stack(word: u32) -> bool {
    let is_pair = word & 0x3a40_0000 == 0x2800_0000;
    let is_single = word & 0x3b40_0000 == 0x3800_0000 || word & 0x3b40_0000 == 0x3900_0000;
    (is_pair || is_single) && Register::at(word, 5) == Register(31)
}
