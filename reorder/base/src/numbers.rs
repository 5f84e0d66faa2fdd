//! Unsigned numbers in text.
//!
//! Every function reads a whole word that consists of digits alone, any number of them: an empty word, a sign, a blank, any
//! other character and a number that does not fit are `None`. The standard library's own functions accept a leading `+`.

use std::str::FromStr;

/// Decimal digits, as an integer of any width.
#[must_use]
pub fn decimal<Number: FromStr>(digits: &[u8]) -> Option<Number> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// Hexadecimal digits in either case, without a prefix.
#[must_use]
pub fn hexadecimal(digits: &[u8]) -> Option<u64> {
    in_radix(digits, 16)
}

/// `0x` and hexadecimal digits in either case.
#[must_use]
pub fn prefixed_hexadecimal(word: &[u8]) -> Option<u64> {
    hexadecimal(word.strip_prefix(b"0x")?)
}

/// Digits of any radix from 2 to 36, without a prefix.
#[must_use]
pub fn in_radix(digits: &[u8], radix: u32) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

/// `whole.fraction`, both decimal, in billionths: of seconds, these are nanoseconds. The fraction has one to nine digits.
#[must_use]
pub fn billionths(whole: &[u8], fraction: &[u8]) -> Option<u64> {
    const MAX_DIGITS: usize = 9;
    let scale = 10u64.pow(MAX_DIGITS.checked_sub(fraction.len())? as u32);
    let fraction = decimal::<u64>(fraction)? * scale; // below 10⁹
    decimal::<u64>(whole)?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_that_are_no_numbers() {
        for wrong in [&b""[..], b"+1", b"-1", b"-0", b" 1", b"1 ", b"1_0", b"0x", b"\xff", "١".as_bytes()] {
            assert_eq!(decimal::<u64>(wrong), None, "{wrong:?}");
            assert_eq!(hexadecimal(wrong), None, "{wrong:?}");
            assert_eq!(prefixed_hexadecimal(&[b"0x", wrong].concat()), None, "{wrong:?}");
            assert_eq!(in_radix(wrong, 8), None, "{wrong:?}");
            assert_eq!(billionths(wrong, b"0"), None, "{wrong:?}");
            assert_eq!(billionths(b"0", wrong), None, "{wrong:?}");
        }
        assert_eq!(prefixed_hexadecimal(b"12"), None);
        assert_eq!(prefixed_hexadecimal(b"0X12"), None);
        assert_eq!(in_radix(b"8", 8), None);
    }

    #[test]
    fn numbers_end_at_their_width() {
        assert_eq!(decimal::<u64>(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal::<u64>(b"18446744073709551616"), None);
        assert_eq!(decimal::<u32>(b"4294967295"), Some(u32::MAX));
        assert_eq!(decimal::<u32>(b"4294967296"), None);
        assert_eq!(hexadecimal(b"FFFFffffFFFFffff"), Some(u64::MAX));
        assert_eq!(hexadecimal(b"10000000000000000"), None);
        assert_eq!(hexadecimal(b"0000000000000000001"), Some(1));
    }

    #[test]
    fn fractions_are_billionths() {
        assert_eq!(billionths(b"3", b"5"), Some(3_500_000_000));
        assert_eq!(billionths(b"0", b"000000001"), Some(1));
        assert_eq!(billionths(b"0", b"0000000010"), None);
        assert_eq!(billionths(b"18446744073", b"709551615"), Some(u64::MAX));
        assert_eq!(billionths(b"18446744073", b"709551616"), None);
    }

    proptest! {
        #[test]
        fn numbers_survive_a_round_trip(number: u64) {
            prop_assert_eq!(decimal(number.to_string().as_bytes()), Some(number));
            prop_assert_eq!(hexadecimal(format!("{number:X}").as_bytes()), Some(number));
            prop_assert_eq!(prefixed_hexadecimal(format!("{number:#x}").as_bytes()), Some(number));
            prop_assert_eq!(in_radix(format!("{number:o}").as_bytes(), 8), Some(number));
        }
    }
}
