//! The headers: one added segment in place of an unneeded header, and added sections after the end of the old file.

use goblin::elf::ProgramHeader;
use goblin::elf::header::ET_EXEC;
use goblin::elf::program_header::{PF_R, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, PT_NULL, PT_PHDR};
use goblin::elf::section_header::{SHF_ALLOC, SHT_NULL, SHT_PROGBITS, SHT_RELA, SHT_SYMTAB};

use super::record::RECORD;
use crate::bytes::range;
use crate::debug::layout::is_debug;
use crate::elf::compact_relocations::SHT_CREL;
use crate::elf::view::{ElfView, SectionView};
use reorder_base::error::{Error, Result};

/// Positions in the file header that may differ: the entry point, the place and the number of section headers.
const MAY_DIFFER: [std::ops::Range<usize>; 3] = [24..32, 40..48, 60..62];
const FILE_HEADER: usize = 64;
/// Name of the section with the exception tables of copies.
pub(super) const EXCEPTIONS: &[u8] = b".gcc_except_table.reorder";
/// Smallest and largest page of systems for these processors.
const MIN_PAGE: u64 = 0x1000;
const MAX_PAGE: u64 = 0x1_0000;
/// `SHT_STRTAB`.
const STRINGS: u32 = 3;

/// The segment that only `new` has.
///
/// # Errors
/// Anything else differs in the headers.
pub(super) fn added_segment(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<ProgramHeader> {
    let differs = |what: &str| Error::verification(what.to_owned());
    for position in (0..FILE_HEADER).filter(|at| !MAY_DIFFER.iter().any(|field| field.contains(at))) {
        if old.bytes.get(position) != new.bytes.get(position) {
            return Err(differs("the file header changed"));
        }
    }
    // The check of the unwind tables compares the place of the search table, if there are any entries.
    let has_entries = old.section(b".eh_frame").is_some_and(|section| !section.bytes.is_empty());
    let first_search = |image: &ElfView<'_>| {
        image.segments.iter().position(|segment| has_entries && segment.p_type == PT_GNU_EH_FRAME)
    };
    let others = |image: &ElfView<'_>| -> Vec<ProgramHeader> {
        let search = first_search(image);
        let others = image.segments.iter().enumerate().filter(|(index, _)| Some(*index) != search);
        others.map(|(_, segment)| segment.clone()).collect()
    };
    let (before, mut after) = (others(old), others(new));
    let last = after.iter().rposition(|segment| segment.p_type == PT_LOAD);
    let segment = after.remove(last.ok_or_else(|| differs("no segment is loaded"))?);
    let given = before.iter().zip(&after).position(|(before, after)| before != after).unwrap_or(after.len());
    let is_same = before.len() == after.len() + 1 && before[given + 1..] == after[given..];
    let is_needless = match before.get(given).map(|segment| segment.p_type) {
        Some(PT_NOTE | PT_NULL) => true,
        // Loaders take the distance that a program was moved by from it; here that is 0.
        Some(PT_PHDR) => old.header.e_type == ET_EXEC,
        _ => false,
    };
    if !is_same || !is_needless {
        let what =
            "the segment of copies may take one program header that nothing needs, but other headers changed";
        return Err(differs(what));
    }
    let search = |image: &ElfView<'_>| first_search(image).map(|index| image.segments[index].clone());
    if let (Some(before), Some(after)) = (search(old), search(new)) {
        let is_same = (before.p_flags, before.p_align) == (after.p_flags, after.p_align);
        if !is_same || (after.p_paddr, after.p_memsz) != (after.p_vaddr, after.p_filesz) {
            return Err(differs("the header of the unwind search table changed in more than its place"));
        }
    }
    let loads = || after.iter().filter(|segment| segment.p_type == PT_LOAD);
    let end = loads().map(|segment| segment.p_vaddr.saturating_add(segment.p_memsz)).max();
    let least = loads().map(|segment| segment.p_align).max().unwrap_or(0).clamp(MIN_PAGE, MAX_PAGE);
    let is_sound = segment.p_flags == PF_R | PF_X
        && segment.p_filesz == segment.p_memsz
        && segment.p_vaddr == segment.p_paddr
        && segment.p_align.is_power_of_two()
        && (least..=least.max(MAX_PAGE)).contains(&segment.p_align)
        && segment.p_offset % segment.p_align == segment.p_vaddr % segment.p_align
        && (old.bytes.len() as u64).checked_next_multiple_of(segment.p_align) == Some(segment.p_offset)
        && range(new.bytes, segment.p_offset, segment.p_filesz).is_some()
        && segment.p_vaddr.checked_add(segment.p_memsz).is_some();
    // Segments that share a page would be mapped over each other.
    let starts_own_page =
        is_sound && end.is_some_and(|end| segment.p_vaddr / segment.p_align * segment.p_align >= end);
    match starts_own_page {
        true => Ok(segment),
        false => Err(differs("the added segment is not a code segment after all others")),
    }
}

/// Whether the linker kept relocations there, in either form. They describe code that now leads to copies.
pub(super) fn is_kept_relocations(section: &SectionView<'_>) -> bool {
    matches!(section.kind, SHT_RELA | SHT_CREL) && !section.is_loaded() && !section.bytes.is_empty()
}

/// Whether the header is one of no section.
fn is_empty(section: &SectionView<'_>) -> bool {
    section.kind == SHT_NULL
        && [section.flags, section.address, section.offset] == [0; 3]
        && (section.link, section.info) == (0, 0)
        && (section.name.is_empty() && section.bytes.is_empty())
}

/// The section of the copies, which lies inside `segment`. A section of exception tables may follow it, then the list. All other
/// old sections keep header and place, except unwind tables and tables of symbols and strings, which may move.
///
/// # Errors
/// Anything else differs in the sections.
pub(super) fn added_section<'new, 'data>(
    old: &ElfView<'_>,
    new: &'new ElfView<'data>,
    segment: &ProgramHeader,
) -> Result<&'new SectionView<'data>> {
    let differs = |what: &str, section: &SectionView<'_>| {
        Err(Error::verification(format!("{what} {}", String::from_utf8_lossy(section.name))))
    };
    // Readable alone.
    let is_plain = |section: &SectionView<'_>| section.flags == u64::from(SHF_ALLOC);
    let is_inside = |section: &SectionView<'_>| {
        section.address >= segment.p_vaddr
            && section.end() <= segment.p_vaddr + segment.p_memsz
            && section.offset == segment.p_offset + (section.address - segment.p_vaddr)
    };
    for (before, after) in old.sections.iter().zip(&new.sections) {
        if is_kept_relocations(before) {
            match is_empty(after) {
                true => continue,
                false => return differs("relocations that do not describe copies are in section", before),
            }
        }
        let same_kind = (before.name, before.kind, before.flags, before.link, before.info)
            == (after.name, after.kind, after.flags, after.link, after.info);
        if !same_kind {
            return differs("the header changed in section", before);
        }
        let same_place = before.address == after.address && before.offset == after.offset;
        let same_size = before.bytes.len() == after.bytes.len();
        let is_unwind_table = matches!(before.name, b".eh_frame" | b".eh_frame_hdr");
        let is_text = matches!(before.kind, SHT_SYMTAB | STRINGS);
        let is_sound = match before.is_loaded() {
            true if is_unwind_table => same_place && same_size || is_inside(after),
            // Tables of symbols and strings may have grown.
            false if is_text => {
                after.bytes.starts_with(before.bytes)
                    && (same_place && same_size || after.offset >= segment.p_offset + segment.p_filesz)
            }
            // Judged by what they say.
            false if is_debug(before) => {
                same_place && same_size || after.offset >= segment.p_offset + segment.p_filesz
            }
            _ => same_place && same_size,
        };
        if !is_sound {
            return differs("the place or size changed in section", before);
        }
    }
    let unknown =
        || Error::verification("sections other than those of copies were added, or some are missing");
    let added = new.sections.get(old.sections.len()..).ok_or_else(unknown)?;
    // Lists that no unit of the image had before.
    let added: Vec<&SectionView<'_>> = added.iter().filter(|section| !is_debug(section)).collect();
    let (copies, record) = match added.as_slice() {
        [copies, record] => (*copies, *record),
        [copies, exceptions, record] => {
            let is_data = exceptions.kind == SHT_PROGBITS && is_plain(exceptions) && is_inside(exceptions);
            // The old image has no such section, so the name stands for this one.
            let is_new = exceptions.name == EXCEPTIONS && old.section(EXCEPTIONS).is_none();
            if !is_new || !is_data {
                return differs("this is not a section of exception tables:", exceptions);
            }
            (*copies, *record)
        }
        _ => return Err(unknown()),
    };
    if record.name != RECORD || record.is_loaded() {
        return differs("an unknown section was added:", record);
    }
    match copies.is_code() && is_inside(copies) {
        true => Ok(copies),
        false => differs("this is not a section of copies:", copies),
    }
}
