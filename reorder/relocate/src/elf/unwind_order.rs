//! Sorts the entries of `.eh_frame` by the starts of their functions, so that a compressed file is smaller.
//!
//! Starts, and the entries' places in the sorted search table, then grow from row to row, as linkers leave them. Only entries that
//! follow each other change places; what lies between them stays. Source: Linux Standard Base 5.0, "Exception Frames".

use std::ops::Range;

use gimli::constants::{DW_EH_PE_omit, DwEhPe};
use gimli::{BaseAddresses, EhFrame, EndianSlice, LittleEndian, UnwindSection};

use super::unwind::{HEADER_SIZE, KNOWN_HEADER, ROW_SIZE};
use crate::ledger::Ledger;
use reorder_base::processor::Processor;
use reorder_image::elf::file::{ElfFile, Linkage};

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: a distance of four bytes from its own place.
const FIELD_RELATIVE: DwEhPe = DwEhPe(0x1b);
/// The bits of an encoding that say where a pointer counts from, and whether it leads to the real one; none: it is an address.
const COUNTED_FROM: u8 = 0xf0;
/// Position of the distance to the parent in an entry, and of the start.
const PARENT: usize = 4;
const START: usize = 8;
/// Position of the length of the augmentation data in an entry whose start and size have four bytes each.
const AUGMENTATION: usize = 16;

/// One entry.
#[derive(Clone, Debug)]
struct Entry {
    /// Its bytes in the section.
    record: Range<usize>,
    /// First address of its function.
    start: u64,
    /// Positions in the record of fields that count from their own place.
    relative: [Option<usize>; 2],
}

/// Sorts the entries of `output`, whose starts are written already. Leaves them as they are where they have a form that compilers do not
/// write, or where the linker kept their relocations.
pub(crate) fn sort_unwind_entries(file: &ElfFile<'_>, output: &mut [u8], ledger: &mut Ledger) {
    let Some(section) = file.section(b".eh_frame") else { return };
    let Some(table) = file.section(b".eh_frame_hdr") else { return };
    let (table_start, table_size) = (table.offset.0 as usize, file.section_bytes(table).len());
    let (start, size) = (section.offset.0 as usize, file.section_bytes(section).len());
    if file.processor != Processor::X86_64 || has_relocations(file) {
        return;
    }
    let old = output[start..start + size].to_vec();
    let is_fixed = file.linkage == Linkage::FixedAddress;
    let Some(runs) = runs(&old, section.address.0, is_fixed) else { return };
    let mut new = old.clone();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for mut run in runs {
        let mut position = run.first().map_or(0, |first| first.record.start);
        run.sort_by_key(|entry| entry.start);
        for entry in run {
            places.push((entry.record.start, position));
            let end = position + entry.record.len();
            if write_at(&old, &entry, &mut new, position).is_none() {
                return;
            }
            position = end;
        }
    }
    places.sort_unstable();
    let rows = output[table_start..table_start + table_size].to_vec();
    let Some(rows) = led_rows(rows, table.address.0, section.address.0, &places) else { return };
    ledger.write(output, start, &new);
    ledger.write(output, table_start, &rows);
}

/// Whether the linker kept relocations of the entries.
fn has_relocations(file: &ElfFile<'_>) -> bool {
    let names: [&[u8]; 2] = [b".rela.eh_frame", b".rel.eh_frame"];
    file.sections.iter().any(|section| names.contains(&section.name))
}

/// The entries that follow each other without anything between them; `None` if one has an unknown form.
fn runs(section: &[u8], address: u64, is_fixed: bool) -> Option<Vec<Vec<Entry>>> {
    let frames = EhFrame::new(section, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut runs: Vec<Vec<Entry>> = Vec::new();
    let mut parent: Option<(usize, DwEhPe)> = None;
    let mut position = 0;
    let mut is_open = false;
    while let Some(length) = word(section, position) {
        let record = position..(position + 4).checked_add(length as usize)?;
        if length == 0 || word(section, position + PARENT)? == 0 {
            is_open = false;
            position = record.end;
            continue;
        }
        let parent_at = (position + PARENT).checked_sub(word(section, position + PARENT)? as usize)?;
        let encoding = match parent {
            Some((known, encoding)) if known == parent_at => encoding,
            _ => {
                let common = frames.cie_from_offset(&bases, parent_at.into()).ok()?;
                let _: &gimli::CommonInformationEntry<EndianSlice<'_, LittleEndian>> = &common;
                if common.fde_address_encoding() != Some(FIELD_RELATIVE) {
                    return None;
                }
                common.lsda_encoding().unwrap_or(DW_EH_PE_omit)
            }
        };
        parent = Some((parent_at, encoding));
        let table = match encoding {
            encoding if encoding == DW_EH_PE_omit => None,
            // The length before it is one byte, because all compilers write nothing else there.
            FIELD_RELATIVE if section.get(position + AUGMENTATION) == Some(&4) => Some(AUGMENTATION + 1),
            // An address, which nothing changes when a program at a fixed address is loaded.
            encoding if is_fixed && encoding.0 & COUNTED_FROM == 0 => None,
            _ => return None,
        };
        // A distance of zero says that there is no table.
        let table = table.filter(|&at| word(section, position + at) != Some(0));
        let distance = i64::from(word(section, position + START)? as i32) as u64;
        let start = address.wrapping_add((position + START) as u64).wrapping_add(distance);
        let entry = Entry { record: record.clone(), start, relative: [Some(START), table] };
        match runs.last_mut().filter(|_| is_open) {
            Some(run) => run.push(entry),
            None => runs.push(vec![entry]),
        }
        is_open = true;
        position = record.end;
    }
    Some(runs)
}

/// Copies an entry to `position` of the section.
fn write_at(old: &[u8], entry: &Entry, new: &mut [u8], position: usize) -> Option<()> {
    let record = old.get(entry.record.clone())?;
    let place = new.get_mut(position..position + record.len())?;
    place.copy_from_slice(record);
    let moved = position as i64 - entry.record.start as i64;
    let parent = i64::from(word(record, PARENT)?) + moved;
    place[PARENT..PARENT + 4].copy_from_slice(&u32::try_from(parent).ok()?.to_le_bytes());
    for at in entry.relative.into_iter().flatten() {
        let distance = i32::try_from(i64::from(word(record, at)? as i32) - moved).ok()?;
        place[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }
    Some(())
}

/// The search table with each row at the new place of its entry. `places` are positions in the section before and after.
fn led_rows(mut table: Vec<u8>, address: u64, section: u64, places: &[(usize, usize)]) -> Option<Vec<u8>> {
    if table.get(..4) != Some(KNOWN_HEADER.as_slice()) {
        return None;
    }
    let size = (word(&table, 8)? as usize).checked_mul(ROW_SIZE)?;
    let base = section.wrapping_sub(address);
    for row in table.get_mut(HEADER_SIZE..HEADER_SIZE.checked_add(size)?)?.chunks_exact_mut(ROW_SIZE) {
        let position = (i64::from(word(row, 4)? as i32) as u64).wrapping_sub(base);
        let known = places.binary_search_by_key(&position, |&(before, _)| before as u64).ok()?;
        let distance = base.wrapping_add(places[known].1 as u64) as i64;
        row[4..].copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
    }
    Some(table)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}
