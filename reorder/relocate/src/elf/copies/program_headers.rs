//! A program header for the copies' segment, in the existing table.
//!
//! The table itself stays: tools and older kernels expect it after the file header. So a header must be free, or
//! describe something that is not needed at run time.

use std::ops::Range;

use reorder_base::address::NewAddress;
use reorder_base::little_endian::u64_at;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::note::notes;
use reorder_image::elf::segment::Segment;

/// Bytes of a program header.
const SIZE: usize = 56;
/// Position of `e_phoff` in the file header.
const TABLE_FIELD: usize = 32;

/// The header that is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Its number.
    index: usize,
    /// What a running program can no longer find, because only this header described it.
    pub lost: Option<LostNote>,
}

/// Notes that a running program no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostNote {
    /// None that tools look for.
    Other,
    /// The build-id.
    BuildId,
    /// What the processor may rely on, such as branch target identification.
    Properties,
}

/// A header to use for another segment.
///
/// # Errors
/// R13 when there is none.
pub(super) fn slot(file: &ElfFile<'_>) -> std::result::Result<Slot, Refusal> {
    let of_kind =
        |kind: u32| file.segments.iter().enumerate().filter(move |(_, segment)| segment.kind == kind);
    let property = of_kind(object::elf::PT_GNU_PROPERTY.0).next();
    let place = |segment: &Segment| (segment.address, segment.file_size);
    let is_repeated = |segment: &Segment| property.is_some_and(|(_, known)| place(known) == place(segment));
    let mut found: Vec<(Option<LostNote>, usize)> =
        of_kind(object::elf::PT_NULL.0).map(|(index, _)| (None, index)).collect();
    found.extend(of_kind(object::elf::PT_NOTE.0).map(|(index, segment)| {
        let lost = if is_repeated(segment) { None } else { Some(note_in(file, segment)) };
        (lost, index)
    }));
    // The headers that are missed least come first.
    found.sort_by_key(|(lost, _)| *lost);
    found.first().map(|&(lost, index)| Slot { index, lost }).ok_or_else(|| {
        Refusal::new(
            RefusalCode::Copies,
            "no program header is free for the segment of copies, and there is no note to give its own",
            "link with --build-id, whose note has one; or leave out --clone",
        )
    })
}

/// The note in `segment` that would be missed most.
fn note_in(file: &ElfFile<'_>, segment: &Segment) -> LostNote {
    /// `NT_GNU_PROPERTY_TYPE_0`.
    const PROPERTIES: u32 = 5;
    let start = segment.offset.0 as usize;
    let range = start..start + segment.file_size as usize;
    let build_id = file.build_id_range().unwrap_or_default();
    if notes(file.bytes, range.clone()).any(|note| note.owner == b"GNU" && note.kind == PROPERTIES) {
        return LostNote::Properties;
    }
    if range.contains(&build_id.start) { LostNote::BuildId } else { LostNote::Other }
}

/// The new segment.
pub(super) struct NewSegment {
    /// Position in the file, a multiple of `alignment`.
    pub offset: u64,
    /// Address, a multiple of `alignment`.
    pub address: NewAddress,
    /// Bytes.
    pub size: u64,
    /// A multiple of the page.
    pub alignment: u64,
}

/// Puts the header of `segment` after those of the other loaded segments, which are sorted by address, and points
/// `PT_GNU_EH_FRAME` at `search`: file offset, address, bytes.
pub(super) fn write(
    file: &ElfFile<'_>,
    slot: Slot,
    segment: &NewSegment,
    search: Option<(u64, NewAddress, u64)>,
    output: &mut [u8],
) {
    let Some(range) = table(file) else { return };
    let mut headers: Vec<[u8; SIZE]> =
        output[range.clone()].chunks_exact(SIZE).filter_map(|header| header.try_into().ok()).collect();
    let is_kind = |header: &[u8; SIZE], kind: u32| header[..4] == kind.to_le_bytes();
    if let Some((offset, address, size)) = search
        && let Some(header) =
            headers.iter_mut().find(|header| is_kind(header, object::elf::PT_GNU_EH_FRAME.0))
    {
        put_places(header, offset, address, size);
    }
    headers.remove(slot.index);
    let last = headers.iter().rposition(|header| is_kind(header, object::elf::PT_LOAD.0));
    let mut header = [0; SIZE];
    header[..4].copy_from_slice(&object::elf::PT_LOAD.0.to_le_bytes());
    header[4..8].copy_from_slice(&(object::elf::PF_R.0 | object::elf::PF_X.0).to_le_bytes());
    put_places(&mut header, segment.offset, segment.address, segment.size);
    header[48..56].copy_from_slice(&segment.alignment.to_le_bytes());
    headers.insert(last.map_or(headers.len(), |last| last + 1), header);
    output[range].copy_from_slice(headers.as_flattened());
}

fn put_places(header: &mut [u8; SIZE], offset: u64, address: NewAddress, size: u64) {
    let values = [offset, address.0, address.0, size, size];
    for (field, value) in header[8..48].chunks_exact_mut(8).zip(values) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

fn table(file: &ElfFile<'_>) -> Option<Range<usize>> {
    let start = u64_at(file.bytes, TABLE_FIELD)? as usize;
    let end = start.checked_add(file.segments.len().checked_mul(SIZE)?)?;
    (end <= file.bytes.len()).then_some(start..end)
}
