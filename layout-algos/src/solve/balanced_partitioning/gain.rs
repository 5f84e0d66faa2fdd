//! What it is worth to move a function next to others.
//!
//! A prefix with L functions in the left half and R in the right has the closeness h(L) + h(R), h(x) =
//! x·log₂(x + 1): large when its functions are together. Moving one function from left to right changes it by
//! about h'(R) − h'(L). Taking the derivative on both sides, instead of the exact difference, makes the gain of
//! a move the negative of the gain of the opposite move. So exchanging two functions with the same memberships
//! gains exactly zero; with exact differences it looks profitable, because h is convex, and such
//! exchanges would only destroy the temporal order.

/// Fractional bits of a closeness.
const FRACTION_BITS: u32 = 16;

/// 1 / ln 2 with [`FRACTION_BITS`].
const LOG2_E: u64 = 94_548;

/// h'(x) for all counts that can occur, fixed-point.
pub(super) struct ClosenessTable {
    values: Vec<i64>,
}

impl ClosenessTable {
    /// For counts up to `most`.
    pub(super) fn up_to(most: usize) -> Self {
        // h'(x) = log₂(x + 1) + x / ((x + 1) · ln 2)
        let derivative = |count: u64| log2(count + 1) + LOG2_E * count / (count + 1);
        Self { values: (0..=most as u64).map(|count| derivative(count) as i64).collect() }
    }

    /// What one more function is worth where `count` functions of the same prefix are.
    pub(super) fn at(&self, count: u32) -> i64 {
        self.values[count as usize]
    }
}

/// log₂ of `value` ≥ 1, rounded down to [`FRACTION_BITS`]. Integers only: floating-point logarithms differ
/// between platforms in the last bit, and one bit can change the order.
fn log2(value: u64) -> u64 {
    let integer = value.ilog2();
    // The mantissa in 1 ≤ m < 2 with 31 fractional bits; each squaring shifts the logarithm by one bit.
    let mut mantissa = if integer > 31 { value >> (integer - 31) } else { value << (31 - integer) };
    let mut result = u64::from(integer);
    for _ in 0..FRACTION_BITS {
        mantissa = (mantissa * mantissa) >> 31;
        result <<= 1;
        if mantissa >> 32 != 0 {
            mantissa >>= 1;
            result |= 1;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_agree_with_floating_point() {
        for value in (1..5000).chain([1 << 20, (1 << 20) + 1, 123_456_789, 1 << 40, u64::from(u32::MAX)]) {
            let expected = (value as f64).log2() * f64::from(1 << FRACTION_BITS);
            let error = expected - log2(value) as f64;
            assert!((-0.01..2.0).contains(&error), "log2 of {value} is off by {error}");
        }
    }

    #[test]
    fn closeness_grows_with_company() {
        let table = ClosenessTable::up_to(1000);
        assert!((0..1000).all(|count| table.at(count) < table.at(count + 1)));
        assert_eq!(table.at(0), 0);
    }
}
