//! Handles a new image whose debug information has another size: everything else must equal the old file.
//!
//! Takes the old image and the new bytes; gives the new file with the old debug sections in their old places, so that all
//! other checks can compare positions. Nothing here reads debug information.

use crate::bytes::{range, u32_at, u64_at};
use crate::elf::view::{ElfView, SECTION_HEADER_SIZE, SectionView};
use reorder_base::error::{Error, Result};

/// Positions in the file header of the place and number of section headers.
const TABLE_FIELD: usize = 40;
const COUNT_FIELD: usize = 60;
/// Positions in a section header.
const OFFSET_FIELD: usize = 24;
const SIZE_FIELD: usize = 32;

/// Names of sections whose contents may change as a whole.
const DEBUG_PREFIXES: [&[u8]; 4] = [b".debug_", b".zdebug_", b".gdb_index", b".gnu_debugdata"];
/// Sections that an update may add.
const ADDED: [&[u8]; 4] = [b".debug_ranges", b".debug_rnglists", b".debug_loc", b".debug_loclists"];

/// Whether the section holds debug information that an update may rewrite.
pub(crate) fn is_debug(section: &SectionView<'_>) -> bool {
    !section.is_loaded() && DEBUG_PREFIXES.iter().any(|prefix| section.name.starts_with(prefix))
}

/// Whether the files differ in where sections are, or in what debug sections hold.
pub(crate) fn is_rewritten(old: &ElfView<'_>, new: &ElfView<'_>) -> bool {
    let place = |section: &SectionView<'_>| (section.offset, section.bytes.len());
    old.bytes.len() != new.bytes.len()
        || old.sections.len() != new.sections.len()
        || old.sections.iter().zip(&new.sections).any(|(old, new)| {
            let is_emptied = new.bytes.is_empty();
            let is_other = is_debug(old) && !is_emptied && old.bytes != new.bytes;
            is_other || old.kind != NOBITS && !is_emptied && place(old) != place(new)
        })
}

const NOBITS: u32 = goblin::elf::section_header::SHT_NOBITS;

/// The new file with the debug sections of the old one, in the old places.
///
/// # Errors
/// What else changed.
pub(crate) fn put_back(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<Vec<u8>> {
    let differs = |what: String| Err(Error::verification(what));
    let tail = tail_start(old);
    let added = new.sections.get(old.sections.len()..).unwrap_or_default();
    if new.sections.len() < old.sections.len() {
        return differs("sections are missing".to_owned());
    }
    if let Some(section) = added.iter().find(|section| !may_be_added(section)) {
        return differs(format!("there is a new section {}", String::from_utf8_lossy(section.name)));
    }
    let mut whole = old.bytes.to_vec();
    let Some(loaded) = range(new.bytes, 0, tail) else {
        return differs("the file is shorter than its loaded part".to_owned());
    };
    whole[..loaded.len()].copy_from_slice(loaded);
    // A tool that enlarged the image may have put loaded bytes after the section headers; these are compared below.
    let table = usize::try_from(old.header.e_shoff).unwrap_or(usize::MAX);
    let table = table..table.saturating_add(old.sections.len() * SECTION_HEADER_SIZE as usize);
    if let (Some(place), Some(headers)) = (whole.get_mut(table.clone()), old.bytes.get(table)) {
        place.copy_from_slice(headers);
    }
    // Position and number of section headers are compared here; the other checks compare the rest of the file header.
    for field in [TABLE_FIELD..TABLE_FIELD + 8, COUNT_FIELD..COUNT_FIELD + 2] {
        whole[field.clone()].copy_from_slice(&old.bytes[field]);
    }
    let names = usize::from(old.header.e_shstrndx);
    for (index, (before, after)) in old.sections.iter().zip(&new.sections).enumerate() {
        let name = || String::from_utf8_lossy(before.name).into_owned();
        check_header(old, new, index)
            .map_err(|what| Error::verification(format!("{what} of section {}", name())))?;
        let is_grown = index == names && after.bytes.starts_with(before.bytes);
        let is_dropped = before.name.starts_with(b".rela.debug_") && after.bytes.is_empty();
        if before.bytes.is_empty() || before.is_loaded() || is_grown || is_dropped || is_debug(before) {
            continue;
        }
        if before.bytes.len() != after.bytes.len() {
            return differs(format!("section {} has another size", name()));
        }
        let start = usize::try_from(before.offset).unwrap_or(usize::MAX);
        if let Some(place) = start.checked_add(after.bytes.len()).and_then(|end| whole.get_mut(start..end)) {
            place.copy_from_slice(after.bytes);
        }
    }
    check_places(new, tail)?;
    let kept = unnamed(old, tail);
    // Some programs look for such bytes by their distance from the beginning of the file, others from its end.
    if kept != unnamed(new, tail) || !kept.is_empty() && old.bytes.len() != new.bytes.len() {
        return differs("bytes after the sections changed or moved".to_owned());
    }
    Ok(whole)
}

fn may_be_added(section: &SectionView<'_>) -> bool {
    section.kind == goblin::elf::section_header::SHT_PROGBITS
        && section.flags == 0
        && section.address == 0
        && ADDED.contains(&section.name)
}

/// The end of everything that is loaded, and of the headers at the beginning.
fn tail_start(image: &ElfView<'_>) -> u64 {
    let segments = image.segments.iter().map(|segment| segment.p_offset.saturating_add(segment.p_filesz));
    let sections = image
        .sections
        .iter()
        .filter(|section| section.is_loaded())
        .map(|section| section.offset.saturating_add(section.bytes.len() as u64));
    let end = segments.chain(sections).max().unwrap_or(0);
    end.max(64).min(image.bytes.len() as u64)
}

/// Compares two headers of one section, except its position, and its size if its contents may grow.
fn check_header(old: &ElfView<'_>, new: &ElfView<'_>, index: usize) -> std::result::Result<(), &'static str> {
    let header = |image: &ElfView<'_>| {
        let at = image.header.e_shoff.checked_add(index as u64 * SECTION_HEADER_SIZE)?;
        range(image.bytes, at, SECTION_HEADER_SIZE).map(<[u8]>::to_vec)
    };
    let (Some(mut before), Some(mut after)) = (header(old), header(new)) else { return Err("the header") };
    let is_loaded = old.sections[index].is_loaded();
    for field in [OFFSET_FIELD, SIZE_FIELD].into_iter().filter(|_| !is_loaded) {
        before[field..field + 8].fill(0);
        after[field..field + 8].fill(0);
    }
    if u32_at(&before, 4) == Some(NOBITS) && u64_at(&before, SIZE_FIELD) != u64_at(&after, SIZE_FIELD) {
        return Err("the size");
    }
    if before != after { Err("the header") } else { Ok(()) }
}

/// The contents after the loaded part: sections and the table of headers.
fn places(image: &ElfView<'_>, tail: u64) -> Vec<(u64, u64)> {
    let table = (image.header.e_shoff, image.sections.len() as u64 * SECTION_HEADER_SIZE);
    let mut places: Vec<(u64, u64)> = image
        .sections
        .iter()
        .filter(|section| !section.bytes.is_empty() && !section.is_loaded())
        .map(|section| (section.offset, section.bytes.len() as u64))
        .chain([table])
        .filter(|place| place.0 >= tail)
        .map(|(start, size)| (start, start.saturating_add(size)))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn check_places(image: &ElfView<'_>, tail: u64) -> Result<()> {
    match places(image, tail).windows(2).find(|pair| pair[0].1 > pair[1].0) {
        None => Ok(()),
        Some(pair) => Err(Error::verification(format!("two sections share the byte at {:#x}", pair[1].0))),
    }
}

/// Bytes after the loaded part that no header names, without surrounding zeros, each run with its position.
fn unnamed<'data>(image: &ElfView<'data>, tail: u64) -> Vec<(u64, &'data [u8])> {
    let end_of_file = image.bytes.len() as u64;
    let mut position = tail;
    let mut runs = Vec::new();
    for (start, end) in places(image, tail).into_iter().chain([(end_of_file, end_of_file)]) {
        let between = range(image.bytes, position, start.saturating_sub(position)).unwrap_or_default();
        let is_set = |byte: &u8| *byte != 0;
        if let (Some(first), Some(last)) = (between.iter().position(is_set), between.iter().rposition(is_set))
        {
            runs.push((position + first as u64, &between[first..=last]));
        }
        position = position.max(end);
    }
    runs
}
