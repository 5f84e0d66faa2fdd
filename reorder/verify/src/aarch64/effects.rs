//! The effect of an instruction on the general registers and on control.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1.

use super::form::{Form, form, register};

/// Which registers (bit by number, 31 left out) an instruction reads and writes, and where control goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    /// Control never reaches the next instruction.
    pub(crate) ends: bool,
    /// A call: registers that the calling convention does not preserve are lost.
    pub(crate) is_call: bool,
}

/// The effect of `word` on the general registers. A register that may be read counts as read; one that may keep its value
/// does not count as written.
pub(crate) fn effects(word: u32) -> Effects {
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
        // Scalable extensions and unallocated encodings may read any register.
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
        // One register is loaded: LDXR, LDAXR, LDAR, LDLAR.
        0b00 if word & 0x3f60_0000 == 0x0840_0000 => {
            effects.reads = rn;
            effects.writes = rt;
        }
        0b00 => effects.reads = rn | rm | rt | rt2,
        // PC-relative loads; prefetches write no register.
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

/// Whether the destination of a conversion or move is certainly a general register.
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

    /// Registers as a mask.
    fn mask(registers: &[u32]) -> u32 {
        registers.iter().fold(0, |mask, register| mask | 1 << register)
    }

    #[test]
    fn reads_and_writes_are_those_of_the_instruction() {
        let cases: [(u32, &[u32], &[u32]); 19] = [
            (0x9101_0109, &[8], &[9]),         // add x9, x8, #0x40
            (0xd280_0009, &[], &[9]),          // mov x9, #0
            (0xf280_0029, &[9], &[9]),         // movk x9, #1
            (0xb340_0d09, &[8, 9], &[9]),      // bfxil x9, x8, #0, #4
            (0x8b0a_0109, &[8, 10], &[9]),     // add x9, x8, x10
            (0x9b0a_2d09, &[8, 10, 11], &[9]), // madd x9, x8, x10, x11
            (0xf940_0109, &[8], &[9]),         // ldr x9, [x8]
            (0xf900_0109, &[8, 9], &[]),       // str x9, [x8]
            (0xc8df_fd09, &[8], &[9]),         // ldar x9, [x8]
            (0xc85f_7d09, &[8], &[9]),         // ldxr x9, [x8]
            (0xc89f_fd09, &[8, 9], &[]),       // stlr x9, [x8]
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
