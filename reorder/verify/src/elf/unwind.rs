//! The unwinder's tables: `.eh_frame` is the same except for starts; `.eh_frame_hdr` lists the new starts in order.

use super::pair::{ImagePair, Ledger};
use super::unwind_walk::{OMITTED, UnwindEntries};
use crate::bytes::{displacement_at, range, u32_at};
use crate::elf::view::ElfView;
use crate::remark::Remark;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, FileOffset, NewAddress};
use reorder_base::error::Result;

/// `PT_GNU_EH_FRAME`.
const SEARCH_TABLE_SEGMENT: u32 = 0x6474_e550;
/// Version 1, and the encodings that all linkers write: pointer field-relative, count plain, rows table-relative.
pub(super) const SEARCH_TABLE_HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Position of the first row; two 32-bit distances each.
pub(super) const FIRST_ROW: usize = 12;
pub(super) const ROW_SIZE: usize = 8;

/// Checks `.eh_frame`.
///
/// # Errors
/// A malformed section in the old image.
pub(crate) fn check_unwind_entries(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let Some(section) = pair.old.section(b".eh_frame") else { return Ok(()) };
    let new_bytes = range(pair.new.bytes, section.offset, section.bytes.len() as u64).unwrap_or_default();
    let mut count = 0;
    for entry in UnwindEntries::of(section) {
        let entry = entry?;
        count += 1;
        let Some(distance) = displacement_at(new_bytes, entry.start_field) else { break };
        let start = Address(entry.start);
        let found = NewAddress(section.address).plus(entry.start_field as u64).plus(distance);
        let place = FileOffset(section.offset).plus(entry.start_field as u64);
        // Sizes, instructions and pointers to data are left to the byte comparison.
        if found.0 != start.0 {
            ledger.claim(place, 4);
        }
        ledger.expect_address(
            Check::UnwindEntries,
            place,
            format_args!("the start of the unwind entry for {start}"),
            pair.mapped(start),
            found,
        );
        let personality = entry.personality.map(Address);
        check_rigid_pointers(pair, personality, entry.exception_table.map(Address), start, place, ledger);
    }
    ledger.findings.checked(Check::UnwindEntries, "entries", count);
    Ok(())
}

/// Personality routines that are named directly, and landing pads based on anything but the function's start, would have to
/// follow the map. They are never rewritten, so what they name must not have moved.
fn check_rigid_pointers(
    pair: ImagePair<'_>,
    personality: Option<Address>,
    exception_table: Option<Address>,
    start: Address,
    place: FileOffset,
    ledger: &mut Ledger<'_>,
) {
    let has_moved = |address: Address| pair.mapped(address).0 != address.0;
    if personality.is_some_and(has_moved) {
        let name = format!("the personality routine of {start}");
        ledger.findings.differs(Difference::new(
            Check::UnwindEntries,
            Some(place.0),
            name,
            "a routine that stayed",
            "it moved",
        ));
    }
    let base_encoding = exception_table
        .and_then(|table| pair.old.mapped_offset(table.0, 1))
        .and_then(|offset| pair.old.bytes.get(offset.0 as usize).copied());
    if base_encoding.is_some_and(|encoding| encoding != OMITTED) && has_moved(start) {
        let name = format!("the landing pads of {start}");
        ledger.findings.differs(Difference::new(
            Check::UnwindEntries,
            Some(place.0),
            name,
            "pads relative to the function",
            "pads with a base of their own",
        ));
    }
}

/// Checks the search table that the unwinder bisects.
pub(crate) fn check_search_table(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    let Some((offset, address, old)) = search_table(pair.old) else { return };
    let new = range(pair.new.bytes, offset, old.len() as u64).unwrap_or_default();
    if old.get(..4) != Some(SEARCH_TABLE_HEADER.as_slice()) {
        // If the table is not understood, it must not change; the byte comparison checks that.
        ledger.findings.remark(Remark::UnknownSearchTable);
        if pair.moves.moved() > 0 {
            ledger.findings.differs(Difference::new(
                Check::UnwindSearchTable,
                Some(offset),
                "the unwind search table",
                "version 1 with relative rows",
                format!("{:02x?}", old.get(..4).unwrap_or(old)),
            ));
        }
        return;
    }
    let count = u32_at(old, 8).unwrap_or_default() as usize;
    let rows_size = count.saturating_mul(ROW_SIZE);
    let (Some(old_rows), Some(new_rows)) =
        (range(old, FIRST_ROW as u64, rows_size as u64), range(new, FIRST_ROW as u64, rows_size as u64))
    else {
        ledger.findings.differs(Difference::new(
            Check::UnwindSearchTable,
            Some(offset),
            "the unwind search table",
            "room for its rows",
            format!("{count} rows in {} bytes", old.len()),
        ));
        return;
    };
    ledger.claims.add(offset + FIRST_ROW as u64, rows_size as u64);
    let row = |row: &[u8]| {
        let part = |at: usize| address.wrapping_add(displacement_at(row, at).unwrap_or_default());
        (part(0), part(4))
    };
    // Starts in the new image with the addresses of their unwind entries, which are data and stay where they are.
    let mut expected: Vec<(NewAddress, NewAddress)> = old_rows
        .chunks_exact(ROW_SIZE)
        .map(row)
        .map(|(start, entry)| (pair.mapped(Address(start)), NewAddress(entry)))
        .collect();
    expected.sort_unstable();
    let mut found: Vec<(NewAddress, NewAddress)> = new_rows
        .chunks_exact(ROW_SIZE)
        .map(row)
        .map(|(start, entry)| (NewAddress(start), NewAddress(entry)))
        .collect();
    if let Some(at) = found.windows(2).position(|rows| rows[0].0 > rows[1].0) {
        ledger.findings.differs(Difference::new(
            Check::UnwindSearchTable,
            Some(offset + (FIRST_ROW + (at + 1) * ROW_SIZE) as u64),
            "a row of the unwind search table",
            format!("a start after {}", found[at].0),
            found[at + 1].0.to_string(),
        ));
    }
    // Rows with the same start may be in any order.
    found.sort_unstable();
    if let Some(at) = expected.iter().zip(&found).position(|(expected, found)| expected != found) {
        let show = |row: (NewAddress, NewAddress)| format!("{} described at {}", row.0, row.1);
        ledger.findings.differs(Difference::new(
            Check::UnwindSearchTable,
            Some(offset + (FIRST_ROW + at * ROW_SIZE) as u64),
            "a row of the unwind search table",
            show(expected[at]),
            show(found[at]),
        ));
    }
    ledger.findings.checked(Check::UnwindSearchTable, "rows", count);
}

/// File position, address and bytes of the table, as the loader finds it; the address holds in both images.
pub(super) fn search_table<'data>(image: &ElfView<'data>) -> Option<(u64, u64, &'data [u8])> {
    let segment = image.segments.iter().find(|segment| segment.p_type == SEARCH_TABLE_SEGMENT)?;
    Some((segment.p_offset, segment.p_vaddr, range(image.bytes, segment.p_offset, segment.p_filesz)?))
}
