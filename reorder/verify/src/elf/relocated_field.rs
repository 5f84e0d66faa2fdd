//! What a kept relocation describes: a word of data, or the field of an instruction.
//!
//! Sources: x86-64 psABI, 4.4.1; ELF for the Arm 64-bit Architecture (IHI 0056), 5.7.

use goblin::elf::reloc::{
    R_AARCH64_ABS32, R_AARCH64_ABS64, R_AARCH64_ADD_ABS_LO12_NC, R_AARCH64_ADR_PREL_LO21,
    R_AARCH64_ADR_PREL_PG_HI21, R_AARCH64_ADR_PREL_PG_HI21_NC, R_AARCH64_CALL26, R_AARCH64_CONDBR19,
    R_AARCH64_JUMP26, R_AARCH64_LD_PREL_LO19, R_AARCH64_LDST8_ABS_LO12_NC, R_AARCH64_LDST16_ABS_LO12_NC,
    R_AARCH64_LDST32_ABS_LO12_NC, R_AARCH64_LDST64_ABS_LO12_NC, R_AARCH64_LDST128_ABS_LO12_NC,
    R_AARCH64_PREL32, R_AARCH64_PREL64, R_AARCH64_TSTBR14, R_X86_64_32, R_X86_64_32S, R_X86_64_64,
    R_X86_64_PC32, R_X86_64_PC64, R_X86_64_PLT32,
};

use crate::aarch64::{Form, form, is_add, page, page_offset};
use crate::bytes::{u32_at, u64_at};
use crate::processor::Processor;

/// How a relocation's value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelocatedField {
    /// Four or eight bytes; relative values count from the place.
    Word { width: u64, is_relative: bool },
    /// The distance field of an AArch64 instruction, for `ADRP` in pages.
    Distance(&'static [Form]),
    /// The lowest twelve bits in an AArch64 `ADD`.
    LowOfAdd,
    /// The lowest twelve bits in an AArch64 load or store.
    LowOfAccess,
}

impl RelocatedField {
    /// What relocations of type `kind` describe, if that can be checked.
    pub(crate) fn of(processor: Processor, kind: u32) -> Option<Self> {
        let word = |width, is_relative| Some(Self::Word { width, is_relative });
        match (processor, kind) {
            (Processor::X86_64, R_X86_64_64) | (Processor::Aarch64, R_AARCH64_ABS64) => word(8, false),
            (Processor::X86_64, R_X86_64_32 | R_X86_64_32S) | (Processor::Aarch64, R_AARCH64_ABS32) => {
                word(4, false)
            }
            (Processor::X86_64, R_X86_64_PC32 | R_X86_64_PLT32) | (Processor::Aarch64, R_AARCH64_PREL32) => {
                word(4, true)
            }
            (Processor::X86_64, R_X86_64_PC64) | (Processor::Aarch64, R_AARCH64_PREL64) => word(8, true),
            (Processor::Aarch64, _) => Self::of_instruction(kind),
            (Processor::X86_64, _) => None,
        }
    }

    fn of_instruction(kind: u32) -> Option<Self> {
        let forms: &[Form] = match kind {
            R_AARCH64_CALL26 | R_AARCH64_JUMP26 => &[Form::Branch, Form::Call],
            R_AARCH64_CONDBR19 => &[Form::Conditional],
            R_AARCH64_TSTBR14 => &[Form::TestBit],
            R_AARCH64_LD_PREL_LO19 => &[Form::Literal],
            R_AARCH64_ADR_PREL_LO21 => &[Form::Adr],
            R_AARCH64_ADR_PREL_PG_HI21 | R_AARCH64_ADR_PREL_PG_HI21_NC => &[Form::Adrp],
            R_AARCH64_ADD_ABS_LO12_NC => return Some(Self::LowOfAdd),
            R_AARCH64_LDST8_ABS_LO12_NC
            | R_AARCH64_LDST16_ABS_LO12_NC
            | R_AARCH64_LDST32_ABS_LO12_NC
            | R_AARCH64_LDST64_ABS_LO12_NC
            | R_AARCH64_LDST128_ABS_LO12_NC => return Some(Self::LowOfAccess),
            _ => return None,
        };
        Some(Self::Distance(forms))
    }

    /// Bytes that hold the field.
    pub(crate) fn width(self) -> u64 {
        match self {
            Self::Word { width, .. } => width,
            _ => 4,
        }
    }

    /// Whether it is a word that counts from its own place.
    pub(crate) fn is_relative(self) -> bool {
        matches!(self, Self::Word { is_relative: true, .. })
    }

    /// Whether the field holds only a part of the address, so that other addresses would fit as well.
    pub(crate) fn is_partial(self) -> bool {
        matches!(self, Self::Distance([Form::Adrp]) | Self::LowOfAdd | Self::LowOfAccess)
    }

    /// What `bytes` at `place` say minus what they should for `target`, in the width of the field; `None` when another
    /// instruction is there.
    pub(crate) fn misfit(self, bytes: &[u8], place: u64, target: u64) -> Option<u64> {
        let word = u32_at(bytes, 0)?;
        match self {
            Self::Word { width, is_relative } => {
                let value = if is_relative { target.wrapping_sub(place) } else { target };
                match width {
                    8 => Some(u64_at(bytes, 0)?.wrapping_sub(value)),
                    _ => Some(u64::from(word.wrapping_sub(value as u32))),
                }
            }
            Self::Distance(forms) => {
                let kind = form(word);
                let wanted = if kind == Form::Adrp { page(target) } else { target };
                forms.contains(&kind).then(|| kind.target(word, place).wrapping_sub(wanted))
            }
            Self::LowOfAdd | Self::LowOfAccess => {
                let is_expected = is_add(word) == (self == Self::LowOfAdd);
                Some(page_offset(word).filter(|_| is_expected)?.wrapping_sub(target & 0xfff))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ADRP x0` two pages on, `ADD x0, x0, #0x18`, `LDR x0, [x0, #0x18]` and `BL` back: in their place they lead to one
    /// target, in any other place to another.
    #[test]
    fn fields_of_instructions_fit_their_targets_only() {
        let (place, target) = (0x1_0ffc, 0x1_2018);
        let cases = [
            (R_AARCH64_ADR_PREL_PG_HI21, 0xd000_0000_u32, place, target),
            (R_AARCH64_ADD_ABS_LO12_NC, 0x9100_6000, place, target),
            (R_AARCH64_LDST64_ABS_LO12_NC, 0xf940_0c00, place, target),
            (R_AARCH64_CALL26, 0x97ff_ffff, place, place - 4),
        ];
        for (kind, word, place, target) in cases {
            let field = RelocatedField::of(Processor::Aarch64, kind).unwrap();
            assert_eq!(field.misfit(&word.to_le_bytes(), place, target), Some(0), "{kind}");
            assert_ne!(field.misfit(&word.to_le_bytes(), place, target + 0x1010), Some(0), "{kind}");
            // The linker removed the instruction.
            assert_eq!(field.misfit(&crate::aarch64::NOP.to_le_bytes(), place, target), None, "{kind}");
        }
    }
}
