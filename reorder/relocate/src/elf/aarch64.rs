//! Instruction words with a new distance.
//!
//! Source: Arm Architecture Reference Manual, DDI 0487, C6.2: `ADD (immediate)`, `ADR`, `ADRP`, `B`, `B.cond`, `BL`, `CBZ`,
//! `LDR (immediate)`, `LDR (literal)`, `TBZ`.

use reorder_base::address::NewAddress;
use reorder_image::decode::aarch64::PAGE;

/// The distance, if a field of `bits` bits, scaled by `1 << scale`, can hold it.
fn field(distance: u64, bits: u32, scale: u32) -> Option<u32> {
    let distance = distance as i64;
    let value = distance >> scale;
    let limit = 1_i64 << (bits - 1);
    let fits = value << scale == distance && (-limit..limit).contains(&value);
    fits.then_some((value as u32) & (u32::MAX >> (32 - bits)))
}

/// `B` or `BL`.
pub(crate) fn branch(word: u32, place: NewAddress, target: NewAddress) -> Option<u32> {
    Some(word & 0xfc00_0000 | field(target.distance_from(place), 26, 2)?)
}

/// `B.cond`, `CBZ` and `CBNZ`, or `TBZ` and `TBNZ`.
pub(crate) fn conditional(word: u32, place: NewAddress, target: NewAddress) -> Option<u32> {
    /// `TBZ` and `TBNZ`, whose distance has fewer bits.
    const TESTS_BIT: u32 = 0x3600_0000;
    let bits = if word & 0x7e00_0000 == TESTS_BIT { 14 } else { 19 };
    let mask = (u32::MAX >> (32 - bits)) << 5;
    Some(word & !mask | field(target.distance_from(place), bits, 2)? << 5)
}

fn with_split_immediate(word: u32, value: u32) -> u32 {
    word & 0x9f00_001f | (value & 3) << 29 | (value >> 2) << 5
}

/// `ADR`.
pub(crate) fn adr(word: u32, place: NewAddress, target: NewAddress) -> Option<u32> {
    Some(with_split_immediate(word, field(target.distance_from(place), 21, 0)?))
}

/// `ADRP`, from either an `ADR` or an `ADRP`.
pub(crate) fn adrp(word: u32, place: NewAddress, target: NewAddress) -> Option<u32> {
    let pages = (target.0 & !(PAGE - 1)).wrapping_sub(place.0 & !(PAGE - 1));
    Some(with_split_immediate(word | 0x8000_0000, field(pages, 21, 12)?))
}

/// The lowest 12 bits of `target`, in an `ADD`, a load or a store that counts in `1 << scale` bytes.
pub(crate) fn page_offset(word: u32, target: NewAddress, scale: u8) -> Option<u32> {
    let offset = (target.0 & (PAGE - 1)) as u32;
    (offset >> scale << scale == offset).then_some(word & !0x003f_fc00 | offset >> scale << 10)
}

/// A load of a literal.
pub(crate) fn literal(word: u32, place: NewAddress, target: NewAddress) -> Option<u32> {
    Some(word & 0xff00_001f | field(target.distance_from(place), 19, 2)? << 5)
}

/// `ADD` of the target's lowest 12 bits to the register that `adr` writes.
pub(crate) fn add_of(adr: u32, target: NewAddress) -> Option<u32> {
    let register = adr & 31;
    page_offset(0x9100_0000 | register << 5 | register, target, 0)
}

/// `ADRP` of the target's page, into the register that the load of a literal writes.
pub(crate) fn adrp_of(literal: u32, place: NewAddress, target: NewAddress) -> Option<u32> {
    adrp(0x9000_0000 | literal & 31, place, target)
}

/// The load through a register that does what the load of a literal did.
pub(crate) fn load_of(literal: u32, target: NewAddress) -> Option<u32> {
    let register = literal & 31;
    let (load, scale) = match literal >> 30 {
        0 => (0xb940_0000, 2),
        1 => (0xf940_0000, 3),
        2 => (0xb980_0000, 2),
        _ => return None,
    };
    page_offset(load | register << 5 | register, target, scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use reorder_base::address::Address;
    use reorder_image::decode::aarch64::{Operation, Register, decode};

    const PLACE: NewAddress = NewAddress(0x1_0040_0000);

    fn at(distance: i64) -> NewAddress {
        PLACE.plus(distance as u64)
    }

    fn decoded(word: Option<u32>) -> Option<Operation> {
        word.map(|word| decode(word, Address(PLACE.0)))
    }

    #[test]
    fn each_form_reaches_just_as_far_as_its_field() {
        let branch = |distance| decoded(branch(0x9400_0000, PLACE, at(distance)));
        let limit = 1_i64 << 27;
        assert_eq!(branch(limit - 4), Some(Operation::Call(Address(at(limit - 4).0))));
        assert_eq!(branch(-limit), Some(Operation::Call(Address(at(-limit).0))));
        assert_eq!((branch(limit), branch(-limit - 4), branch(2)), (None, None, None));
        let adr = |distance| decoded(adr(0x1000_0003, PLACE, at(distance)));
        let limit = 1 << 20;
        assert_eq!(adr(limit - 1), Some(Operation::Adr(Register(3), Address(at(limit - 1).0))));
        assert_eq!(adr(-limit), Some(Operation::Adr(Register(3), Address(at(-limit).0))));
        assert_eq!((adr(limit), adr(-limit - 1)), (None, None));
        let literal = |distance| decoded(literal(0x5800_0003, PLACE, at(distance)));
        assert_eq!(
            literal(limit - 4),
            Some(Operation::LoadLiteral(Some(Register(3)), Address(at(limit - 4).0)))
        );
        assert_eq!((literal(limit), literal(2)), (None, None));
        let adrp = |distance| decoded(adrp(0x1000_0003, PLACE, at(distance)));
        let limit = 1 << 32;
        assert_eq!(adrp(limit - 1), Some(Operation::Adrp(Register(3), Address(at(limit - 4096).0))));
        assert_eq!(adrp(-limit), Some(Operation::Adrp(Register(3), Address(at(-limit).0))));
        assert_eq!((adrp(limit), adrp(-limit - 1)), (None, None));
    }

    #[test]
    fn offsets_in_pages_keep_their_scale() {
        assert_eq!(page_offset(0xf940_0001, NewAddress(0x1ff8), 3), Some(0xf947_fc01));
        assert_eq!(page_offset(0xf940_0001, NewAddress(0x1ffc), 3), None);
        assert_eq!(page_offset(0x9100_0000, NewAddress(0x1fff), 0), Some(0x913f_fc00));
    }

    proptest! {
        #[test]
        fn the_undone_pair_forms_the_address(place in any::<u32>(), target in any::<u32>(), register in 0_u32..31) {
            let (place, target) = (NewAddress(u64::from(place) & !3), NewAddress(u64::from(target)));
            let adrp = decode(adrp(0x9000_0000 | register, place, target).unwrap_or(0), Address(place.0));
            let add = decode(add_of(register, target).unwrap_or(0), Address(0));
            let number = Register(register as u8);
            let Operation::Adrp(written, page) = adrp else { return Err(TestCaseError::fail("no ADRP")) };
            prop_assert_eq!(written, number);
            prop_assert_eq!(add, Operation::AddImmediate(number, number, target.0.wrapping_sub(page.0)));
        }
    }
}
