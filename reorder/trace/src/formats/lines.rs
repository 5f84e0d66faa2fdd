//! Lines of a text file, and their parts.

pub(super) use reorder_base::lines::lines;

/// The first line of a few that `accepts` may look at: detection sees the beginning of a file only.
pub(super) fn some_early_line(bytes: &[u8], accepts: impl Fn(&[u8]) -> bool) -> bool {
    lines(&bytes[..bytes.len().min(EARLY_BYTES)]).any(|(_, line)| accepts(line))
}

const EARLY_BYTES: usize = 16 << 10;

/// The parts before and after the first `separator`.
pub(super) fn split_once<'data>(bytes: &'data [u8], separator: &[u8]) -> Option<(&'data [u8], &'data [u8])> {
    let at = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

/// The parts before and after the last `separator`.
pub(super) fn split_last<'data>(bytes: &'data [u8], separator: &[u8]) -> Option<(&'data [u8], &'data [u8])> {
    let at = bytes.windows(separator.len()).rposition(|window| window == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}
