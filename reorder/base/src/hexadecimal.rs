//! Bytes as hexadecimal digits, two for each byte.

/// `bytes` in lower-case digits, without a prefix.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes that `digits` spell, in either case and without a prefix. `None` for an odd number of digits and for any
/// other character; no digits are no bytes.
#[must_use]
pub fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if rest.is_empty() { pairs.iter().map(|pair| byte(*pair)).collect() } else { None }
}

/// The byte that two digits spell, the high one first, in either case.
#[must_use]
pub fn byte([high, low]: [u8; 2]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    Some((value(high)? << 4 | value(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_pairs_of_digits_are_bytes() {
        assert_eq!(encode(&[0x00, 0x9a, 0xff]), "009aff");
        assert_eq!(decode(b"009aFF"), Some(vec![0x00, 0x9a, 0xff]));
        assert_eq!(decode(b""), Some(Vec::new()));
        for wrong in [&b"0"[..], b"123", b"+1", b"0x", b" 1", b"g0", b"\xff0"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_survive_a_round_trip(bytes: Vec<u8>) {
            let digits = encode(&bytes);
            prop_assert_eq!(&digits, &bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
            prop_assert_eq!(decode(digits.as_bytes()), Some(bytes));
        }
    }
}
