//! A comparison that copies of dispatches begin with: where the index has no entry in the copied table, control goes to the original.
//!
//! ```text
//! original:                     lea table, %rdx ─> movslq (%rdx,%rax,4) ─> add %rdx ─> jmp
//! copy:      cmp $count, %rax
//!            jae original  ─>   lea copy, %rdx  ─> movslq (%rdx,%rax,4) ─> add %rdx ─> jmp
//! ```
//!
//! Source: AMD64 Architecture Programmer's Manual, volume 3, `CMP` and `Jcc`.

use iced_x86::{Code, Decoder, DecoderOptions, Register};

use reorder_base::address::NewAddress;

/// A guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guard {
    /// Bytes of both instructions.
    pub(super) length: u64,
    /// The register that is compared.
    pub(super) index: Register,
    /// Control goes on if the register holds less than this.
    pub(super) limit: u64,
    /// Where control goes else.
    pub(super) exit: NewAddress,
}

impl Guard {
    /// The guard that `bytes`, which lie at `address`, begin with.
    pub(super) fn read(bytes: &[u8], address: NewAddress) -> Option<Self> {
        let mut decoder = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE);
        let (compare, branch) = (decoder.decode(), decoder.decode());
        // Other lengths have prefixes, which some processors read otherwise.
        let length = match compare.code() {
            Code::Cmp_rm64_imm8 => 4,
            Code::Cmp_rm64_imm32 => 7,
            _ => return None,
        };
        let is_guard = (compare.len(), branch.len()) == (length, 6)
            && compare.op0_register().is_gpr64()
            && branch.code() == Code::Jae_rel32_64;
        let limit = is_guard.then(|| compare.immediate(1)).filter(|limit| i32::try_from(*limit).is_ok())?;
        Some(Self {
            length: (compare.len() + branch.len()) as u64,
            index: compare.op0_register(),
            limit,
            exit: NewAddress(branch.near_branch_target()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unsigned_comparison_of_a_whole_register_is_a_guard() {
        let branch = [0x0f, 0x83, 0x10, 0, 0, 0];
        let guard =
            |compare: &[u8], branch: &[u8]| Guard::read(&[compare, branch].concat(), NewAddress(0x1000));
        let short = guard(&[0x48, 0x83, 0xf8, 5], &branch).expect("cmp $5, %rax");
        assert_eq!((short.length, short.index, short.limit), (10, Register::RAX, 5));
        assert_eq!(short.exit, NewAddress(0x101a));
        let long = guard(&[0x49, 0x81, 0xff, 0, 1, 0, 0], &branch).expect("cmp $256, %r15");
        assert_eq!((long.length, long.index, long.limit), (13, Register::R15, 256));
        assert_eq!(guard(&[0x48, 0x83, 0xf8, 0xff], &branch), None, "a negative number");
        assert_eq!(guard(&[0x83, 0xf8, 5], &branch), None, "cmp $5, %eax");
        assert_eq!(guard(&[0x48, 0x83, 0x38, 5], &branch), None, "memory");
        assert_eq!(guard(&[0x48, 0x83, 0xf8, 5], &[0x0f, 0x8d, 0, 0, 0, 0]), None, "jge");
        assert_eq!(guard(&[0x48, 0x83, 0xf8, 5], &[0x66, 0x0f, 0x83, 0, 0, 0, 0]), None, "a prefix");
    }
}
