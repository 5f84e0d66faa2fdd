//! The fields of arm64 instructions that hold a distance from the instruction.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1.

/// `NOP`.
pub(super) const NOP: u32 = 0xd503_201f;

/// A form of instruction with a distance; the highest byte decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// No distance.
    Plain,
    /// `B`.
    Branch,
    /// `BL`.
    Call,
    /// `B.cond`, `BC.cond`, `CBZ`, `CBNZ`.
    Conditional,
    /// `TBZ`, `TBNZ`.
    TestBit,
    /// Loads and prefetches at a distance.
    Literal,
    /// `ADR`.
    Adr,
    /// `ADRP`.
    Adrp,
}

const fn form_of_byte(byte: u8) -> Form {
    match byte {
        _ if byte & 0xfc == 0x14 => Form::Branch,
        _ if byte & 0xfc == 0x94 => Form::Call,
        0x54 => Form::Conditional,
        _ if byte & 0x7e == 0x34 => Form::Conditional,
        _ if byte & 0x7e == 0x36 => Form::TestBit,
        _ if byte & 0x3b == 0x18 => Form::Literal,
        _ if byte & 0x9f == 0x10 => Form::Adr,
        _ if byte & 0x9f == 0x90 => Form::Adrp,
        _ => Form::Plain,
    }
}

const FORMS: [Form; 256] = {
    let mut forms = [Form::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        forms[byte] = form_of_byte(byte as u8);
        byte += 1;
    }
    forms
};

/// The form of `word`.
pub(super) fn form(word: u32) -> Form {
    FORMS[(word >> 24) as usize]
}

impl Form {
    /// The bits of the distance.
    pub(super) fn field(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Branch | Self::Call => 0x03ff_ffff,
            Self::Conditional | Self::Literal => 0x00ff_ffe0,
            Self::TestBit => 0x0007_ffe0,
            Self::Adr | Self::Adrp => 0x60ff_ffe0,
        }
    }

    /// Whether control may go there.
    pub(super) fn is_jump(self) -> bool {
        matches!(self, Self::Branch | Self::Call | Self::Conditional | Self::TestBit)
    }

    /// What `word` at `address` stands for; of `ADRP`, the page.
    pub(super) fn target(self, word: u32, address: u64) -> u64 {
        /// The value of the highest `bits` bits of `word << shift`, with their sign.
        fn signed(word: u32, shift: u32, bits: u32) -> u64 {
            i64::from(((word << shift) as i32) >> (32 - bits)) as u64
        }
        let split = || signed(word, 8, 19) << 2 | u64::from(word >> 29 & 3);
        match self {
            Self::Plain => address,
            Self::Branch | Self::Call => address.wrapping_add(signed(word, 6, 26) << 2),
            Self::Conditional | Self::Literal => address.wrapping_add(signed(word, 8, 19) << 2),
            Self::TestBit => address.wrapping_add(signed(word, 13, 14) << 2),
            Self::Adr => address.wrapping_add(split()),
            Self::Adrp => page(address).wrapping_add(split() << 12),
        }
    }
}

/// The start of the 4 KiB page that holds `address`.
pub(super) fn page(address: u64) -> u64 {
    address & !0xfff
}

/// Register number at bit `shift`.
pub(super) fn register(word: u32, shift: u32) -> usize {
    (word >> shift & 31) as usize
}

/// The bits of the 12-bit immediate of `ADD` and of loads and stores.
pub(super) const IMMEDIATE: u32 = 0x003f_fc00;

/// What the 12-bit immediate of `word` adds to its base register: of `ADD Xd, Xn, #imm` without a shift, and of loads,
/// stores and prefetches with a scaled, unsigned offset.
pub(super) fn page_offset(word: u32) -> Option<u64> {
    let immediate = u64::from((word & IMMEDIATE) >> 10);
    if is_add(word) {
        return Some(immediate);
    }
    if word & 0x3b00_0000 != 0x3900_0000 {
        return None;
    }
    let is_vector = word & 1 << 26 != 0;
    let is_wide = is_vector && word & 1 << 23 != 0;
    let scale = if is_wide { 4 } else { word >> 30 };
    Some(immediate << scale)
}

/// Whether `word` is `ADD Xd, Xn, #imm` without a shift.
pub(super) fn is_add(word: u32) -> bool {
    word & 0xffc0_0000 == 0x9100_0000
}

/// Which registers (bit by number, 31 left out) an instruction reads and writes, and where control goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    pub(super) reads: u32,
    pub(super) writes: u32,
    /// Control never reaches the next instruction.
    pub(super) ends: bool,
    /// A call: what the convention does not preserve is lost.
    pub(super) is_call: bool,
}

/// What `word` does to the general registers. A register that may be read counts as read; one that may stay as it is does
/// not count as written.
pub(super) fn effects(word: u32) -> Effects {
    let bit = |shift: u32| 1u32 << register(word, shift);
    let (rd, rn, rm, ra) = (bit(0), bit(5), bit(16), bit(10));
    let mut effects = match word >> 25 & 0xf {
        0b1000 | 0b1001 => immediate_effects(word, rd, rn, rm),
        0b1010 | 0b1011 => control_effects(word, rd, rn),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory_effects(word, rd, rn, rm, ra),
        0b0101 | 0b1101 => {
            let reads_third = word & 0x1f00_0000 == 0x1b00_0000;
            let is_compare = word & 0x1fe0_0000 == 0x1a40_0000;
            let reads = rn | rm | if reads_third { ra } else { 0 };
            Effects { reads, writes: if is_compare { 0 } else { rd }, ..Effects::default() }
        }
        0b0111 | 0b1111 => vector_effects(word, rd, rn),
        0b0000 if word >> 16 == 0 => Effects { ends: true, ..Effects::default() },
        // Scalable extensions and what is not allocated: may read anything.
        _ => Effects { reads: u32::MAX, ..Effects::default() },
    };
    effects.reads &= 0x7fff_ffff;
    effects.writes &= 0x7fff_ffff;
    effects
}

fn immediate_effects(word: u32, rd: u32, rn: u32, rm: u32) -> Effects {
    let reads = match word >> 23 & 7 {
        0b000 | 0b001 => 0,
        0b101 if word >> 29 & 3 == 3 => rd,
        0b101 => 0,
        0b110 if word >> 29 & 3 == 1 => rd | rn,
        0b111 => rn | rm,
        _ => rn,
    };
    Effects { reads, writes: rd, ..Effects::default() }
}

fn control_effects(word: u32, rd: u32, rn: u32) -> Effects {
    const BREAK: u32 = 0xd420_0000;
    match word {
        _ if form(word) == Form::Branch => Effects { ends: true, ..Effects::default() },
        _ if form(word) == Form::Call => Effects { is_call: true, ..Effects::default() },
        _ if word & 0x7c00_0000 == 0x3400_0000 => Effects { reads: rd, ..Effects::default() },
        // BR, BLR, RET, ERET and their authenticated forms, which read a second register.
        _ if word & 0xfe00_0000 == 0xd600_0000 => {
            let is_call = word >> 21 & 3 == 1;
            let modifier = if word & 1 << 24 != 0 { rd } else { 0 };
            Effects { reads: rn | modifier, ends: !is_call, is_call, ..Effects::default() }
        }
        _ if word & 0xffe0_001f == BREAK => Effects { ends: true, ..Effects::default() },
        // MRS and SYSL write, MSR and SYS read.
        _ if word & 0xffe0_0000 == 0xd520_0000 => Effects { writes: rd, ..Effects::default() },
        _ if word & 0xfff0_0000 == 0xd510_0000 || word & 0xfff8_0000 == 0xd508_0000 => {
            Effects { reads: rd, ..Effects::default() }
        }
        _ => Effects::default(),
    }
}

fn memory_effects(word: u32, rt: u32, rn: u32, rm: u32, rt2: u32) -> Effects {
    let is_vector = word & 1 << 26 != 0;
    let mut effects = Effects::default();
    let class = word >> 28 & 3;
    match class {
        // Exclusive and ordered accesses; vector structures.
        0b00 if is_vector => effects.reads = rn | rm,
        0b00 => effects.reads = rn | rm | rt | rt2,
        // Loads at a distance; prefetches write nothing.
        0b01 if word & 0x3b00_0000 == 0x1800_0000 => {
            let is_prefetch = word >> 30 == 3;
            effects.writes = if is_vector || is_prefetch { 0 } else { rt };
        }
        0b01 => effects.reads = rn | rm | rt,
        // Pairs.
        0b10 => {
            let is_load = word & 1 << 22 != 0;
            effects.reads = rn;
            if !is_vector {
                *(if is_load { &mut effects.writes } else { &mut effects.reads }) |= rt | rt2;
            }
        }
        _ => {
            let opcode = word >> 22 & 3;
            let is_scaled = word & 1 << 24 != 0;
            let second = word >> 10 & 3;
            let is_atomic = !is_scaled && word & 1 << 21 != 0 && second == 0;
            let has_offset_register = !is_scaled && word & 1 << 21 != 0 && second == 2;
            effects.reads = rn | if has_offset_register { rm } else { 0 };
            if is_atomic {
                effects.reads |= rm | rt;
            } else if !is_vector {
                let is_prefetch = word >> 30 == 3 && opcode == 2;
                match opcode {
                    0 => effects.reads |= rt,
                    _ if is_prefetch => {}
                    _ => effects.writes = rt,
                }
            }
        }
    }
    effects
}

fn vector_effects(word: u32, rd: u32, rn: u32) -> Effects {
    // Conversions between general and vector registers, and moves of elements.
    let is_conversion =
        word & 0x5f20_0000 == 0x1e20_0000 && word & 0xfc00 == 0 || word & 0x5f20_0000 == 0x1e00_0000;
    let is_copy = word & 0x9fe0_8400 == 0x0e00_0400;
    match is_conversion || is_copy {
        true => Effects { reads: rn, writes: if to_general(word) { rd } else { 0 }, ..Effects::default() },
        false => Effects::default(),
    }
}

/// Of conversions and moves: whether the destination is certainly a general register.
fn to_general(word: u32) -> bool {
    match word & 0x5f20_0000 == 0x1e20_0000 && word & 0xfc00 == 0 {
        // FCVT* to integers, and FMOV to a general register.
        true => !matches!(word >> 16 & 7, 2 | 3 | 7),
        false => word & 0xbfe0_fc00 == 0x0e00_3c00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the words stand.
    const PLACE: u64 = 0x10_0000;

    #[test]
    fn distances_are_read_at_both_ends_of_their_range() {
        let known = [
            (0x1400_0001, Form::Branch, 4),
            (0x17ff_ffff, Form::Branch, -4),
            (0x95ff_ffff, Form::Call, (1 << 27) - 4),
            (0x5480_0000, Form::Conditional, -(1 << 20)),
            (0xb47f_ffe0, Form::Conditional, (1 << 20) - 4),
            (0x3604_0000, Form::TestBit, -(1 << 15)),
            (0xb703_ffe1, Form::TestBit, (1 << 15) - 4),
            (0x58ff_ffe0, Form::Literal, -4),
            (0x7000_0000, Form::Adr, 3),
            (0x70ff_ffe1, Form::Adr, -1),
            (0x9080_0000, Form::Adrp, -(1 << 32)),
            (0xf07f_ffe0, Form::Adrp, (1 << 32) - 0x1000),
        ];
        for (word, expected, distance) in known {
            let found = (form(word), expected.target(word, PLACE));
            assert_eq!(found, (expected, PLACE.wrapping_add_signed(distance)), "{word:#x}");
        }
        assert_eq!(form(NOP), Form::Plain);
        assert_eq!(Form::Adrp.target(0x9000_0000, PLACE + 0xffc), PLACE, "pages count from the page");
    }

    #[test]
    fn low_bits_are_scaled_by_the_size_of_the_access() {
        let cases = [
            (0x9101_0108, Some(0x40)), // add x8, x8, #0x40
            (0x9141_0108, None),       // add x8, x8, #0x40, lsl #12
            (0x1101_0108, None),       // add w8, w8, #0x40
            (0xf940_0908, Some(0x10)), // ldr x8, [x8, #0x10]
            (0x3940_0908, Some(2)),    // ldrb w8, [x8, #2]
            (0x3dc0_0900, Some(0x20)), // ldr q0, [x8, #0x20]
            (0xfd40_0900, Some(0x10)), // ldr d0, [x8, #0x10]
            (0xf840_8108, None),       // ldur x8, [x8, #8]
        ];
        for (word, expected) in cases {
            assert_eq!(page_offset(word), expected, "{word:#x}");
        }
    }

    /// Registers as a mask.
    fn mask(registers: &[u32]) -> u32 {
        registers.iter().fold(0, |mask, register| mask | 1 << register)
    }

    #[test]
    fn reads_and_writes_are_those_of_the_instruction() {
        let cases: [(u32, &[u32], &[u32]); 16] = [
            (0x9101_0109, &[8], &[9]),         // add x9, x8, #0x40
            (0xd280_0009, &[], &[9]),          // mov x9, #0
            (0xf280_0029, &[9], &[9]),         // movk x9, #1
            (0xb340_0d09, &[8, 9], &[9]),      // bfxil x9, x8, #0, #4
            (0x8b0a_0109, &[8, 10], &[9]),     // add x9, x8, x10
            (0x9b0a_2d09, &[8, 10, 11], &[9]), // madd x9, x8, x10, x11
            (0xf940_0109, &[8], &[9]),         // ldr x9, [x8]
            (0xf900_0109, &[8, 9], &[]),       // str x9, [x8]
            (0xa940_2909, &[8], &[9, 10]),     // ldp x9, x10, [x8]
            (0xa900_2909, &[8, 9, 10], &[]),   // stp x9, x10, [x8]
            (0x3dc0_0109, &[8], &[]),          // ldr q9, [x8]
            (0x3d80_0109, &[8], &[]),          // str q9, [x8]
            (0xb400_0049, &[9], &[]),          // cbz x9, …
            (0x1e28_2000, &[], &[]),           // fcmp s0, s8
            (0x9e66_0109, &[8], &[9]),         // fmov x9, d8: not told from a read of x8
            (0x9e67_0109, &[8], &[]),          // fmov d9, x8
        ];
        for (word, reads, writes) in cases {
            let found = effects(word);
            assert_eq!((found.reads, found.writes), (mask(reads), mask(writes)), "{word:#x}");
        }
        let call = effects(0x9400_0000);
        assert!(call.is_call && !call.ends);
        let (returns, jumps, breaks, undefined) = (0xd65f_03c0, 0xd61f_0100, 0xd420_0020, 0);
        assert!([returns, jumps, breaks, undefined].into_iter().all(|word| effects(word).ends));
        assert!(effects(0xd63f_0100).is_call && !effects(0xd63f_0100).ends);
    }

    proptest::proptest! {
        /// A register that is written is one that the word names.
        #[test]
        fn only_named_registers_are_written(word: u32) {
            let named = mask(&[word & 31, word >> 5 & 31, word >> 10 & 31, word >> 16 & 31]);
            proptest::prop_assert_eq!(effects(word).writes & !named, 0);
        }
    }
}
