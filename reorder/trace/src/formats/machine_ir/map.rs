//! The map: which place of the raw profile belongs to which function.

use super::header::{Header, Kind};
use crate::Input;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// One function.
pub(super) struct Entry<'data> {
    /// Where its record is, from the start of its link unit's part.
    pub(super) position: i64,
    pub(super) name: &'data [u8],
}

/// The functions of one link unit.
pub(super) struct Map<'data> {
    pub(super) module: u32,
    pub(super) entries: Vec<Entry<'data>>,
    /// Why there are not more.
    pub(super) damage: Option<Error>,
}

/// Reads a map; `None` when `bytes` are not one.
pub(super) fn read(bytes: &[u8]) -> Option<Map<'_>> {
    let header = Header::read(bytes, 0).ok().filter(|header| header.kind == Kind::Map)?;
    let mut map = Map { module: header.module, entries: Vec::new(), damage: None };
    let mut cursor = Cursor::new(bytes, ByteOrder::Little);
    cursor.skip(header.length as u64).ok()?;
    // What is left of an entry's alignment is no entry.
    while cursor.remaining() > MIN_ENTRY {
        match entry(&header, &mut cursor) {
            Ok(entry) => map.entries.push(entry),
            Err(error) => {
                map.damage = Some(error);
                break;
            }
        }
    }
    Some(map)
}

/// Less than any entry takes.
const MIN_ENTRY: usize = 16;

fn entry<'data>(header: &Header, cursor: &mut Cursor<'data>) -> Result<Entry<'data>> {
    let at = cursor.offset().cast_signed();
    let (raw_offset, _function_offset) = (offset(header, cursor)?, offset(header, cursor)?);
    let (_size, _signature, blocks) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    cursor.take_array(blocks.into(), 4)?;
    let length = cursor.u32()?;
    let name = cursor.take(length.into())?;
    cursor.align_to(if header.is_64_bit { 8 } else { 4 });
    // Offsets are relative to their own places; the base is the raw profile's distance from the start of the map. The
    // older layout states none: its offsets count from the raw profile's start.
    let distance = if header.length == 0x18 { Some(0) } else { header.base.checked_sub(at) };
    let position = distance.and_then(|distance| raw_offset.checked_sub(distance));
    let position = position
        .ok_or_else(|| Error::malformed(at.cast_unsigned(), "an offset that cannot be in any raw profile"))?;
    Ok(Entry { position, name })
}

fn offset(header: &Header, cursor: &mut Cursor<'_>) -> Result<i64> {
    Ok(if header.is_64_bit { cursor.u64()?.cast_signed() } else { i64::from(cursor.u32()?.cast_signed()) })
}

/// The contents of all maps at hand: companions, and the file beside the profile that ends in `.mipmap`.
pub(super) fn files(input: &Input<'_>) -> Vec<Vec<u8>> {
    let companions = input.companions.iter().map(|companion| companion.bytes.clone());
    let sibling = std::fs::read(input.path.with_extension("mipmap")).ok();
    companions.chain(sibling).filter(|bytes| bytes.starts_with(&super::header::MAGIC)).collect()
}
