//! The line with the digests of the function of the event before it.

use std::fmt::Write as _;

use crate::Trace;
use reorder_image::code_digest::{CodeDigest, FunctionDigest};

/// What follows the `#` of such a line. To a reader that knows no digests it is a comment.
pub(super) const CONTINUATION: &[u8] = b"=";

/// How many lines of digests `trace` has.
pub(super) fn count(trace: &Trace) -> usize {
    trace.events.iter().filter(|event| event.digest.is_some()).count()
}

/// Writes the line, if the event before it has digests.
pub(super) fn write(text: &mut String, digest: Option<FunctionDigest>) {
    let Some(FunctionDigest { own, with_called }) = digest else { return };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "#= {own} {with_called}");
}

/// Reads the rest of such a line into the last event of `trace`. `None` when it cannot be read, or no event without
/// digests is before it.
pub(super) fn read(words: &[u8], trace: &mut Trace) -> Option<()> {
    let event = trace.events.last_mut().filter(|event| event.digest.is_none())?;
    let mut words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (own, with_called) = (CodeDigest::read(words.next()?)?, CodeDigest::read(words.next()?)?);
    event.digest = Some(FunctionDigest { own, with_called });
    words.next().is_none().then_some(())
}
