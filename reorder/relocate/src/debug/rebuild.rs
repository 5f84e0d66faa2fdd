//! A file with sections of other sizes: the loaded part stays, byte for byte and in its place; the sections after it are
//! written one after the other in the old order.

use std::collections::BTreeMap;

use super::sections::{Edits, cannot_update};
use reorder_base::error::{Error, Result};
use reorder_base::little_endian::u64_at;
use reorder_image::elf::file::ElfFile;

/// Bytes of a section header.
const HEADER: usize = 64;
/// Positions in a section header.
const OFFSET_FIELD: usize = 24;
const SIZE_FIELD: usize = 32;
/// Positions in the file header.
const TABLE_FIELD: usize = 40;
const COUNT_FIELD: usize = 60;

/// Something after the loaded part.
struct Item {
    /// Position in the old file.
    old: u64,
    alignment: u64,
    bytes: Vec<u8>,
    /// Sections whose contents these are; none for the section headers and for bytes that no header names.
    sections: Vec<usize>,
    is_table: bool,
}

impl Item {
    /// Bytes that no header names. A program may look for them by their position, or from the end of its file.
    fn is_unnamed(&self) -> bool {
        self.sections.is_empty() && !self.is_table
    }
}

/// Puts `edits` into `image`, which is `file` with its loaded part rewritten.
///
/// # Errors
/// Sections that overlap each other; a file that would be too large; R10 when bytes that no header names would be
/// elsewhere, from the start or from the end of the file.
pub fn rebuild(file: &ElfFile<'_>, image: &[u8], edits: Edits) -> Result<Vec<u8>> {
    let table_at = u64_at(image, TABLE_FIELD).unwrap_or_default();
    let tail = tail_start(file);
    let mut headers = headers(file, image, table_at)?;
    let mut contents: BTreeMap<usize, Vec<u8>> =
        edits.contents.into_iter().map(|(index, bytes)| (index.0 as usize, bytes)).collect();
    add_sections(file, image, edits.added, &mut headers, &mut contents)?;
    let mut items = items(file, image, tail, table_at, &headers, &mut contents)?;
    let mut output = image.get(..usize::try_from(tail).unwrap_or(usize::MAX)).unwrap_or(image).to_vec();
    items.sort_by_key(|item| item.old);
    let mut new_table = table_at;
    let mut unnamed = None;
    let mut is_shifted = false;
    for item in items {
        let alignment = usize::try_from(item.alignment.clamp(1, 1 << 16)).unwrap_or(1);
        output.resize(output.len().next_multiple_of(alignment), 0);
        let place = output.len() as u64;
        if item.is_unnamed() {
            unnamed.get_or_insert(item.old);
            is_shifted |= place != item.old;
        }
        for index in item.sections {
            set_word(&mut headers, index, OFFSET_FIELD, place);
            set_word(&mut headers, index, SIZE_FIELD, item.bytes.len() as u64);
        }
        if item.is_table {
            new_table = place;
            output.resize(output.len() + headers.len(), 0);
        } else {
            output.extend_from_slice(&item.bytes);
        }
    }
    if let Some(at) = unnamed.filter(|_| is_shifted || output.len() != image.len()) {
        let reason = format!(
            "the file holds bytes of no section, such as appended data, at {at:#x}, and they would move"
        );
        return Err(cannot_update(reason).into());
    }
    let place = usize::try_from(new_table).unwrap_or(usize::MAX);
    let table = place.checked_add(headers.len()).and_then(|end| output.get_mut(place..end));
    table
        .ok_or_else(|| Error::malformed(new_table, "the section headers do not fit"))?
        .copy_from_slice(&headers);
    output[TABLE_FIELD..TABLE_FIELD + 8].copy_from_slice(&new_table.to_le_bytes());
    let count = u16::try_from(headers.len() / HEADER).unwrap_or(0);
    if output[COUNT_FIELD..COUNT_FIELD + 2] != [0, 0] {
        output[COUNT_FIELD..COUNT_FIELD + 2].copy_from_slice(&count.to_le_bytes());
    }
    Ok(output)
}

/// The first position after everything that is loaded.
pub fn tail_start(file: &ElfFile<'_>) -> u64 {
    let segments = file.segments.iter().map(|segment| segment.offset.0.saturating_add(segment.file_size));
    let sections = file
        .sections
        .iter()
        .filter(|section| section.is_loaded() && section.has_bytes())
        .map(|section| section.offset.0.saturating_add(section.size));
    segments.chain(sections).chain([file.header_bytes()]).max().unwrap_or(0).min(file.bytes.len() as u64)
}

fn headers(file: &ElfFile<'_>, image: &[u8], table_at: u64) -> Result<Vec<u8>> {
    let start = usize::try_from(table_at).unwrap_or(usize::MAX);
    let end = start.checked_add(file.sections.len() * HEADER);
    let headers = end.and_then(|end| image.get(start..end));
    Ok(headers.ok_or_else(|| Error::malformed(table_at, "the section headers are cut off"))?.to_vec())
}

fn set_word(headers: &mut [u8], index: usize, field: usize, value: u64) {
    let at = index * HEADER + field;
    headers[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Adds headers, names and contents of sections that the file did not have.
fn add_sections(
    file: &ElfFile<'_>,
    image: &[u8],
    added: Vec<(&'static str, Vec<u8>)>,
    headers: &mut Vec<u8>,
    contents: &mut BTreeMap<usize, Vec<u8>>,
) -> Result<()> {
    /// Position of the index of the section of names in the file header.
    const NAMES_FIELD: usize = 62;
    if added.is_empty() {
        return Ok(());
    }
    let index = u16::from_le_bytes([image[NAMES_FIELD], image[NAMES_FIELD + 1]]);
    // Beyond these bounds the first section header holds the counts.
    let names = file.sections.get(usize::from(index)).filter(|_| file.sections.len() + added.len() < 0xff00);
    let Some(names) = names else {
        return Err(Error::malformed(NAMES_FIELD as u64, "too many sections for one more"));
    };
    let mut table = file.section_bytes(names).to_vec();
    for (name, bytes) in added {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(table.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&object::elf::SHT_PROGBITS.0.to_le_bytes());
        header[48..56].copy_from_slice(&1_u64.to_le_bytes());
        table.extend_from_slice(name.as_bytes());
        table.push(0);
        contents.insert(headers.len() / HEADER, bytes);
        headers.extend_from_slice(&header);
    }
    contents.insert(names.index.0 as usize, table);
    Ok(())
}

/// Everything after the loaded part. Sections that changed go there even if they were elsewhere.
fn items(
    file: &ElfFile<'_>,
    image: &[u8],
    tail: u64,
    table_at: u64,
    headers: &[u8],
    contents: &mut BTreeMap<usize, Vec<u8>>,
) -> Result<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    let end_of_file = image.len() as u64;
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for section in file.sections.iter().filter(|section| section.has_bytes() && !section.is_loaded()) {
        let index = section.index.0 as usize;
        let (start, end) = (section.offset.0, section.offset.0 + section.size);
        let is_after_loaded = start >= tail && section.size > 0;
        let new = contents.remove(&index);
        if is_after_loaded {
            covered.push((start, end));
        } else if new.is_none() {
            continue;
        }
        // Two headers may name the same bytes, such as one table of all names.
        let twin = items.iter_mut().find(|item| {
            is_after_loaded
                && item.old == start
                && item.sections.iter().all(|twin| file.sections[*twin].size == section.size)
        });
        if let (Some(twin), None) = (twin, &new) {
            twin.sections.push(index);
            continue;
        }
        let alignment = u64::from_le_bytes(std::array::from_fn(|at| headers[index * HEADER + 48 + at]));
        let bytes = new.unwrap_or_else(|| image[start as usize..end as usize].to_vec());
        let old = if is_after_loaded { start } else { end_of_file };
        items.push(Item { old, alignment, bytes, sections: vec![index], is_table: false });
    }
    for (index, bytes) in std::mem::take(contents) {
        items.push(Item { old: end_of_file, alignment: 1, bytes, sections: vec![index], is_table: false });
    }
    if table_at >= tail || headers.len() > file.sections.len() * HEADER {
        let old = if table_at >= tail { table_at } else { end_of_file };
        covered.push((table_at, table_at + (file.sections.len() * HEADER) as u64));
        items.push(Item { old, alignment: 8, bytes: Vec::new(), sections: Vec::new(), is_table: true });
    }
    covered.sort_unstable();
    covered.dedup();
    let mut position = tail;
    for (start, end) in covered.into_iter().chain([(end_of_file, end_of_file)]) {
        if start < position && start >= tail && end > start {
            return Err(Error::malformed(start, "two sections share bytes of the file"));
        }
        let between = image.get(position as usize..start.max(position) as usize).unwrap_or_default();
        if between.iter().any(|&byte| byte != 0) {
            let bytes = between.to_vec();
            items.push(Item { old: position, alignment: 1, bytes, sections: Vec::new(), is_table: false });
        }
        position = position.max(end);
    }
    Ok(items)
}
