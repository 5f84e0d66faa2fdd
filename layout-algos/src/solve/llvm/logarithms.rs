//! Binary logarithms of integers in single precision.
//!
//! LLVM rounds the double-precision logarithm of the C library. Libraries differ in the last bit, so here the
//! logarithm is computed in integers, to more bits than a double keeps at these magnitudes, and then rounded.

/// Fractional bits that are computed; a number of single precision has 24 bits in all.
const FRACTION_BITS: u32 = 48;

/// log₂ of the numbers from 1 up to a limit.
pub(super) struct Logarithms {
    values: Vec<f32>,
}

impl Logarithms {
    pub(super) fn up_to(most: usize) -> Self {
        Self { values: (0..=most as u64).map(|value| log2(value.max(1))).collect() }
    }

    pub(super) fn of(&self, value: u32) -> f32 {
        self.values[value as usize]
    }
}

/// log₂ of `value` ≥ 1. Each squaring of the mantissa gives one bit; what squaring cuts off is below 2⁻⁶².
fn log2(value: u64) -> f32 {
    let integer = value.ilog2();
    // 1 ≤ mantissa < 2 with 63 fractional bits.
    let mut mantissa = value << (63 - integer);
    let mut result = u64::from(integer);
    for _ in 0..FRACTION_BITS {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let is_two_or_more = square >> 127 == 1;
        mantissa = (square >> if is_two_or_more { 64 } else { 63 }) as u64;
        result = result << 1 | u64::from(is_two_or_more);
    }
    // At most 54 bits with a non-zero integer part; rounding twice could only differ at an exact tie.
    (result as f64 / (1u64 << FRACTION_BITS) as f64) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_c_library() {
        for value in (1..100_000).chain([1 << 20, (1 << 20) + 1, 12_345_678, u64::from(u32::MAX)]) {
            assert_eq!(log2(value), (value as f64).log2() as f32, "{value}");
        }
        assert_eq!(Logarithms::up_to(8).of(8), 3.0);
    }
}
