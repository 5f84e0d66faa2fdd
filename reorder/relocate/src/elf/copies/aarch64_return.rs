//! What AArch64 functions do with the address that they return to.
//! Source: Procedure Call Standard for the Arm 64-bit Architecture; Arm Architecture Reference Manual, DDI 0487, chapter C4.

/// `LR`.
const LINK: u32 = 30;

/// Whether the function at the start of `bytes` adds to the address, compares it or reads what it points to, before a call
/// replaces it.
pub(super) fn computes_with_return_address(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    for word in words.iter().map(|word| u32::from_le_bytes(*word)) {
        let is_call = word & 0xfc00_0000 == 0x9400_0000 || word & 0xffff_fc00 == 0xd63f_0000;
        let is_return = word & 0xffff_fc1f == 0xd65f_0000;
        if is_call || is_return || is_restored(word) {
            return false;
        }
        let (first, second) = (word >> 5 & 31, word >> 16 & 31);
        // Additions and comparisons of an immediate, of a register; loads and stores with a base.
        let is_immediate = word & 0x1f80_0000 == 0x1100_0000 && first == LINK;
        let is_register = word & 0x1f00_0000 == 0x0b00_0000 && (first == LINK || second == LINK);
        let is_access = word & 0x0a00_0000 == 0x0800_0000 && first == LINK;
        if is_immediate || is_register || is_access {
            return true;
        }
    }
    false
}

/// `LDP x29, x30` and other loads of the register from the stack.
fn is_restored(word: u32) -> bool {
    let is_pair = word & 0x7e40_0000 == 0x2840_0000 && word >> 10 & 31 == LINK;
    let is_single = word & 0xffc0_001f == 0xf940_0000 | LINK || word & 0xffe0_0c1f == 0xf840_0400 | LINK;
    is_pair || is_single
}

#[cfg(test)]
mod tests {
    use super::computes_with_return_address;

    fn computes(words: &[u32]) -> bool {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        computes_with_return_address(&bytes)
    }

    #[test]
    fn computing_is_told_from_keeping() {
        const RET: u32 = 0xd65f_03c0;
        // ldr w0,[x30]; add x0,x30,#4; cmp x30,x0; sub x0,x30,x1.
        for word in [0xb940_03c0, 0x9100_13c0, 0xeb00_03df, 0xcb01_03c0] {
            assert!(computes(&[word, RET]), "{word:#x}");
        }
        // mov x0,x30; stp x29,x30,[sp,-16]!; a call in between; ldp x29,x30,[sp],16.
        assert!(!computes(&[0xaa1e_03e0, RET]) && !computes(&[0xa9bf_7bfd, 0x9400_0010, 0x9100_13c0, RET]));
        assert!(!computes(&[0xa8c1_7bfd, 0x9100_13c0, RET]) && !computes(&[]));
    }
}
