//! `.eh_frame` starts and the sorted search table of `.eh_frame_hdr`.
//! Source: Linux Standard Base 5.0, "Exception Frames".

use crate::address_map::AddressMap;
use crate::ledger::Ledger;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::eh_frame::FrameEntry;
use reorder_image::elf::file::ElfFile;

/// Version 1; frame pointer: field-relative, four bytes; count: four bytes; table: header-relative, four bytes.
pub(super) const KNOWN_HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Bytes before the rows of the search table.
pub(super) const HEADER_SIZE: usize = 12;
/// Bytes of a row.
pub(super) const ROW_SIZE: usize = 8;

/// Rewrites the starts of all unwind entries and the search table.
///
/// # Errors
/// Refuses (R8) search tables of another form; reports tables that run past their section.
pub(crate) fn move_unwind_entries(
    file: &ElfFile<'_>,
    entries: &[FrameEntry],
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    for entry in entries {
        let distance = map.map(entry.start).0.wrapping_sub(entry.start_field_address.0) as u32;
        ledger.write(output, entry.start_field.0 as usize, &distance.to_le_bytes());
    }
    let Some(section) = file.section(b".eh_frame_hdr") else { return Ok(()) };
    let bytes = file.section_bytes(section);
    if bytes.len() < HEADER_SIZE || bytes[..4] != KNOWN_HEADER {
        // A table encoding of 0xff means that there is no table to rewrite.
        if bytes.get(3) == Some(&0xff) {
            return Ok(());
        }
        return Err(Refusal::new(
            RefusalCode::UnwindEncoding,
            "the unwind search table (.eh_frame_hdr) has an unknown encoding",
            "relink with --eh-frame-hdr of ld.bfd, gold, lld or mold",
        )
        .at(section.address)
        .into());
    }
    let count = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
    let rows = count
        .checked_mul(ROW_SIZE)
        .and_then(|size| bytes.get(HEADER_SIZE..HEADER_SIZE.checked_add(size)?))
        .ok_or_else(|| Error::malformed(section.offset.0, "the unwind search table runs past its section"))?;
    let half = |row: &[u8], at: usize| i32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
    let mut moved: Vec<(i32, i32)> = rows
        .chunks_exact(ROW_SIZE)
        .map(|row| {
            let start = section.address.plus(i64::from(half(row, 0)) as u64);
            let distance = map.map(Address(start.0)).0.wrapping_sub(section.address.0) as i32;
            (distance, half(row, 4))
        })
        .collect();
    // Stable, so that rows of one address (folded functions) keep their order and the identity changes nothing.
    moved.sort_by_key(|row| row.0);
    let table: Vec<u8> = moved
        .iter()
        .flat_map(|(start, entry)| [start.to_le_bytes(), entry.to_le_bytes()])
        .flatten()
        .collect();
    let place: FileOffset = section.offset.plus(HEADER_SIZE as u64);
    ledger.write(output, place.0 as usize, &table);
    Ok(())
}
