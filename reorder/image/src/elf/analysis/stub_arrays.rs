//! Arrays of jump stubs whose order and spacing have a meaning.
//!
//! Control-flow integrity checks a pointer by its distance from the first stub; each stub may have a symbol of its
//! own and so look like a function. Two or more adjacent tiny blocks that only jump are taken for such an array.

use crate::elf::analysis::blocks::{Block, BlockIndex, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::{Pin, PinReason};
use reorder_base::processor::Processor;

/// `endbr64` and a near jump, padded; on AArch64 at most `bti` and a branch.
const MAX_STUB: u64 = 16;

/// Pins every block of every array.
pub(crate) fn check_stub_arrays(code: &CodeSpace<'_>, partition: &Partition) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, pair) in partition.blocks.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let adjacent = first.end == second.start && first.size() == second.size();
        if adjacent && is_stub(code, first) && is_stub(code, second) {
            let pin = Pin { reason: PinReason::StubArray, evidence: first.start };
            findings.push(Finding::Pin(BlockIndex(index as u32), pin));
            findings.push(Finding::Pin(BlockIndex(index as u32 + 1), pin));
        }
    }
    findings
}

fn is_stub(code: &CodeSpace<'_>, block: &Block) -> bool {
    if block.size() > MAX_STUB || !block.size().is_power_of_two() {
        return false;
    }
    let bytes = code.bytes(block.start..block.end);
    match code.processor {
        Processor::Aarch64 => is_branch(bytes),
        Processor::X86_64 | Processor::Other => is_jump(bytes),
    }
}

/// `[bti c] b`.
fn is_branch(bytes: &[u8]) -> bool {
    const LANDING_PAD: [u8; 4] = 0xd503_245f_u32.to_le_bytes();
    const BRANCH: u32 = 0x1400_0000;
    const OPCODE: u32 = 0xfc00_0000;
    let bytes = bytes.strip_prefix(&LANDING_PAD).unwrap_or(bytes);
    <[u8; 4]>::try_from(bytes).is_ok_and(|word| u32::from_le_bytes(word) & OPCODE == BRANCH)
}

/// `[endbr64] jmp rel32`, then only `int3` or no-operations.
fn is_jump(bytes: &[u8]) -> bool {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const NEAR_JUMP: u8 = 0xe9;
    let bytes = bytes.strip_prefix(&ENDBR64).unwrap_or(bytes);
    bytes.first() == Some(&NEAR_JUMP)
        && bytes.len() >= 5
        && crate::decode::padding::padding_length(&bytes[5..]) == bytes.len() - 5
}

#[cfg(test)]
mod tests {
    use super::{is_branch, is_jump};

    #[test]
    fn stubs_jump_and_do_nothing_else() {
        assert!(is_jump(&[0xe9, 1, 2, 3, 4, 0xcc, 0xcc, 0xcc]));
        assert!(!is_jump(&[0xe9, 1, 2, 3, 4, 0xc3, 0xcc, 0xcc]) && !is_jump(&[0xe9, 1]));
        assert!(
            is_branch(&[0xfa, 0xff, 0xff, 0x17]) && is_branch(&[0x5f, 0x24, 3, 0xd5, 0xfa, 0xff, 0xff, 0x17])
        );
        // A call, a branch with something after it, no bytes.
        assert!(!is_branch(&[0xfa, 0xff, 0xff, 0x97]) && !is_branch(&[]));
        assert!(!is_branch(&[0xfa, 0xff, 0xff, 0x17, 0xc0, 3, 0x5f, 0xd6]));
    }
}
