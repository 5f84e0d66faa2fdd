//! Lines of a text file, and what stands in them.

use std::str::FromStr;

pub(super) use reorder_base::lines::lines;

/// The first line of a few that `accepts` may look at: detection sees the beginning of a file only.
pub(super) fn some_early_line(bytes: &[u8], accepts: impl Fn(&[u8]) -> bool) -> bool {
    lines(&bytes[..bytes.len().min(EARLY_BYTES)]).any(|(_, line)| accepts(line))
}

const EARLY_BYTES: usize = 16 << 10;

/// A hexadecimal number with `0x` in front.
pub(super) fn hexadecimal(word: &[u8]) -> Option<u64> {
    bare_hexadecimal(word.strip_prefix(b"0x")?)
}

/// A hexadecimal number without anything in front.
pub(super) fn bare_hexadecimal(digits: &[u8]) -> Option<u64> {
    let all_digits = digits.iter().all(u8::is_ascii_hexdigit);
    all_digits.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

/// A decimal number that consists of digits alone.
pub(super) fn decimal<Number: FromStr>(word: &[u8]) -> Option<Number> {
    let all_digits = word.iter().all(u8::is_ascii_digit);
    all_digits.then(|| std::str::from_utf8(word).ok()?.parse().ok()).flatten()
}

/// What stands before and behind the first `separator`.
pub(super) fn split_once<'data>(bytes: &'data [u8], separator: &[u8]) -> Option<(&'data [u8], &'data [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

/// What stands before and behind the last `separator`.
pub(super) fn split_last<'data>(bytes: &'data [u8], separator: &[u8]) -> Option<(&'data [u8], &'data [u8])> {
    let at = bytes.windows(separator.len()).rposition(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}
