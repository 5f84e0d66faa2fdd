//! The fields of AArch64 instructions that hold a distance from the instruction.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1.

/// `NOP`.
pub(crate) const NOP: u32 = 0xd503_201f;

/// A form of instruction with a distance; the most significant byte decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
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
    /// PC-relative loads and prefetches.
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
pub(crate) fn form(word: u32) -> Form {
    FORMS[(word >> 24) as usize]
}

impl Form {
    /// The bits of the distance.
    pub(crate) fn field(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Branch | Self::Call => 0x03ff_ffff,
            Self::Conditional | Self::Literal => 0x00ff_ffe0,
            Self::TestBit => 0x0007_ffe0,
            Self::Adr | Self::Adrp => 0x60ff_ffe0,
        }
    }

    /// Whether control may go there.
    pub(crate) fn is_jump(self) -> bool {
        matches!(self, Self::Branch | Self::Call | Self::Conditional | Self::TestBit)
    }

    /// The target of `word` at `address`; of `ADRP`, the page.
    pub(crate) fn target(self, word: u32, address: u64) -> u64 {
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
pub(crate) fn page(address: u64) -> u64 {
    address & !0xfff
}

/// Register number at bit `shift`.
pub(crate) fn register(word: u32, shift: u32) -> usize {
    (word >> shift & 31) as usize
}

/// The bits of the 12-bit immediate of `ADD` and of loads and stores.
pub(crate) const IMMEDIATE: u32 = 0x003f_fc00;

/// What the 12-bit immediate of `word` adds to its base register: of `ADD Xd, Xn, #imm` without a shift, and of loads,
/// stores and prefetches with a scaled, unsigned offset.
pub(crate) fn page_offset(word: u32) -> Option<u64> {
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
pub(crate) fn is_add(word: u32) -> bool {
    word & 0xffc0_0000 == 0x9100_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses of the words.
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
}
