//! Sets of numbers of a fixed width, as one run around the circle of that width.
//!
//! Machine numbers wrap, and so do signed ranges read as unsigned ones; a run on the circle represents both without special
//! cases. Every operation gives a run that contains the exact result, never less.

/// The number `first` and the `length` numbers after it, modulo two to the power of `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    first: u64,
    length: u64,
    bits: u8,
}

impl Interval {
    /// All numbers of a width from 1 to 64 bits.
    pub(super) fn full(bits: u8) -> Self {
        Self { first: 0, length: mask(bits), bits }
    }

    /// From `first` to `last`, around the end where `last` is smaller.
    pub(super) fn new(first: u64, last: u64, bits: u8) -> Self {
        let mask = mask(bits);
        Self { first: first & mask, length: last.wrapping_sub(first) & mask, bits }
    }

    /// The sign extensions of 32-bit numbers to 64 bits.
    pub(super) const fn signed() -> Self {
        Self { first: (i32::MIN as i64).cast_unsigned(), length: u32::MAX as u64, bits: 64 }
    }

    /// One number.
    pub(super) fn single(value: u64, bits: u8) -> Self {
        Self::new(value, value, bits)
    }

    pub(super) fn bits(self) -> u8 {
        self.bits
    }

    /// Whether it contains all numbers of its width.
    pub(super) fn is_full(self) -> bool {
        self.length == mask(self.bits)
    }

    fn last(self) -> u64 {
        self.first.wrapping_add(self.length) & mask(self.bits)
    }

    /// Smallest and largest number; all of the width when the run passes its end.
    pub(super) fn bounds(self) -> (u64, u64) {
        let last = self.last();
        if last < self.first { (0, mask(self.bits)) } else { (self.first, last) }
    }

    /// The numbers with `add` added to each.
    pub(super) fn shifted(self, add: u64) -> Self {
        Self { first: self.first.wrapping_add(add) & mask(self.bits), ..self }
    }

    /// Distance from the first number to `value`.
    fn distance(self, value: u64) -> u64 {
        value.wrapping_sub(self.first) & mask(self.bits)
    }

    /// The shortest of the runs that contain both and begin where one of them does.
    pub(super) fn hull(self, other: Self) -> Self {
        let covering = |start: Self, rest: Self| {
            let offset = start.distance(rest.first);
            let end = offset.checked_add(rest.length).filter(|end| *end <= mask(self.bits));
            end.map_or(mask(self.bits), |end| end.max(start.length))
        };
        let (own, others) = (covering(self, other), covering(other, self));
        if own <= others { Self { length: own, ..self } } else { Self { length: others, ..other } }
    }

    /// The intersection of both; one of the two if it would be two runs, `None` if they are disjoint.
    pub(super) fn meet(self, other: Self) -> Option<Self> {
        let (to_other, to_self) = (self.distance(other.first), other.distance(self.first));
        let shorter = if self.length <= other.length { self } else { other };
        match (to_other <= self.length, to_self <= other.length) {
            (true, true) => Some(shorter),
            (true, false) => Some(Self { length: other.length.min(self.length - to_other), ..other }),
            (false, true) => Some(Self { length: self.length.min(other.length - to_self), ..self }),
            (false, false) => None,
        }
    }
}

/// The largest number of `bits` bits.
pub(super) fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contains(run: Interval, value: u64) -> bool {
        run.distance(value) <= run.length
    }

    proptest! {
        /// Against all numbers of four bits.
        #[test]
        fn operations_lose_no_number(a in 0u64..16, b in 0u64..16, c in 0u64..16, d in 0u64..16, add in 0u64..16) {
            let (left, right) = (Interval::new(a, b, 4), Interval::new(c, d, 4));
            let (hull, meet) = (left.hull(right), left.meet(right));
            let (least, most) = left.bounds();
            for value in 0..16 {
                let (in_left, in_right) = (contains(left, value), contains(right, value));
                prop_assert!(contains(hull, value) || !(in_left || in_right));
                prop_assert!(meet.is_some_and(|meet| contains(meet, value)) || !(in_left && in_right));
                prop_assert!(!in_left || (least..=most).contains(&value));
                prop_assert_eq!(contains(left.shifted(add), (value + add) % 16), in_left);
            }
        }
    }

    #[test]
    fn a_comparison_bounds_what_was_free() {
        let free = Interval::full(32);
        assert_eq!(free.meet(Interval::new(0, 7, 32)), Some(Interval::new(0, 7, 32)));
        assert_eq!(Interval::new(3, 9, 8).meet(Interval::new(10, 12, 8)), None);
        // One to eight, seen from the other side of the subtraction.
        assert_eq!(Interval::new(0, 7, 32).shifted(1).bounds(), (1, 8));
    }
}
