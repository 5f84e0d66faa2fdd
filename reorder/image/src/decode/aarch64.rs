//! AArch64 instructions that matter for moving code: those that depend on their own place, and enough of the others to
//! follow addresses through registers.
//!
//! Every instruction is one word. Source: Arm Architecture Reference Manual, DDI 0487, chapter C4 (encoding index).

use reorder_base::address::Address;

/// Bytes of an instruction.
pub const WORD: u64 = 4;
/// Bytes that `ADRP` counts in.
pub const PAGE: u64 = 4096;
/// `NOP`.
pub const NOP: u32 = 0xd503_201f;

/// A general register; 31 is the zero register or the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

impl Register {
    /// Not a register that keeps a value: zero or the stack pointer.
    pub const NONE: Self = Self(31);

    pub(crate) fn at(word: u32, bit: u32) -> Self {
        Self((word >> bit & 31) as u8)
    }
}

/// What an instruction does, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `B`.
    Branch(Address),
    /// `BL`.
    Call(Address),
    /// `B.cond`, `CBZ`, `CBNZ`: ±1 MiB; `TBZ`, `TBNZ`: ±32 KiB. May go on after it.
    ConditionalBranch(Address),
    /// `BR` and its forms with authentication.
    BranchRegister(Register),
    /// `BLR` and its forms with authentication.
    CallRegister(Register),
    /// `RET`, `ERET` and their forms with authentication.
    Return,
    /// `BRK`, `HLT`, `UDF`: control does not go on.
    Trap,
    /// `ADR`.
    Adr(Register, Address),
    /// `ADRP`: the address of the page.
    Adrp(Register, Address),
    /// `LDR` of a literal, `LDRSW`, `PRFM`, into an integer register or, with `None`, a vector or no register.
    LoadLiteral(Option<Register>, Address),
    /// `ADD` of an immediate, 64 bits: destination, source, the number.
    AddImmediate(Register, Register, u64),
    /// A load or store with an unsigned immediate: base, the offset in bytes, and what a load writes.
    Access(Register, u64, MemoryAccess),
    /// A load with an index: destination, base; bytes loaded; whether the sign is extended to 64 bits.
    IndexedLoad(Register, Register, u8, bool),
    /// `ADD` of registers, 64 bits: destination, first, second, the shift of the second; how the second is extended.
    AddRegister(Register, Register, Register, u8, Extension),
    /// `MOV` of a register, 64 bits.
    Move(Register, Register),
    /// `NOP`.
    Nop,
    /// Unallocated encodings, or data.
    Invalid,
    /// Anything else: see [`uses`].
    Other,
}

/// How an addition extends a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The lowest bytes: 1, 2, 4, or all 8.
    pub bytes: u8,
    /// Their sign is extended.
    pub is_signed: bool,
}

impl Extension {
    /// The whole register.
    pub const NONE: Self = Self { bytes: 8, is_signed: false };
}

/// A load or store with an unsigned immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The logarithm of the bytes that the immediate counts in.
    pub scale: u8,
    /// The integer register that a load writes.
    pub loads: Option<Register>,
    /// The integer register that a store reads.
    pub stores: Option<Register>,
}

fn signed(word: u32, low: u32, bits: u32) -> i64 {
    let shift = 32 - bits;
    i64::from((word >> low << shift) as i32 >> shift)
}

fn relative(place: Address, words: i64) -> Address {
    Address(place.0.wrapping_add((words * 4) as u64))
}

/// The distance of `ADR` and `ADRP`: 21 bits in two fields.
fn adr_immediate(word: u32) -> i64 {
    signed(word, 5, 19) << 2 | i64::from(word >> 29 & 3)
}

/// What the instruction `word` at `place` does.
#[must_use]
pub fn decode(word: u32, place: Address) -> Operation {
    match word >> 25 & 0xf {
        0b1000 | 0b1001 => decode_immediate(word, place),
        0b1010 | 0b1011 => decode_branch(word, place),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => decode_memory(word, place),
        0b0101 | 0b1101 => decode_register(word),
        0b0111 | 0b1111 | 0b0010 => Operation::Other,
        // UDF has zeros above its 16 bits; the rest of the class is matrix code, which programs are not expected to hold,
        // or unallocated.
        0 if word >> 16 == 0 => Operation::Trap,
        _ => Operation::Invalid,
    }
}

fn decode_immediate(word: u32, place: Address) -> Operation {
    if word & 0x1f00_0000 == 0x1000_0000 {
        let register = Register::at(word, 0);
        return match word >> 31 {
            0 => Operation::Adr(register, Address(place.0.wrapping_add(adr_immediate(word) as u64))),
            _ => {
                let page = (place.0 & !(PAGE - 1)).wrapping_add((adr_immediate(word) * PAGE as i64) as u64);
                Operation::Adrp(register, Address(page))
            }
        };
    }
    if word & 0xff80_0000 == 0x9100_0000 {
        let shift = (word >> 22 & 1) * 12;
        let number = u64::from(word >> 10 & 0xfff) << shift;
        return Operation::AddImmediate(Register::at(word, 0), Register::at(word, 5), number);
    }
    Operation::Other
}

fn decode_branch(word: u32, place: Address) -> Operation {
    if word & 0x7c00_0000 == 0x1400_0000 {
        let target = relative(place, signed(word, 0, 26));
        return if word >> 31 == 0 { Operation::Branch(target) } else { Operation::Call(target) };
    }
    // B.cond, BC.cond; CBZ and CBNZ.
    if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        return Operation::ConditionalBranch(relative(place, signed(word, 5, 19)));
    }
    if word & 0x7e00_0000 == 0x3600_0000 {
        return Operation::ConditionalBranch(relative(place, signed(word, 5, 14)));
    }
    // BRK and HLT.
    if word & 0xffe0_001f == 0xd420_0000 || word & 0xffe0_001f == 0xd440_0000 {
        return Operation::Trap;
    }
    if word == NOP {
        return Operation::Nop;
    }
    if word & 0xfe00_0000 == 0xd600_0000 {
        // The lowest bit of the kind tells calls from jumps; forms with authentication have bit 24.
        return match word >> 21 & 0xf {
            0 | 8 => Operation::BranchRegister(Register::at(word, 5)),
            1 | 9 => Operation::CallRegister(Register::at(word, 5)),
            2 | 4 => Operation::Return,
            _ => Operation::Invalid,
        };
    }
    Operation::Other
}

fn decode_memory(word: u32, place: Address) -> Operation {
    let (size, is_vector) = (word >> 30, word >> 26 & 1 == 1);
    if word & 0x3b00_0000 == 0x1800_0000 {
        let target = relative(place, signed(word, 5, 19));
        let register = (!is_vector && size != 3).then(|| Register::at(word, 0));
        return Operation::LoadLiteral(register, target);
    }
    let kind = word >> 22 & 3;
    if word & 0x3b00_0000 == 0x3900_0000 {
        let scale = if is_vector && size == 0 && kind >= 2 { 4 } else { size as u8 };
        let register = Register::at(word, 0);
        // Prefetching is encoded as a load that writes no register.
        let is_prefetch = size == 3 && kind == 2;
        let (loads, stores) = match (is_vector || is_prefetch, kind) {
            (true, _) => (None, None),
            (false, 0) => (None, Some(register)),
            (false, _) => (Some(register), None),
        };
        let offset = u64::from(word >> 10 & 0xfff) << scale;
        return Operation::Access(Register::at(word, 5), offset, MemoryAccess { scale, loads, stores });
    }
    // With a register as index; never for vectors here.
    if word & 0x3f20_0c00 == 0x3820_0800 && kind != 0 && !(size == 3 && kind == 2) {
        let is_signed = kind == 2;
        return Operation::IndexedLoad(Register::at(word, 0), Register::at(word, 5), 1 << size, is_signed);
    }
    Operation::Other
}

fn decode_register(word: u32) -> Operation {
    let registers = (Register::at(word, 0), Register::at(word, 5), Register::at(word, 16));
    // ADD (shifted register), 64 bits, LSL.
    if word & 0xffe0_0000 == 0x8b00_0000 {
        let shift = (word >> 10 & 0x3f) as u8;
        return Operation::AddRegister(registers.0, registers.1, registers.2, shift, Extension::NONE);
    }
    // ADD (extended register), 64 bits.
    if word & 0xffe0_0000 == 0x8b20_0000 {
        let shift = (word >> 10 & 7) as u8;
        let extension = Extension { bytes: 1 << (word >> 13 & 3), is_signed: word >> 15 & 1 == 1 };
        return Operation::AddRegister(registers.0, registers.1, registers.2, shift, extension);
    }
    // ORR with the zero register.
    if word & 0xffe0_ffe0 == 0xaa00_03e0 {
        return Operation::Move(registers.0, registers.2);
    }
    Operation::Other
}

/// Integer registers that an instruction reads and writes, as bits by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Registers whose value may be read.
    pub reads: u32,
    /// Registers whose value is replaced.
    pub writes: u32,
    /// Registers whose value may be replaced: the instruction is not decoded any further.
    pub may_write: u32,
}

/// All registers but 31.
const ALL: u32 = 0x7fff_ffff;

/// The integer registers that `word` uses: a superset of those that it reads and writes.
#[must_use]
pub fn uses(word: u32) -> Uses {
    let bit = |at: u32| 1_u32 << (word >> at & 31);
    let (first, second, third, fourth) = (bit(0), bit(5), bit(16), bit(10));
    let mut may_write = 0;
    let (reads, writes) = match word >> 25 & 0xf {
        0b1000 | 0b1001 => match word >> 23 & 7 {
            // ADR and ADRP.
            0 | 1 => (0, first),
            // MOVK, unlike MOVN and MOVZ, keeps the other bits.
            5 => (if word >> 29 & 3 == 3 { first } else { 0 }, first),
            // BFM keeps bits of its destination.
            6 => (second | if word >> 29 & 3 == 1 { first } else { 0 }, first),
            7 => (second | third, first),
            _ => (second, first),
        },
        0b1010 | 0b1011 => branch_uses(word, first, second),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => return memory_uses(word),
        // CCMP and CCMN write only flags.
        0b0101 | 0b1101 if word & 0x1fe0_0000 == 0x1a40_0000 => (second | third, 0),
        // Only multiplications that add have a third source; elsewhere its bits are numbers.
        0b0101 | 0b1101 if word & 0x1f00_0000 == 0x1b00_0000 => (second | third | fourth, first),
        0b0101 | 0b1101 => (second | third, first),
        // Only moves and conversions between vectors and integers have integer registers; both fields count as one. Bit 28
        // is for scalars, otherwise copies of elements from or to a general register.
        0b0111 | 0b1111 => match is_between_vectors_and_integers(word) {
            true => {
                may_write = first & ALL;
                (second, 0)
            }
            false => (0, 0),
        },
        // Scalable vectors, matrices, unallocated.
        _ => {
            may_write = ALL;
            (ALL, 0)
        }
    };
    Uses { reads: reads & ALL, writes: writes & ALL, may_write }
}

fn is_between_vectors_and_integers(word: u32) -> bool {
    // Conversions with integers and with fixed-point numbers.
    let conversion = word & 0x5f20_fc00 == 0x1e20_0000 || word & 0x5f20_0000 == 0x1e00_0000;
    // DUP (general), SMOV, UMOV, INS (general).
    let copy = word & 0x9fe0_8400 == 0x0e00_0400;
    conversion || copy
}

fn branch_uses(word: u32, first: u32, second: u32) -> (u32, u32) {
    // CBZ, CBNZ, TBZ, TBNZ.
    if word & 0x7c00_0000 == 0x3400_0000 {
        return (first, 0);
    }
    // BR, BLR, RET; with authentication also a modifier.
    if word & 0xfe00_0000 == 0xd600_0000 {
        return (second | first, 0);
    }
    // System instructions: MSR reads, MRS writes, and so do SYS and SYSL.
    if word & 0xffc0_0000 == 0xd500_0000 {
        return (first, first);
    }
    (0, 0)
}

fn memory_uses(word: u32) -> Uses {
    let bit = |at: u32| 1_u32 << (word >> at & 31);
    let (first, base, third, pair) = (bit(0), bit(5), bit(16), bit(10));
    let is_vector = word >> 26 & 1 == 1;
    // Loads of literals have no base.
    if word & 0x3b00_0000 == 0x1800_0000 {
        return Uses { reads: 0, writes: if is_vector { 0 } else { first & ALL }, may_write: 0 };
    }
    let mut reads = base;
    let mut writes = 0;
    let mut may_write = 0;
    // Prefetching is encoded as a load of eight bytes with sign extension.
    let is_prefetch = word >> 30 == 3 && word >> 22 & 3 == 2;
    let transferred = if is_vector || is_prefetch { 0 } else { first };
    match word >> 28 & 3 {
        // Exclusives, ordered accesses, compare and swap; vectors in structures, whose base may be written back.
        0 if !is_vector => {
            reads |= first | third | pair;
            may_write |= first | third | pair;
        }
        0 => {
            reads |= third;
            may_write |= base;
        }
        // Pairs: bit 22 tells loads; bit 23 tells writing back.
        2 => {
            let both = if is_vector { 0 } else { first | pair };
            if word >> 22 & 1 == 1 {
                writes |= both
            } else {
                reads |= both
            }
            if word >> 23 & 1 == 1 {
                writes |= base;
            }
        }
        // Single registers; unscaled ordered accesses and memory copies have class 1.
        3 => {
            let is_unsigned_immediate = word >> 24 & 1 == 1;
            if is_unsigned_immediate {
                if word >> 22 & 3 == 0 { reads |= transferred } else { writes |= transferred }
            } else if word >> 21 & 1 == 1 && word >> 10 & 3 == 0 {
                // Atomic memory operations.
                reads |= third | first;
                may_write |= first;
            } else {
                let is_authenticated = word >> 21 & 1 == 1 && word >> 10 & 1 == 1;
                if word >> 22 & 3 == 0 && !is_authenticated {
                    reads |= transferred
                } else {
                    writes |= transferred
                }
                if word >> 21 & 1 == 1 {
                    reads |= third;
                }
                // Before or after the access; with authentication, bit 11 as well. An index in a register has bit 11 alone.
                if word >> 10 & 1 == 1 && (word >> 21 & 1 == 0 || word >> 11 & 1 == 1) {
                    writes |= base;
                }
            }
        }
        _ => {
            reads |= first | third;
            may_write |= first | base | third;
        }
    }
    Uses { reads: reads & ALL, writes: writes & ALL, may_write: may_write & ALL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(word: u32, operation: Operation) {
        assert_eq!(decode(word, Address(0x1_0000_4000)), operation);
    }

    const X: fn(u8) -> Register = Register;

    /// Words as clang 22 assembles them.
    #[test]
    fn instructions_are_told_apart() {
        is(0x1400_0001, Operation::Branch(Address(0x1_0000_4004)));
        is(0x97ff_ffff, Operation::Call(Address(0x1_0000_3ffc)));
        is(0x5400_0041, Operation::ConditionalBranch(Address(0x1_0000_4008)));
        is(0xb4ff_ffe3, Operation::ConditionalBranch(Address(0x1_0000_3ffc)));
        is(0x3707_ffe0, Operation::ConditionalBranch(Address(0x1_0000_3ffc)));
        is(0x1000_0021, Operation::Adr(X(1), Address(0x1_0000_4004)));
        is(0x9000_0000, Operation::Adrp(X(0), Address(0x1_0000_4000)));
        is(0xf0ff_ffe0, Operation::Adrp(X(0), Address(0x1_0000_3000)));
        is(0x9100_4022, Operation::AddImmediate(X(2), X(1), 16));
        is(0x9140_0422, Operation::AddImmediate(X(2), X(1), 4096));
        is(0xd61f_0200, Operation::BranchRegister(X(16)));
        is(0xd63f_0100, Operation::CallRegister(X(8)));
        is(0xd65f_03c0, Operation::Return);
        is(0xd420_0020, Operation::Trap);
        is(0, Operation::Trap);
        is(0x5800_0040, Operation::LoadLiteral(Some(X(0)), Address(0x1_0000_4008)));
        is(0x9c00_0040, Operation::LoadLiteral(None, Address(0x1_0000_4008)));
        is(0x3868_6929, Operation::IndexedLoad(X(9), X(9), 1, false));
        is(0xb8a8_792a, Operation::IndexedLoad(X(10), X(9), 4, true));
        is(0x8b09_0908, Operation::AddRegister(X(8), X(8), X(9), 2, Extension::NONE));
        is(0x8b29_c108, Operation::AddRegister(X(8), X(8), X(9), 0, Extension { bytes: 4, is_signed: true }));
        is(0x8b27_8907, Operation::AddRegister(X(7), X(8), X(7), 2, Extension { bytes: 1, is_signed: true }));
        is(0xaa01_03e0, Operation::Move(X(0), X(1)));
        is(0xffff_ff00, Operation::Other);
        is(NOP, Operation::Nop);
        let load = MemoryAccess { scale: 3, loads: Some(X(3)), stores: None };
        is(0xf940_0823, Operation::Access(X(1), 16, load));
        let store = MemoryAccess { scale: 2, loads: None, stores: Some(X(3)) };
        is(0xb900_0423, Operation::Access(X(1), 4, store));
    }

    #[test]
    fn registers_are_read_and_written() {
        let is = |word, reads: &[u8], writes: &[u8]| {
            let bits = |registers: &[u8]| registers.iter().map(|register| 1 << register).sum::<u32>();
            let used = uses(word);
            assert_eq!((used.reads, used.writes | used.may_write), (bits(reads), bits(writes)), "{word:#x}");
        };
        is(0xf940_0823, &[1], &[3]);
        is(0xa9bf_7bfd, &[29, 30], &[]); // stp x29, x30, [sp, #-16]!
        is(0xa8c1_53f3, &[], &[19, 20]); // ldp x19, x20, [sp], #16
        is(0xf800_8c41, &[1, 2], &[2]); // str x1, [x2, #8]!
        is(0x3dc0_0020, &[1], &[]); // ldr q0, [x1]
        is(0x9e66_0001, &[0], &[1]); // fmov x1, d0: the vector counts as read
        is(0xf280_0021, &[1], &[1]); // movk
        is(0xd280_0021, &[], &[1]); // movz
        is(0x4e20_8400, &[], &[]); // add v0.16b, v0.16b, v0.16b
        is(0x4e08_1c20, &[1], &[0]); // mov v0.d[0], x1
        is(0x7a40_0824, &[0, 1], &[]); // ccmp w1, #0, #4, eq: flags are not a register
        is(0xf862_6823, &[1, 2], &[3]); // ldr x3, [x1, x2]: the base stays
        is(0xf820_0c23, &[0, 1], &[1, 3]); // ldraa x3, [x1]!: bits of its number count as an index
        is(0xf8a2_6828, &[1, 2], &[]); // prfm #8, [x1, x2]
    }
}
