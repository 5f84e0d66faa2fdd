//! The line with the basic blocks of the event before it.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::{RecordedBlock, RecordedBlocks, Trace};
use reorder_base::numbers::{decimal, prefixed_hexadecimal};
use reorder_image::code_digest::CodeDigest;

/// What follows the `#` of such a line. To a reader that knows no blocks it is a comment.
pub(super) const CONTINUATION: &[u8] = b"+";

/// Writes the line, if the event before it has blocks.
pub(super) fn write(text: &mut String, recorded: Option<&RecordedBlocks>) {
    let Some(RecordedBlocks { digest, blocks }) = recorded else { return };
    // Writing to a string cannot fail.
    let _ = write!(text, "#+ {digest}");
    for RecordedBlock { offset, size, nanoseconds } in blocks {
        let _ = write!(text, " {offset:#x}+{size}@{nanoseconds}");
    }
    text.push('\n');
}

/// Reads the rest of such a line into the last event of `trace`. `None` when it cannot be read, or no event without
/// blocks is before it.
pub(super) fn read(words: &[u8], trace: &mut Trace) -> Option<()> {
    let event = trace.events.last_mut().filter(|event| event.blocks.is_none())?;
    event.blocks = Some(Arc::new(recorded(words)?));
    Some(())
}

fn recorded(words: &[u8]) -> Option<RecordedBlocks> {
    let mut words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let digest = CodeDigest::read(words.next()?)?;
    let blocks: Vec<RecordedBlock> = words.map(block).collect::<Option<_>>()?;
    (!blocks.is_empty()).then_some(RecordedBlocks { digest, blocks })
}

/// `0x40+7@51230`.
fn block(word: &[u8]) -> Option<RecordedBlock> {
    let (offset, rest) = std::str::from_utf8(word).ok()?.split_once('+')?;
    let (size, nanoseconds) = rest.split_once('@')?;
    let offset = u32::try_from(prefixed_hexadecimal(offset.as_bytes())?).ok()?;
    let size: u32 = decimal(size.as_bytes())?;
    let is_range = size > 0 && offset.checked_add(size).is_some();
    is_range.then_some(RecordedBlock { offset, size, nanoseconds: decimal(nanoseconds.as_bytes())? })
}
