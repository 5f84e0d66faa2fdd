//! What the types of static relocations mean: one table for each processor.
//!
//! Sources: System V ABI AMD64, "Relocation Types"; ELF for the Arm 64-bit Architecture, "Relocation".

use reorder_base::processor::Processor;

/// What a relocation stores, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing: the section that it came from was left out.
    Nothing,
    /// S + A in so many bytes of data or of an instruction.
    Absolute(u8),
    /// S + A − P in so many bytes of data or of an instruction.
    Relative(u8),
    /// The way to the symbol's slot in the global offset table; linkers put the way to the symbol itself, or its
    /// address, in its place and keep the type.
    Slot,
    /// S + A or S as a distance from the global offset table.
    FromOffsetTable,
    /// The first part of a call for the address of a thread-local variable, which linkers replace as a whole.
    ThreadLocalCall,
    /// Thread-local storage: no address of code.
    ThreadLocal,
    /// A part of S + A, or a distance to it, that an instruction of AArch64 holds in this form.
    Instruction(InstructionForm),
    /// Sizes, values too narrow for an address, the place of the offset table itself.
    NoCode,
    /// Not in the table.
    Unknown,
}

/// How instructions of AArch64 hold an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionForm {
    /// `b`, `bl`: 26 bits of words.
    Branch,
    /// `b.cond`, `cbz`, `ldr` (literal): 19 bits of words.
    Near,
    /// `tbz`, `tbnz`: 14 bits of words.
    Test,
    /// `adr`: 21 bits of bytes.
    Distance,
    /// `adrp`: 21 bits of pages.
    Page,
    /// `add`: the low twelve bits.
    LowAddition,
    /// Loads and stores of so many bytes: the low twelve bits, scaled.
    LowAccess(u8),
    /// `movz`, `movk`, `movn`: 16 bits of S + A.
    Wide,
}

/// The meaning of type `kind` for `processor`.
#[must_use]
pub fn meaning(processor: Processor, kind: u32) -> Meaning {
    match processor {
        Processor::X86_64 => x86_64(kind),
        Processor::Aarch64 => aarch64(kind),
        Processor::Other => Meaning::Unknown,
    }
}

fn x86_64(kind: u32) -> Meaning {
    use Meaning::{Absolute, FromOffsetTable, NoCode, Nothing, Relative, Slot, ThreadLocal, ThreadLocalCall};
    match kind {
        0 => Nothing,
        1 => Absolute(8),
        2 | 4 => Relative(4),
        10 | 11 => Absolute(4),
        24 => Relative(8),
        // GOTPCREL, its relaxable forms, and those with longer prefixes.
        9 | 41..=43 | 46 | 49 => Slot,
        // GOTOFF64, PLTOFF64.
        25 | 31 => FromOffsetTable,
        // TLSGD, TLSLD.
        19 | 20 => ThreadLocalCall,
        16..=18 | 21..=23 | 34..=36 | 44 | 45 | 47 | 48 | 50 | 51 => ThreadLocal,
        // GOT32, 16 and 8 bits, the offset table's own place or slots counted from it, sizes.
        3 | 12..=15 | 26..=30 | 32 | 33 => NoCode,
        _ => Meaning::Unknown,
    }
}

fn aarch64(kind: u32) -> Meaning {
    use InstructionForm::{Branch, Distance, LowAccess, LowAddition, Near, Page, Test, Wide};
    use Meaning::{Absolute, FromOffsetTable, Instruction, NoCode, Nothing, Relative, Slot, ThreadLocal};
    match kind {
        0 | 256 => Nothing,
        257 => Absolute(8),
        258 => Absolute(4),
        260 => Relative(8),
        // PREL32, PLT32.
        261 | 314 => Relative(4),
        263..=272 => Instruction(Wide),
        273 | 280 => Instruction(Near),
        274 => Instruction(Distance),
        275 | 276 => Instruction(Page),
        277 => Instruction(LowAddition),
        278 => Instruction(LowAccess(1)),
        284 => Instruction(LowAccess(2)),
        285 => Instruction(LowAccess(4)),
        286 => Instruction(LowAccess(8)),
        299 => Instruction(LowAccess(16)),
        279 => Instruction(Test),
        282 | 283 => Instruction(Branch),
        309..=313 | 315 => Slot,
        300..=308 => FromOffsetTable,
        512..=573 => ThreadLocal,
        // 16 bits, and distances in `movz` and `movk`.
        259 | 262 | 287..=293 => NoCode,
        _ => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use object::elf;

    use super::*;

    #[test]
    fn types_that_hold_addresses_are_told_from_those_that_do_not() {
        let x86 = |kind: u32| meaning(Processor::X86_64, kind);
        assert_eq!(x86(elf::R_X86_64_64.0), Meaning::Absolute(8));
        assert_eq!(x86(elf::R_X86_64_32S.0), Meaning::Absolute(4));
        assert_eq!(x86(elf::R_X86_64_PLT32.0), Meaning::Relative(4));
        assert_eq!(x86(elf::R_X86_64_REX_GOTPCRELX.0), Meaning::Slot);
        assert_eq!(x86(elf::R_X86_64_TPOFF32.0), Meaning::ThreadLocal);
        assert_eq!(x86(elf::R_X86_64_RELATIVE.0), Meaning::Unknown);
        let arm = |kind: u32| meaning(Processor::Aarch64, kind);
        assert_eq!(arm(elf::R_AARCH64_ABS64.0), Meaning::Absolute(8));
        assert_eq!(arm(elf::R_AARCH64_CALL26.0), Meaning::Instruction(InstructionForm::Branch));
        assert_eq!(
            arm(elf::R_AARCH64_LDST64_ABS_LO12_NC.0),
            Meaning::Instruction(InstructionForm::LowAccess(8))
        );
        assert_eq!(arm(elf::R_AARCH64_ADR_GOT_PAGE.0), Meaning::Slot);
        assert_eq!(arm(elf::R_AARCH64_TLSDESC_CALL.0), Meaning::ThreadLocal);
        assert_eq!(meaning(Processor::Other, 1), Meaning::Unknown);
    }
}
