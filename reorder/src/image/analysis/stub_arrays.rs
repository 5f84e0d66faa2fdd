//! Arrays of jump stubs whose order and spacing have a meaning.
//!
//! Control-flow integrity checks a pointer by its distance from the first stub; each stub may have a symbol of its
//! own and so look like a function. Two or more adjacent tiny blocks that only jump are taken for such an array.

use crate::image::analysis::blocks::{Block, BlockIndex, Partition};
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::analysis::references::Finding;
use crate::image::code::CodeSpace;

/// `endbr64` and a near jump, padded.
const LARGEST_STUB: u64 = 16;

/// Pins every block of every array.
pub fn check_stub_arrays(code: &CodeSpace<'_>, partition: &Partition, findings: &mut Vec<Finding>) {
    for (index, pair) in partition.blocks.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let adjacent = first.end == second.start && first.size() == second.size();
        if adjacent && is_stub(code, first) && is_stub(code, second) {
            let pin = Pin { reason: PinReason::StubArray, evidence: first.start };
            findings.push(Finding::Pin(BlockIndex(index as u32), pin));
            findings.push(Finding::Pin(BlockIndex(index as u32 + 1), pin));
        }
    }
}

/// `[endbr64] jmp rel32`, then only `int3` or no-operations.
fn is_stub(code: &CodeSpace<'_>, block: &Block) -> bool {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const NEAR_JUMP: u8 = 0xe9;
    if block.size() > LARGEST_STUB || !block.size().is_power_of_two() {
        return false;
    }
    let bytes = code.bytes(block.start..block.end);
    let bytes = bytes.strip_prefix(&ENDBR64).unwrap_or(bytes);
    bytes.first() == Some(&NEAR_JUMP)
        && bytes.len() >= 5
        && crate::image::decode::padding::padding_length(&bytes[5..]) == bytes.len() - 5
}
