//! `__unwind_info` after a move: the table is rebuilt, since it is sorted by address and its entries merge neighbours.
//!
//! Linkers leave no room after the section, so the new table may be too long; its length can be computed beforehand.

mod pages;
mod spans;
#[cfg(test)]
mod tests;

use super::fields;
use crate::address_map::AddressMap;
use pages::{Row, Table};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::unwind_info::{UnwindInfo, is_dwarf};
use spans::spans;

/// Where a section's header has its size in memory.
const SECTION_SIZE: usize = 40;

/// Writes the new table over the old one. Where it is longer, the section grows into the zeros after it; where it is
/// shorter, the rest becomes zero and the section keeps its size.
///
/// # Errors
/// Refuses (M14) a table that does not fit, and (M13) a map that splits what one entry covers.
pub fn move_unwind_info(file: &MachOFile<'_>, map: &AddressMap, output: &mut [u8]) -> Result<()> {
    let Some(info) = UnwindInfo::parse(file)? else { return Ok(()) };
    let table = rebuild(&info, map)?;
    let room = unwind_room(file, &info);
    if table.len() as u64 > room {
        return Err(Refusal::new(
            RefusalCode::MachOUnwindRoom,
            format!("the new unwind information has {} bytes and there is room for {room}", table.len()),
            "move fewer functions, or link with an order file instead",
        )
        .at(info.section)
        .into());
    }
    let Some(section) = UnwindInfo::section(file) else { return Ok(()) };
    let size = (section.size as usize).max(table.len());
    let Some(place) = output.get_mut(section.offset..section.offset + size) else {
        return Err(Error::malformed(
            section.offset as u64,
            "the unwind information lies outside of the image",
        ));
    };
    place.fill(0);
    place[..table.len()].copy_from_slice(&table);
    match size as u64 == section.size {
        true => Ok(()),
        false => fields::write_long(output, section.header_offset + SECTION_SIZE, size as u64),
    }
}

/// Bytes of the table that [`rebuild`] gives.
///
/// # Errors
/// As for [`rebuild`].
pub fn unwind_size(info: &UnwindInfo, map: &AddressMap) -> Result<u64> {
    Ok(table(info, map)?.size() as u64)
}

/// Bytes that a new table may have: those of the section, and zeros after it up to the next section or the segment's end.
#[must_use]
pub fn unwind_room(file: &MachOFile<'_>, info: &UnwindInfo) -> u64 {
    let end = info.section.plus(info.size);
    let next = file.sections.iter().map(|section| section.address).filter(|start| *start >= end);
    let limit = file.segments.iter().find(|segment| segment.range().contains(&info.section)).map(|segment| {
        let contents_end = segment.address.plus(segment.file_size as u64);
        next.fold(contents_end, Address::min)
    });
    let following =
        limit.and_then(|limit| file.bytes_at(end, limit.0.saturating_sub(end.0))).unwrap_or_default();
    info.size + following.iter().take_while(|byte| **byte == 0).count() as u64
}

/// The table of the moved image.
///
/// # Errors
/// Refuses (M13) a map that splits what one entry covers, and addresses that do not fit 32 bits.
pub fn rebuild(info: &UnwindInfo, map: &AddressMap) -> Result<Vec<u8>> {
    Ok(table(info, map)?.encode())
}

fn table(info: &UnwindInfo, map: &AddressMap) -> Result<Table> {
    if let Some(range) = info.bound_ranges().find(|range| !map.moves_as_one(range)) {
        return Err(refused(
            "the parts of a function with an exception table would be moved apart",
            range.start,
        ));
    }
    let offset = |address: NewAddress| {
        let distance = u32::try_from(address.0.wrapping_sub(info.base.0));
        distance.map_err(|_| refused("a function lies more than 4 GiB after the headers", Address(address.0)))
    };
    let mut rows: Vec<Row> = Vec::with_capacity(info.entries.len());
    for piece in pieces(info, map) {
        rows.push(Row { start: offset(piece.start)?, encoding: piece.encoding });
    }
    // The range after the last known function is the end, not an entry.
    let end = match rows.pop() {
        Some(last) if last.encoding == 0 => last.start,
        Some(last) => {
            rows.push(last);
            offset(NewAddress(info.end.0))?
        }
        None => offset(NewAddress(info.end.0))?,
    };
    let mut exception_tables = Vec::with_capacity(info.exception_tables.len());
    for (function, table) in &info.exception_tables {
        exception_tables.push((offset(map.map(*function))?, offset(NewAddress(table.0))?));
    }
    exception_tables.sort_unstable();
    Ok(Table::new(info.personalities.clone(), rows, end, exception_tables))
}

fn refused(what: &str, address: Address) -> Error {
    let cure = "report this image; it was left untouched";
    Refusal::new(RefusalCode::MachOUnwindForm, what, cure).at(address).into()
}

/// From a new address on, one encoding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: NewAddress,
    encoding: u32,
}

/// The encodings along the new image; entries that searches cannot distinguish are merged.
fn pieces(info: &UnwindInfo, map: &AddressMap) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(info.entries.len());
    // The old entry of the last piece and its distance: the same again continues the entry.
    let mut last = (None, 0);
    for span in spans(map) {
        let mut start = span.old;
        let mut index = info.entry_at(start);
        loop {
            let encoding = index.map_or(0, |index| info.entries[index].encoding);
            let is_continued = last == (index, span.delta());
            let is_equal = pieces.last().map_or(encoding == 0, |piece| piece.encoding == encoding);
            let must_stand_alone = info.is_bound_to_start(encoding) || is_dwarf(info.processor, encoding);
            if !(is_equal && (is_continued || !must_stand_alone)) {
                pieces.push(Piece { start: NewAddress(start.0.wrapping_add(span.delta())), encoding });
            }
            last = (index, span.delta());
            // The next change of the encoding: the entry after this one, the first of all, or the end.
            let next = match index {
                Some(index) => index + 1,
                None if start < info.end => 0,
                None => break,
            };
            start = info.entries.get(next).map_or(info.end, |entry| entry.start);
            if start.distance_from(span.old) >= span.size {
                break;
            }
            index = info.entry_at(start);
        }
    }
    pieces
}
