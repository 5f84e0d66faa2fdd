//! Images of four functions and copies of three fragments.
//!
//! ```text
//! 0x1000 first:  push rbp; test edi, edi; je cold; call second; cold: pop rbp; ret
//! 0x1010 second: xor eax, eax; jmp third
//! 0x1020 third:  lea rax, [second]; ret
//! 0x1030 other:  call first; ret                       no copy
//!
//! 0x5000 push rbp; test edi, edi; je 0x100a            copy of 0x1000..0x1005
//! 0x5009 call 0x5020; jmp 0x100a                       copy of 0x1005..0x100a
//! 0x5020 xor eax, eax; jmp 0x1020                      copy of 0x1010..0x1017
//! ```
//!
//! The image for AArch64 has the same functions and copies in words.

use crate::image::{BREAK, Design, Fragment, Function, X86_64, put};

/// `DW_CFA_advance_loc`.
pub(crate) const fn advance(bytes: u8) -> u8 {
    0x40 | bytes
}
/// `DW_CFA_def_cfa_offset`.
pub(crate) const FRAME_OFFSET: u8 = 0x0e;
/// `DW_CFA_offset` of `rbp`; the operand is a multiple of -8.
pub(crate) const SAVED_RBP: u8 = 0x86;
/// `DW_CFA_restore` of `rbp`.
pub(crate) const RESTORED_RBP: u8 = 0xc6;

/// The word of a branch at `place`; `opcode` is that of `B` or `BL`.
pub(crate) fn branch(opcode: u32, place: u64, target: u64) -> u32 {
    opcode | (target.wrapping_sub(place) >> 2) as u32 & 0x03ff_ffff
}

/// `CBZ w0, target`.
fn compare_and_branch(place: u64, target: u64) -> u32 {
    0x3400_0000 | ((target.wrapping_sub(place) >> 2) as u32 & 0x7_ffff) << 5
}

/// `opcode` followed by the distance from `end` to `target`.
pub(crate) fn to(opcode: &[u8], end: u64, target: u64) -> Vec<u8> {
    [opcode, &(target.wrapping_sub(end) as u32).to_le_bytes()].concat()
}

/// A function without an exception table.
pub(crate) fn function(start: u64, size: u64, rules: &[u8]) -> Function {
    Function { start, size, rules: rules.to_vec(), table: None }
}

/// A fragment without an exception table.
pub(crate) fn copy(original: u64, size: u64, copy: u64, code: Vec<u8>, rules: &[u8]) -> Fragment {
    Fragment { original, size, copy, code, rules: Some(rules.to_vec()), table: None }
}

impl Design {
    /// The images of the head of this file.
    pub(crate) fn plain() -> Self {
        let mut text = vec![0xcc; 0x40];
        let first =
            [&[0x55, 0x85, 0xff, 0x74, 0x05][..], &to(&[0xe8], 0x100a, 0x1010), &[0x5d, 0xc3]].concat();
        put(&mut text, 0, &first);
        put(&mut text, 0x10, &[&[0x31, 0xc0][..], &to(&[0xe9], 0x1017, 0x1020)].concat());
        put(&mut text, 0x20, &[&to(&[0x48, 0x8d, 0x05], 0x1027, 0x1010)[..], &[0xc3]].concat());
        put(&mut text, 0x30, &[&to(&[0xe8], 0x1035, 0x1000)[..], &[0xc3]].concat());
        let mut new_text = text.clone();
        put(&mut new_text, 5, &to(&[0xe8], 0x100a, 0x5020));
        put(&mut new_text, 0x30, &to(&[0xe8], 0x1035, 0x5000));
        let framed =
            vec![advance(1), FRAME_OFFSET, 16, SAVED_RBP, 2, advance(10), FRAME_OFFSET, 8, RESTORED_RBP];
        let functions = vec![
            function(0x1000, 12, &framed),
            function(0x1010, 7, &[]),
            function(0x1020, 8, &[]),
            function(0x1030, 6, &[]),
        ];
        let fragments = vec![
            copy(
                0x1000,
                5,
                0x5000,
                [&[0x55, 0x85, 0xff][..], &to(&[0x0f, 0x84], 0x5009, 0x100a)].concat(),
                &[advance(1), FRAME_OFFSET, 16, SAVED_RBP, 2],
            ),
            copy(
                0x1005,
                5,
                0x5009,
                [to(&[0xe8], 0x500e, 0x5020), to(&[0xe9], 0x5013, 0x100a)].concat(),
                &[FRAME_OFFSET, 16, SAVED_RBP, 2],
            ),
            copy(0x1010, 7, 0x5020, [&[0x31, 0xc0][..], &to(&[0xe9], 0x5027, 0x1020)].concat(), &[]),
        ];
        Self {
            machine: X86_64,
            text,
            new_text,
            functions,
            has_tables: false,
            fragments,
            jump_tables: Vec::new(),
        }
    }

    /// The functions of the head of this file for AArch64:
    /// `first` is `stp x29, x30, [sp, #-16]!; cbz w0, cold; bl second; cold: ldp x29, x30, [sp], #16; ret`.
    pub(crate) fn aarch64() -> Self {
        const SAVE: u32 = 0xa9bf_7bfd;
        const CLEAR: u32 = 0x2a1f_03e0;
        const RETURN: u32 = 0xd65f_03c0;
        const NO_OPERATION: u32 = 0xd503_201f;
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mut text = code(&[BREAK; 16]);
        let skip = compare_and_branch(0x1004, 0x100c);
        let call = branch(0x9400_0000, 0x1008, 0x1020);
        put(&mut text, 0, &code(&[SAVE, skip, call, 0xa8c1_7bfd, RETURN]));
        put(&mut text, 0x20, &code(&[CLEAR, branch(0x1400_0000, 0x1024, 0x1030)]));
        put(&mut text, 0x30, &code(&[NO_OPERATION, RETURN]));
        put(&mut text, 0x38, &code(&[branch(0x9400_0000, 0x1038, 0x1000), RETURN]));
        let mut new_text = text.clone();
        put(&mut new_text, 8, &code(&[branch(0x9400_0000, 0x1008, 0x5020)]));
        put(&mut new_text, 0x38, &code(&[branch(0x9400_0000, 0x1038, 0x5000)]));
        let saved = [FRAME_OFFSET, 16, 0x9d, 2, 0x9e, 1];
        let framed = [&[advance(4)][..], &saved, &[advance(12), FRAME_OFFSET, 0, 0xdd, 0xde]].concat();
        let functions = vec![
            function(0x1000, 20, &framed),
            function(0x1020, 8, &[]),
            function(0x1030, 8, &[]),
            function(0x1038, 8, &[]),
        ];
        let fragments = vec![
            copy(
                0x1000,
                8,
                0x5000,
                code(&[SAVE, compare_and_branch(0x5004, 0x100c)]),
                &[&[advance(4)][..], &saved].concat(),
            ),
            copy(
                0x1008,
                4,
                0x5008,
                code(&[branch(0x9400_0000, 0x5008, 0x5020), branch(0x1400_0000, 0x500c, 0x100c)]),
                &saved,
            ),
            copy(0x1020, 8, 0x5020, code(&[CLEAR, branch(0x1400_0000, 0x5024, 0x1030)]), &[]),
        ];
        Self {
            machine: 183,
            text,
            new_text,
            functions,
            has_tables: false,
            fragments,
            jump_tables: Vec::new(),
        }
    }
}
