//! Which format a trace file has, by its contents; names and endings of files mean nothing.

use super::text::FIRST_WORDS;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceFormat {
    /// Written by `reorder record`.
    Recorded,
    /// One symbol or address per line.
    List,
}

/// The format of `bytes`; nothing when it is none of the known ones.
pub(super) fn detect(bytes: &[u8]) -> Option<TraceFormat> {
    if bytes.starts_with(FIRST_WORDS.as_bytes()) {
        return Some(TraceFormat::Recorded);
    }
    // Text without a signature: what is binary shows it by a NUL early on.
    let beginning = &bytes[..bytes.len().min(4096)];
    (!beginning.contains(&0)).then_some(TraceFormat::List)
}
