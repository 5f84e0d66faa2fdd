//! ELF notes: name, type and description, each padded to four bytes.
//! Source: System V ABI, "Note Section".

use std::ops::Range;

use crate::elf::file::ElfFile;
use reorder_base::address::{Address, FileOffset};

/// One note: owner without its terminator, type, and where its description lies in the file.
#[derive(Clone, Debug)]
pub struct Note<'data> {
    /// Owner, such as `GNU`.
    pub owner: &'data [u8],
    /// Type number within the owner's space.
    pub kind: u32,
    /// The description's bytes in the file.
    pub description: Range<usize>,
}

const NT_GNU_BUILD_ID: u32 = 3;

/// The notes of the section whose contents are `bytes[range]`; stops at the first malformed one.
pub fn notes<'data>(bytes: &'data [u8], range: Range<usize>) -> impl Iterator<Item = Note<'data>> {
    let mut position = range.start;
    std::iter::from_fn(move || {
        let word = |at: usize| -> Option<u32> {
            let end = at.checked_add(4)?;
            (end <= range.end).then(|| bytes.get(at..end)?.try_into().ok().map(u32::from_le_bytes))?
        };
        let name_size = word(position)? as usize;
        let description_size = word(position.checked_add(4)?)? as usize;
        let kind = word(position.checked_add(8)?)?;
        let name_start = position.checked_add(12)?;
        let name_end = name_start.checked_add(name_size)?;
        let description_start = name_start.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let description_end = description_start.checked_add(description_size)?;
        if name_end > range.end || description_end > range.end {
            return None;
        }
        position = description_start.checked_add(description_size.checked_next_multiple_of(4)?)?;
        let owner = bytes.get(name_start..name_end)?;
        let owner = owner.strip_suffix(b"\0").unwrap_or(owner);
        Some(Note { owner, kind, description: description_start..description_end })
    })
}

/// Program counters of SystemTap probes: (field, address).
///
/// Source: the SystemTap "UserSpaceProbeImplementation" description, note type 3: program counter, base,
/// semaphore, then three strings.
pub fn probe_addresses<'a>(file: &'a ElfFile<'_>) -> impl Iterator<Item = (FileOffset, Address)> + 'a {
    const NT_STAPSDT: u32 = 3;
    all_notes(file).filter(|note| note.owner == b"stapsdt" && note.kind == NT_STAPSDT).filter_map(|note| {
        let bytes = file.bytes.get(note.description.clone())?.first_chunk::<8>()?;
        Some((FileOffset(note.description.start as u64), Address(u64::from_le_bytes(*bytes))))
    })
}

/// The notes of all sections of notes.
fn all_notes<'a>(file: &'a ElfFile<'_>) -> impl Iterator<Item = Note<'a>> + 'a {
    file.sections.iter().filter(|section| section.kind == object::elf::SHT_NOTE.0).flat_map(|section| {
        let start = section.offset.0 as usize;
        notes(file.bytes, start..start + section.size as usize)
    })
}

pub(super) fn build_id_range(file: &ElfFile<'_>) -> Option<Range<usize>> {
    all_notes(file)
        .find(|note| note.owner == b"GNU" && note.kind == NT_GNU_BUILD_ID && !note.description.is_empty())
        .map(|note| note.description)
}
