//! The function table: LLVM's hash table on disk, read from one end to the other.
//!
//! At the offset that the header gives: number of buckets, number of entries, and each bucket's offset, 0 for an empty
//! one. A bucket is a `u16` count and that many entries of hash, length of key, length of data, key and data.
//! Buckets lie in the file in their order, so the walk is sequential and does not allocate.

use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// One function.
pub(super) struct Record<'data> {
    /// By which traces know it.
    pub(super) hash: u64,
    /// As LLVM spells it.
    pub(super) name: &'data [u8],
    /// What [`super::counters`] reads.
    pub(super) data: &'data [u8],
}

/// How far a walk came.
pub(super) struct Walk {
    /// Entries visited.
    pub(super) records: u64,
    /// The first thing that was wrong; buckets after it are visited all the same.
    pub(super) damage: Option<Error>,
}

/// Shows every entry of the table at `offset`.
pub(super) fn walk<'data>(bytes: &'data [u8], offset: u64, mut visit: impl FnMut(Record<'data>)) -> Walk {
    let mut walk = Walk { records: 0, damage: None };
    let buckets = match buckets(bytes, offset) {
        Ok(buckets) => buckets,
        Err(error) => return Walk { damage: Some(error), ..walk },
    };
    // Buckets that overlap could show the same bytes again and again; entries that do not have no more than the file.
    let mut budget = bytes.len() as u64;
    for bucket in buckets.as_chunks::<8>().0 {
        let at = u64::from_le_bytes(*bucket);
        if at == 0 {
            continue;
        }
        let visited = &mut |record| {
            walk.records += 1;
            visit(record);
        };
        if let Err(error) = walk_bucket(bytes, at, &mut budget, visited) {
            walk.damage.get_or_insert(error);
            if budget == 0 {
                break;
            }
        }
    }
    walk
}

fn buckets(bytes: &[u8], offset: u64) -> Result<&[u8]> {
    let mut cursor = cursor_at(bytes, offset).ok_or_else(|| {
        Error::malformed(TABLE_FIELD, format!("the function table lies at {offset:#x}, outside of the file"))
    })?;
    let count = cursor.u64()?;
    let _entries = cursor.u64()?;
    cursor.take_array(count, 8)
}

/// Position of the table's offset in the header.
const TABLE_FIELD: u64 = 32;

fn walk_bucket<'data>(
    bytes: &'data [u8],
    at: u64,
    budget: &mut u64,
    visit: &mut impl FnMut(Record<'data>),
) -> Result<()> {
    let mut cursor = cursor_at(bytes, at).ok_or_else(|| {
        Error::malformed(TABLE_FIELD, format!("a bucket lies at {at:#x}, outside of the file"))
    })?;
    for _ in 0..cursor.u16()? {
        let at = cursor.offset();
        let hash = cursor.u64()?;
        let (name_length, data_length) = (cursor.u64()?, cursor.u64()?);
        let (name, data) = (cursor.take(name_length)?, cursor.take(data_length)?);
        let Some(left) = budget.checked_sub(cursor.offset() - at) else {
            *budget = 0;
            return Err(Error::malformed(at, "buckets of the function table overlap"));
        };
        *budget = left;
        visit(Record { hash, name, data });
    }
    Ok(())
}

fn cursor_at(bytes: &[u8], offset: u64) -> Option<Cursor<'_>> {
    let part = bytes.get(usize::try_from(offset).ok()?..)?;
    Some(Cursor::part(part, ByteOrder::Little, offset))
}
