//! The output's record of its copies, in a section of its own that is not loaded: for symbolizers, and for restoring the
//! file without copies.
//!
//! ```text
//! "REORDCL2"            eight bytes
//! old length            bytes of the file without copies
//! count                 then for each fragment, ascending by copy: original address, address of the copy, bytes of the
//!                       original, bytes of the copy with the jumps after it
//! count                 then for each copied jump table: original address, address of the copy, bytes of an entry, entries
//! count                 then for each run of bytes that differ before the old length: file offset, bytes, the old bytes
//! ```
//!
//! If functions were found that nothing describes, the section begins with "REORDCL3" instead, and ends with their count, then for
//! each, ascending: the distance from the end of the previous one, and bytes, both in unsigned LEB128.
//!
//! Numbers have eight bytes, least significant first.

use std::ops::Range;

use super::placed::Copies;
use super::sections::RECORD;
use reorder_base::address::Address;
use reorder_base::leb128::write_unsigned;
use reorder_base::little_endian::u64_at;
use reorder_image::elf::file::ElfFile;

/// First bytes of the section.
const MAGIC: &[u8; 8] = b"REORDCL2";
/// The same where whole functions were copied: three numbers for each, and no tables.
const MAGIC_OF_FUNCTIONS: &[u8; 8] = b"REORDCL1";
/// The same as the first where functions were found that nothing describes.
const MAGIC_WITH_FOUND: &[u8; 8] = b"REORDCL3";
/// Bytes of a number.
const NUMBER: usize = 8;

/// The section's contents, given the file before and after, and the functions that were `found`.
pub(super) fn write(old: &[u8], new: &[u8], copies: &Copies<'_>, found: &[Range<Address>]) -> Vec<u8> {
    let mut record = if found.is_empty() { MAGIC } else { MAGIC_WITH_FOUND }.to_vec();
    let number = |record: &mut Vec<u8>, value: u64| record.extend_from_slice(&value.to_le_bytes());
    number(&mut record, old.len() as u64);
    number(&mut record, copies.fragments.len() as u64);
    for (fragment, placed) in copies.fragments.iter().zip(&copies.placed) {
        let range = fragment.original(copies.bodies);
        let size = range.end.distance_from(range.start);
        for value in [range.start.0, placed.start.0, size, u64::from(placed.arranged.size())] {
            number(&mut record, value);
        }
    }
    number(&mut record, copies.tables.len() as u64);
    for placed in &copies.tables {
        let table = &placed.table;
        for value in [table.base.0, placed.start.0, table.entry.size(), table.targets.len() as u64] {
            number(&mut record, value);
        }
    }
    let runs = differing_runs(old, new);
    number(&mut record, runs.len() as u64);
    for run in runs {
        number(&mut record, run.start as u64);
        number(&mut record, run.len() as u64);
        record.extend_from_slice(&old[run]);
    }
    if !found.is_empty() {
        number(&mut record, found.len() as u64);
    }
    let mut end = Address(0);
    for range in found {
        write_unsigned(&mut record, range.start.distance_from(end));
        write_unsigned(&mut record, range.end.distance_from(range.start));
        end = range.end;
    }
    record
}

/// The file without the copies that `file` lists, as the list has it; `None` if the list is missing or damaged.
pub(super) fn restored(file: &ElfFile<'_>) -> Option<Vec<u8>> {
    let record = file.section_bytes(file.section(RECORD.as_bytes())?);
    let number = |at: usize| usize::try_from(u64_at(record, at)?).ok();
    let after = |at: usize, count: usize, numbers: usize| {
        let size = count.checked_mul(numbers * NUMBER)?;
        at.checked_add(NUMBER)?.checked_add(size)
    };
    let (numbers, has_tables) = match record.first_chunk::<8>()? {
        MAGIC | MAGIC_WITH_FOUND => (4, true),
        MAGIC_OF_FUNCTIONS => (3, false),
        _ => return None,
    };
    let mut bytes = file.bytes.get(..number(MAGIC.len())?)?.to_vec();
    let mut at = MAGIC.len() + NUMBER;
    at = after(at, number(at)?, numbers)?;
    if has_tables {
        at = after(at, number(at)?, 4)?;
    }
    let runs = number(at)?;
    at += NUMBER;
    for _ in 0..runs {
        let (start, size) = (number(at)?, number(at + NUMBER)?);
        at += 2 * NUMBER;
        let old = record.get(at..at.checked_add(size)?)?;
        bytes.get_mut(start..start.checked_add(size)?)?.copy_from_slice(old);
        at += size;
    }
    Some(bytes)
}

/// Runs of bytes that differ; runs with few equal bytes between them are joined. No run holds a whole field that is the same: names
/// of symbols may be placed later, and the list would give them their old positions.
fn differing_runs(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    /// Bytes of the smallest field that refers to a string.
    const JOINED: usize = 4;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (position, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new) {
        match runs.last_mut() {
            Some(last) if position - last.end < JOINED => last.end = position + 1,
            _ => runs.push(position..position + 1),
        }
    }
    runs
}
