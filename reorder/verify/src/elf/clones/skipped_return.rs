//! Calls whose callee may go on after the return that follows: `__morestack` of split stacks returns to the byte after it.
//!
//! What follows the copied return is not what follows the original. Any callee might do this, so no call directly before a return
//! may have a copy.

use super::copies::Copies;
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// Checks the copy at `copy` of the call at `original`, which returns to `next`.
///
/// # Errors
/// The original returns at once after the call.
pub(super) fn check_next(
    copies: &Copies<'_>,
    (copy, original): (NewAddress, Address),
    next: Address,
) -> Result<(), Difference> {
    // A call at the very end of a function does not return there: what follows belongs to another function.
    let returns = copies.old.processor == Processor::X86_64
        && copies.is_middle(original, next)
        && copies.originals(next).is_some_and(is_return);
    if !returns {
        return Ok(());
    }
    let name = format!("the copied call at {copy}");
    let expected = "no copy: a return follows the call, and the callee may skip it";
    Err(Difference::new(Check::Copies, copies.offset(copy), name, expected, "a copy"))
}

/// Near and far returns and those from interrupts, after any prefixes (`REP RET`, `BND RET`).
/// Source: Intel SDM, volume 2, "Instruction Prefixes", `RET` and `IRET`.
fn is_return(bytes: &[u8]) -> bool {
    let opcode = bytes.iter().find(|byte| !is_prefix(**byte));
    matches!(opcode, Some(0xc2 | 0xc3 | 0xca | 0xcb | 0xcf))
}

/// Segments, widths of operands and addresses, repetition, `REX`.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests {
    use super::is_return;

    #[test]
    fn returns_are_recognised_with_their_prefixes() {
        assert!([&[0xc3][..], &[0xf3, 0xc3], &[0xf2, 0xc3], &[0xc2, 8, 0]].into_iter().all(is_return));
        assert!([&[0x48, 0xcb][..], &[0xca, 8, 0], &[0x48, 0xcf], &[0x2e, 0xc3]].into_iter().all(is_return));
        // movss and leave.
        assert!(![&[][..], &[0xf3], &[0xf3, 0x0f, 0x10, 0xc3], &[0xc9, 0xc3]].into_iter().any(is_return));
    }
}
