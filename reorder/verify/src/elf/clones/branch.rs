//! The encodings of an x86-64 branch: two may have different lengths and still be the same branch.
//!
//! Source: Intel SDM, volume 2, `JMP`, `Jcc`, `CALL`, `LOOP`, `JCXZ`, `XBEGIN`.

use crate::fields::AddressField;

/// What a branch does, whatever the width of its distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    /// `JMP`.
    Jump,
    /// `CALL`.
    Call,
    /// `Jcc` with this condition code.
    Conditional(u8),
    /// `LOOPNE`, `LOOPE`, `LOOP` or `JRCXZ`, by the last byte of the opcode; there is no long form.
    Counted(u8),
    /// `XBEGIN`.
    Transaction,
}

impl Branch {
    /// The prefixes and the operation of the branch at the start of `bytes`; `field` is its distance, which ends it. `None`
    /// for other forms.
    pub(super) fn read(bytes: &[u8], field: AddressField) -> Option<(&[u8], Self)> {
        let (prefixes, branch) = match (bytes.get(..field.offset)?, field.width) {
            ([prefixes @ .., 0xeb], 1) | ([prefixes @ .., 0xe9], 4) => (prefixes, Self::Jump),
            ([prefixes @ .., 0xe8], 4) => (prefixes, Self::Call),
            ([prefixes @ .., code @ 0x70..=0x7f], 1) => (prefixes, Self::Conditional(code & 0xf)),
            ([prefixes @ .., 0x0f, code @ 0x80..=0x8f], 4) => (prefixes, Self::Conditional(code & 0xf)),
            ([prefixes @ .., code @ 0xe0..=0xe3], 1) => (prefixes, Self::Counted(*code)),
            ([prefixes @ .., 0xc7, 0xf8], 4) => (prefixes, Self::Transaction),
            _ => return None,
        };
        Some((prefixes, branch))
    }
}
