//! Addresses of functions that are handed to code which adds to them and goes there.
//!
//! ```text
//! adrp x9, page; add x9, x9, #low        ; the address of a function
//! ldr x8, [x8, w0, sxtw #3]              ; a distance
//! b OUTLINED_FUNCTION_1                  ; add x2, x9, x8; br x2
//! ```
//!
//! Outliners (`-Oz`) leave such pieces: neither of the two functions shows the sum by itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::code_reference::{AtomReferences, CodeForm};
use crate::decode::aarch64::WORD;
use crate::decoded_atom::CodeSum;
use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::code::CodeSpace;
use reorder_base::address::Address;

/// Instructions of the longest piece that is taken for one.
const MAX_INSTRUCTIONS: u64 = 16;

/// The functions whose addresses are handed to such pieces, as sums, with the function that hands them.
pub(super) fn handed_sums(
    code: &CodeSpace<'_>,
    partition: &Partition,
    references: &AtomReferences,
) -> Vec<(CodeSum, Address)> {
    let small = partition.blocks.iter().filter(|block| block.size() <= MAX_INSTRUCTIONS * WORD);
    let pieces: BTreeMap<Address, u8> = small
        .filter_map(|block| {
            let shift = sum_that_is_called(code.bytes(block.first_function..block.end))?;
            Some((block.first_function, shift))
        })
        .collect();
    if pieces.is_empty() {
        return Vec::new();
    }
    let mut sums = Vec::new();
    for (index, block) in partition.blocks.iter().enumerate() {
        let of_block = || references.of_atom(index, block.first_function);
        let is_branch = |form| form == CodeForm::Branch26;
        let called = of_block().filter(|reference| is_branch(reference.form));
        let shifts: BTreeSet<u8> =
            called.filter_map(|reference| pieces.get(&reference.target).copied()).collect();
        if shifts.is_empty() {
            continue;
        }
        let taken =
            of_block().filter(|reference| !is_branch(reference.form)).map(|reference| reference.target);
        let is_entry = |target: &Address| {
            let home: Option<BlockIndex> = partition.block_containing(*target);
            home.is_some_and(|home| partition.block(home).is_entry(*target))
        };
        for base in taken.filter(is_entry) {
            sums.extend(shifts.iter().map(|&shift| (CodeSum { base, shift }, block.first_function)));
        }
    }
    sums
}

/// How far code shifts the second of two registers that it adds, if it later jumps to the sum or calls it.
fn sum_that_is_called(code: &[u8]) -> Option<u8> {
    let mut sum = None;
    code.chunks_exact(WORD as usize).find_map(|bytes| {
        let word = bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        match word {
            // ADD of two 64-bit registers, shifted or extended.
            _ if word & 0xffe0_0000 == 0x8b00_0000 => sum = Some((word & 31, (word >> 10 & 0x3f) as u8)),
            _ if word & 0xffe0_0000 == 0x8b20_0000 => sum = Some((word & 31, (word >> 10 & 7) as u8)),
            _ => {}
        }
        // BR, BLR.
        let called = (word & 0xffdf_fc1f == 0xd61f_0000).then_some(word >> 5 & 31);
        sum.filter(|(register, _)| Some(*register) == called).map(|(_, shift)| shift)
    })
}

#[cfg(test)]
mod tests {
    use super::sum_that_is_called;

    #[test]
    fn a_jump_to_a_sum_of_two_registers_is_seen() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // mov x0, x1; add x2, x9, x8; br x2
        assert_eq!(sum_that_is_called(&code(&[0xaa01_03e0, 0x8b08_0122, 0xd61f_0040])), Some(0));
        // add x2, x9, w8, sxtw #2; br x2
        assert_eq!(sum_that_is_called(&code(&[0x8b28_c922, 0xd61f_0040])), Some(2));
        // blr x2
        assert_eq!(sum_that_is_called(&code(&[0x8b08_0122, 0xd63f_0040])), Some(0));
        // br x3; ret
        assert_eq!(sum_that_is_called(&code(&[0x8b08_0122, 0xd61f_0060])), None);
        assert_eq!(sum_that_is_called(&code(&[0xd65f_03c0])), None);
    }
}
