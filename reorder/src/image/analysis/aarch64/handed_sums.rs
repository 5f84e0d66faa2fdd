//! Addresses of functions that are handed to code which adds to them and goes there.
//!
//! ```text
//! adrp x9, page; add x9, x9, #low        ; the address of a function
//! ldr x8, [x8, w0, sxtw #3]              ; a distance
//! b OUTLINED_FUNCTION_1                  ; add x2, x9, x8; br x2
//! ```
//!
//! Outliners (`-Oz`) leave such pieces: neither of the two functions shows the sum by itself.

use std::collections::BTreeSet;

use crate::address::Address;
use crate::image::analysis::blocks::{BlockIndex, Partition};
use crate::image::code::CodeSpace;
use crate::image::code_reference::{AtomReferences, CodeForm};
use crate::image::decode::aarch64::WORD;
use crate::image::decoded_atom::CodeSum;

/// Instructions of the longest piece that is taken for one.
const MAX_INSTRUCTIONS: u64 = 16;

/// The functions whose addresses are handed to such pieces, as sums, with the function that hands them.
pub(super) fn handed_sums(
    code: &CodeSpace<'_>,
    partition: &Partition,
    references: &AtomReferences,
) -> Vec<(CodeSum, Address)> {
    let pieces: BTreeSet<Address> = partition
        .blocks
        .iter()
        .filter(|block| block.size() <= MAX_INSTRUCTIONS * WORD)
        .filter(|block| goes_to_sum(code.bytes(block.first_function..block.end)))
        .map(|block| block.first_function)
        .collect();
    if pieces.is_empty() {
        return Vec::new();
    }
    let mut sums = Vec::new();
    for (index, block) in partition.blocks.iter().enumerate() {
        let of_block = || references.of_atom(index, block.first_function);
        let is_branch = |form| form == CodeForm::Branch26;
        if !of_block().any(|reference| is_branch(reference.form) && pieces.contains(&reference.target)) {
            continue;
        }
        let taken =
            of_block().filter(|reference| !is_branch(reference.form)).map(|reference| reference.target);
        let is_entry = |target: &Address| {
            let home: Option<BlockIndex> = partition.block_containing(*target);
            home.is_some_and(|home| partition.block(home).is_entry(*target))
        };
        let bases = taken.filter(is_entry).map(|base| CodeSum { base, shift: 0 });
        sums.extend(bases.map(|sum| (sum, block.first_function)));
    }
    sums
}

/// Whether code adds two registers and later jumps to what it made of them, or calls that.
fn goes_to_sum(code: &[u8]) -> bool {
    let mut sum = None;
    code.chunks_exact(WORD as usize).any(|bytes| {
        let word = bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        // ADD of two 64-bit registers, shifted or extended.
        if word & 0xff00_0000 == 0x8b00_0000 {
            sum = Some(word & 31);
        }
        // BR, BLR.
        word & 0xffdf_fc1f == 0xd61f_0000 && sum == Some(word >> 5 & 31)
    })
}

#[cfg(test)]
mod tests {
    use super::goes_to_sum;

    #[test]
    fn a_jump_to_a_sum_of_two_registers_is_seen() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // mov x0, x1; add x2, x9, x8; br x2
        assert!(goes_to_sum(&code(&[0xaa01_03e0, 0x8b08_0122, 0xd61f_0040])));
        // blr x2
        assert!(goes_to_sum(&code(&[0x8b08_0122, 0xd63f_0040])));
        // br x3; ret
        assert!(!goes_to_sum(&code(&[0x8b08_0122, 0xd61f_0060])) && !goes_to_sum(&code(&[0xd65f_03c0])));
    }
}
