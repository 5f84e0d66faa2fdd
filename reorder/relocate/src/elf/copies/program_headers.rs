//! A program header for the copies' segment, in the existing table.
//!
//! The table itself stays: tools and older kernels expect it after the file header. So a header must be free, or
//! describe something that is not needed at run time.

use std::ops::Range;

use reorder_base::address::NewAddress;
use reorder_base::hint::Hint;
use reorder_base::little_endian::u64_at;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::note::{Note, notes};
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

/// Notes that a running program no longer has. The later a variant, the more its note is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostNote {
    /// None that tools look for.
    Other,
    /// The build-id.
    BuildId,
    /// Where the program keeps what it adds to its own crash reports, for Crashpad.
    CrashReports,
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
    found.extend(of_kind(object::elf::PT_NOTE.0).filter_map(|(index, segment)| {
        let lost = if is_repeated(segment) { None } else { Some(note_in(file, segment)?) };
        Some((lost, index))
    }));
    // The headers that are missed least come first.
    found.sort_by_key(|(lost, _)| *lost);
    // PT_PHDR tells loaders how far a program was moved, and one at a fixed address never is. It comes last, because debuggers may
    // still look at it.
    if file.linkage == Linkage::FixedAddress {
        found.extend(of_kind(object::elf::PT_PHDR.0).map(|(index, _)| (None, index)));
    }
    found.first().map(|&(lost, index)| Slot { index, lost }).ok_or_else(|| no_slot(file))
}

fn no_slot(file: &ElfFile<'_>) -> Refusal {
    let refusal = |what: String, otherwise| {
        let what = format!("no program header is free for the segment of copies, and {what}");
        Refusal::new(RefusalCode::Copies, what, Hint::LeaveOutCopies { otherwise: Some(otherwise) })
    };
    let segment = file.segments.iter().find(|segment| segment.kind == object::elf::PT_NOTE.0);
    let Some(segment) = segment else {
        let otherwise = "link with --build-id: the copies can take the header of that note";
        return refusal("there is no note to give its own".to_owned(), otherwise);
    };
    let unknown = range_of(segment)
        .and_then(|range| notes(file.bytes, range).find(|note| known(note).is_none()))
        .map_or_else(String::new, |note| format!(" of {}", String::from_utf8_lossy(owner(&note))));
    let what = format!("the note{unknown} keeps its own, because the program may look for it");
    refusal(what, "apply before the note is added").at(segment.address)
}

fn range_of(segment: &Segment) -> Option<Range<usize>> {
    let start = usize::try_from(segment.offset.0).ok()?;
    Some(start..start.checked_add(usize::try_from(segment.file_size).ok()?)?)
}

/// The note in `segment` that would be missed most; `None` if the program may look for one of them: Node.js finds its application in a
/// note.
fn note_in(file: &ElfFile<'_>, segment: &Segment) -> Option<LostNote> {
    let range = range_of(segment)?;
    let (mut most, mut end) = (LostNote::Other, range.start);
    for note in notes(file.bytes, range.clone()) {
        most = most.max(known(&note)?);
        end = note.description.end;
    }
    let rest = file.bytes.get(end..range.end)?;
    rest.iter().all(|byte| *byte == 0).then_some(most)
}

/// What is lost with a note of a known meaning.
fn known(note: &Note<'_>) -> Option<LostNote> {
    const BUILD_ID: u32 = 3;
    /// `NT_GNU_PROPERTY_TYPE_0`.
    const PROPERTIES: u32 = 5;
    /// `NT_ANDROID_TYPE_IDENT`, the version of the system that a program is for.
    const ANDROID_IDENT: u32 = 1;
    match (owner(note), note.kind) {
        (b"GNU", BUILD_ID) => Some(LostNote::BuildId),
        (b"GNU", PROPERTIES) => Some(LostNote::Properties),
        (b"Crashpad", _) => Some(LostNote::CrashReports),
        // Go's build-id and freedesktop.org's notes of packages are for tools that read files and core dumps.
        (b"GNU" | b"Go" | b"FDO", _) | (b"Android", ANDROID_IDENT) => Some(LostNote::Other),
        _ => None,
    }
}

/// The owner of a note; Go counts the padding to its name.
fn owner<'data>(note: &Note<'data>) -> &'data [u8] {
    let end = note.owner.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &note.owner[..end]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notes_of_known_owners_may_be_lost() {
        let lost = |owner, kind| known(&Note { owner, kind, description: 0..0 });
        assert_eq!(lost(b"Go\0", 4), Some(LostNote::Other));
        assert_eq!((lost(b"GNU", 1), lost(b"GNU", 3)), (Some(LostNote::Other), Some(LostNote::BuildId)));
        assert_eq!((lost(b"Android", 1), lost(b"Android", 4)), (Some(LostNote::Other), None));
        assert_eq!((lost(b"NODE_SEA_BLOB", 0), lost(b"", 0)), (None, None));
    }
}
