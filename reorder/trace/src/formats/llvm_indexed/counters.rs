//! The counters of one function's record.
//!
//! A record repeats, once for each body that was compiled under the name: hash of the control flow, counters, since
//! version 11 bitmaps, and values; the values state their size first.

use super::header::Header;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::Result;

/// The greatest counter; 0 means that the function never ran.
pub(super) fn greatest(data: &[u8], header: &Header) -> u64 {
    let mut greatest = 0;
    each_body(data, header, |counters| {
        greatest = greatest.max(counters.iter().copied().map(u64::from_le_bytes).max().unwrap_or(0))
    });
    greatest
}

/// How often the function ran, or, where the profile does not tell the entry's counter, the most frequent of its
/// blocks.
pub(super) fn frequency(data: &[u8], header: &Header) -> u64 {
    if !header.counts_entries() {
        return greatest(data, header);
    }
    let mut entries = 0;
    each_body(data, header, |counters| {
        entries = entries.max(counters.first().copied().map_or(0, u64::from_le_bytes))
    });
    entries
}

/// Shows the counters of each body, up to the first that is damaged.
fn each_body(data: &[u8], header: &Header, mut visit: impl FnMut(&[[u8; 8]])) {
    let mut cursor = Cursor::new(data, ByteOrder::Little);
    while !cursor.is_at_end() {
        let Ok(counters) = body(&mut cursor, header) else { return };
        visit(counters.as_chunks().0);
    }
}

fn body<'data>(cursor: &mut Cursor<'data>, header: &Header) -> Result<&'data [u8]> {
    cursor.skip(8)?;
    let count = cursor.u64()?;
    let counters = cursor.take_array(count, 8)?;
    if header.has_bitmaps() {
        let count = cursor.u64()?;
        cursor.take_array(count, 8)?;
    }
    let size = cursor.u32()?;
    cursor.skip(u64::from(size).saturating_sub(4))?;
    Ok(counters)
}
