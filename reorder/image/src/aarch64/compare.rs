//! What a comparison with a number tells about a register after a conditional branch: it bounds the size of jump tables.
//!
//! Source: Arm Architecture Reference Manual, DDI 0487, sections C4.1 and C1.2.4 (condition codes).

use crate::decode::aarch64::{Register, uses};

/// `CMP` of a register with a number, whose flags are still set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    register: Register,
    number: u32,
}

/// A register is less than `limit` where a branch is taken, or where it is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) register: Register,
    pub(super) limit: u32,
    pub(super) where_taken: bool,
}

/// The comparison whose flags are set after `word`, if those of `before` were set before it.
pub(super) fn compared_after(word: u32, before: Option<Compared>) -> Option<Compared> {
    let source = Register::at(word, 5);
    if word & 0x7f80_001f == 0x7100_001f && source != Register::NONE {
        let shift = (word >> 22 & 1) * 12;
        return Some(Compared { register: source, number: (word >> 10 & 0xfff) << shift });
    }
    before.filter(|compared| {
        let used = uses(word);
        !sets_flags(word) && (used.writes | used.may_write) >> compared.register.0 & 1 == 0
    })
}

/// Whether `word` may change the flags; calls count as doing so, and so do rare instructions.
fn sets_flags(word: u32) -> bool {
    match word >> 25 & 0xf {
        0b1000 | 0b1001 => match word >> 23 & 7 {
            2 | 3 => word >> 29 & 1 == 1,
            4 => word >> 29 & 3 == 3,
            _ => false,
        },
        0b0101 | 0b1101 => match word >> 24 & 0x1f {
            0x0a => word >> 29 & 3 == 3,
            0x0b => word >> 29 & 1 == 1,
            // Conditional selection and instructions with two sources set no flags, except differences of tagged pointers.
            0x1a => !matches!(word >> 21 & 7, 4 | 6) || word >> 29 & 1 == 1,
            _ => false,
        },
        0b1010 | 0b1011 => word & 0x7c00_0000 != 0x3400_0000 && word & 0xff00_0010 != 0x5400_0000,
        // These include copies of memory.
        0b0100 | 0b0110 | 0b1100 | 0b1110 => word & 0x3b00_0000 == 0x1900_0000,
        _ => true,
    }
}

/// What `branch` tells about the register, if it depends on `compared`.
pub(super) fn known_after(branch: u32, compared: Compared) -> Option<Known> {
    if branch & 0xff00_0010 != 0x5400_0000 {
        return None;
    }
    let (limit, where_taken) = match branch & 0xf {
        2 => (compared.number, false),
        3 => (compared.number, true),
        8 => (compared.number + 1, false),
        9 => (compared.number + 1, true),
        _ => return None,
    };
    Some(Known { register: compared.register, limit, where_taken })
}

#[cfg(test)]
mod tests {
    use super::{Compared, Known, compared_after, known_after};
    use crate::decode::aarch64::Register;

    #[test]
    fn a_comparison_holds_until_flags_or_register_change() {
        // cmp w8, #9
        let compared = compared_after(0x7100_251f, None);
        assert_eq!(compared, Some(Compared { register: Register(8), number: 9 }));
        // mov w9, #1; ldr x1, [x0]; mov x2, x3; csel x0, x1, x2, eq; cbz x3, …
        let kept = [0x5280_0029, 0xf940_0001, 0xaa03_03e2, 0x9a82_0020, 0xb400_0043];
        assert!(kept.iter().all(|word| compared_after(*word, compared) == compared));
        // mov w8, #1; subs x0, x1, x2; ands x0, x1, x2; ccmp x0, #0, #0, eq; fcmp s0, s1; bl; msr nzcv, x0
        let lost =
            [0x5280_0028, 0xeb02_0020, 0xea02_0020, 0xfa40_0800, 0x1e21_2000, 0x9400_0000, 0xd51b_4200];
        assert!(lost.iter().all(|word| compared_after(*word, compared).is_none()));
    }

    #[test]
    fn conditions_bound_one_side() {
        let compared = Compared { register: Register(8), number: 9 };
        let known = |condition: u32| {
            known_after(0x5400_0000 | condition, compared)
                .map(|Known { limit, where_taken, .. }| (limit, where_taken))
        };
        // hi, ls, hs, lo; eq gives no bound.
        assert_eq!([8, 9, 2, 3].map(known), [(10, false), (10, true), (9, false), (9, true)].map(Some));
        assert_eq!(known(0), None);
    }
}
