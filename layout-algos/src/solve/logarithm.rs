//! Logarithms in integers.
//!
//! Floating-point logarithms differ between platforms in the last bit, and one bit can change an order.

/// Fractional bits of the results.
const FRACTION_BITS: u32 = 16;

/// 1 / ln 2 with [`FRACTION_BITS`].
pub(super) const LOG2_E: u64 = 94_548;

/// log₂ of `value` ≥ 1 in units of 2⁻¹⁶, rounded down.
pub(super) fn log2(value: u64) -> u64 {
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
}
