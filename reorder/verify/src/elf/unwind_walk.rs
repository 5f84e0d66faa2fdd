//! A walker of `.eh_frame` that keeps what a checker needs: the positions of each entry and of its start field.
//!
//! Takes the section's bytes and address; gives the entries in section order, continuing after terminators. Source: Linux
//! Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use std::ops::Range;

use crate::bytes::{displacement_at, u32_at, u64_at, unsigned_leb128};
use crate::elf::view::SectionView;
use reorder_base::error::{Error, Result};

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: the only form of start that relocating supports.
const FIELD_RELATIVE: u8 = 0x1b;
/// `DW_EH_PE_omit`: the pointer is absent.
pub(crate) const OMITTED: u8 = 0xff;
/// `DW_EH_PE_indirect`: the pointer's value is the address of the real one.
pub(crate) const INDIRECT: u8 = 0x80;

/// One frame description entry. Its addresses are plain numbers, since entries of the old and the new image are read alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnwindEntry {
    /// Position of the entry's length word in the section.
    pub(crate) offset: usize,
    /// Position of the four-byte start field in the section.
    pub(crate) start_field: usize,
    /// First address covered.
    pub(crate) start: u64,
    /// Bytes covered.
    pub(crate) size: u64,
    /// Address of the language-specific data area, when the entry names one directly.
    pub(crate) exception_table: Option<u64>,
    /// Address of a personality routine that is named directly, not through a data word.
    pub(crate) personality: Option<u64>,
    /// The fields of both, if they are relative to their own place: position in the section, and size in bytes.
    pub(crate) relative: [Option<(usize, usize)>; 2],
}

/// What the entries of one common information entry share.
#[derive(Clone, Copy, Debug)]
struct Common {
    start_encoding: u8,
    exception_table_encoding: u8,
    has_augmentation_data: bool,
    personality: Option<u64>,
    personality_field: Option<(usize, usize)>,
}

/// The entries of a section, read one after the other: large images have too many to keep them for a comparison that needs
/// each only once.
#[derive(Clone, Debug)]
pub(crate) struct UnwindEntries<'a> {
    bytes: &'a [u8],
    address: u64,
    /// Position of the section in the file, for messages.
    offset: u64,
    position: usize,
    last_common: Option<(usize, Common)>,
}

impl<'a> UnwindEntries<'a> {
    /// The entries of `section`; reading ends after a malformed entry.
    pub(crate) fn of(section: &SectionView<'a>) -> Self {
        let SectionView { bytes, address, offset, .. } = *section;
        Self { bytes, address, offset, position: 0, last_common: None }
    }

    /// Reads the record of `length` bytes at the position; `None` for a common information entry.
    fn read(&mut self, length: u32) -> Result<Option<UnwindEntry>> {
        let (bytes, position, offset) = (self.bytes, self.position, self.offset);
        let broken = |what: &str| Error::malformed(offset.wrapping_add(position as u64), what.to_owned());
        let body = position + 4;
        let end = body.saturating_add(length as usize);
        if length >= 0xffff_fff0 || end > bytes.len() {
            return Err(broken("an unwind entry runs past the end of .eh_frame"));
        }
        let record = &bytes[..end];
        self.position = end;
        let pointer = u32_at(record, body).ok_or_else(|| broken("a truncated unwind entry"))? as usize;
        if pointer == 0 {
            return Ok(None);
        }
        let common_at = body.checked_sub(pointer).ok_or_else(|| broken("an entry of no known parent"))?;
        let common = match self.last_common {
            Some((known, common)) if known == common_at => common,
            _ => read_common(bytes, common_at, self.address)
                .ok_or_else(|| broken("an unwind entry with an unknown parent or augmentation"))?,
        };
        self.last_common = Some((common_at, common));
        let entry = read_entry(record, position, self.address, common)
            .ok_or_else(|| broken("a truncated unwind entry or an unknown start encoding"))?;
        Ok(Some(entry))
    }
}

impl Iterator for UnwindEntries<'_> {
    type Item = Result<UnwindEntry>;

    /// Entries that run past the section, unknown augmentations and encodings are errors.
    fn next(&mut self) -> Option<Self::Item> {
        while let Some(length) = u32_at(self.bytes, self.position) {
            if length == 0 {
                self.position += 4;
                continue;
            }
            let entry = self.read(length);
            if entry.is_err() {
                self.position = self.bytes.len();
            }
            if let Some(entry) = entry.transpose() {
                return Some(entry);
            }
        }
        None
    }
}

fn read_entry(record: &[u8], position: usize, address: u64, common: Common) -> Option<UnwindEntry> {
    if common.start_encoding != FIELD_RELATIVE {
        return None;
    }
    let start_field = position + 8;
    let start = address.wrapping_add(start_field as u64).wrapping_add(displacement_at(record, start_field)?);
    let size = u64::from(u32_at(record, start_field + 4)?);
    start.checked_add(size)?;
    let mut cursor = start_field + 8;
    let mut exception_table = None;
    let mut table_field = None;
    if common.has_augmentation_data {
        unsigned_leb128(record, &mut cursor)?;
        if common.exception_table_encoding != OMITTED {
            let (encoding, place) = (common.exception_table_encoding, cursor);
            exception_table = encoded_pointer(record, &mut cursor, encoding, address)?;
            table_field = relative_field(record, encoding, place..cursor);
        }
    }
    Some(UnwindEntry {
        offset: position,
        start_field,
        start,
        size,
        exception_table,
        personality: common.personality,
        relative: [table_field, common.personality_field],
    })
}

/// Reads the common information entry at `position`; `None` when it is not understood.
fn read_common(bytes: &[u8], position: usize, address: u64) -> Option<Common> {
    let length = u32_at(bytes, position)? as usize;
    let record = bytes.get(..position.checked_add(4)?.checked_add(length)?)?;
    if u32_at(record, position + 4)? != 0 {
        return None;
    }
    let version = *record.get(position + 8)?;
    let mut cursor = position + 9;
    let augmentation_start = cursor;
    while *record.get(cursor)? != 0 {
        cursor += 1;
        // Real augmentations have at most six letters; the bound keeps re-reading parents cheap.
        if cursor - augmentation_start > 16 {
            return None;
        }
    }
    let augmentation = &record[augmentation_start..cursor];
    cursor += 1;
    unsigned_leb128(record, &mut cursor)?; // code alignment
    unsigned_leb128(record, &mut cursor)?; // data alignment: signed, of the same length
    match version {
        1 => cursor += 1,
        3 => unsigned_leb128(record, &mut cursor).map(|_| ())?,
        _ => return None,
    }
    let mut common = Common {
        start_encoding: 0,
        exception_table_encoding: OMITTED,
        has_augmentation_data: false,
        personality: None,
        personality_field: None,
    };
    for &letter in augmentation {
        match letter {
            b'z' => {
                unsigned_leb128(record, &mut cursor)?;
                common.has_augmentation_data = true;
            }
            b'R' => {
                common.start_encoding = *record.get(cursor)?;
                cursor += 1;
            }
            b'L' => {
                common.exception_table_encoding = *record.get(cursor)?;
                cursor += 1;
            }
            b'P' => {
                let encoding = *record.get(cursor)?;
                cursor += 1;
                let place = cursor;
                common.personality = encoded_pointer(record, &mut cursor, encoding, address)?;
                common.personality_field = relative_field(record, encoding, place..cursor);
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(common)
}

/// Reads one encoded pointer. The outer `None`: not understood; the inner: absent, or only reachable through data.
fn encoded_pointer(record: &[u8], cursor: &mut usize, encoding: u8, address: u64) -> Option<Option<u64>> {
    let place = address.wrapping_add(*cursor as u64);
    let (value, width) = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => (u64_at(record, *cursor)?, 8),
        0x03 => (u64::from(u32_at(record, *cursor)?), 4),
        0x0b => (displacement_at(record, *cursor)?, 4),
        _ => return None,
    };
    *cursor += width;
    let base = match encoding & 0x70 {
        0x00 => 0,
        0x10 => place,
        _ => return None,
    };
    let is_absent = value == 0 || encoding & INDIRECT != 0;
    Some((!is_absent).then(|| base.wrapping_add(value)))
}

/// Position and size of the pointer at `place`, if it is relative to its own place and not null.
fn relative_field(record: &[u8], encoding: u8, place: Range<usize>) -> Option<(usize, usize)> {
    let is_null = record.get(place.clone())?.iter().all(|byte| *byte == 0);
    (encoding & 0x70 == 0x10 && !is_null).then_some((place.start, place.len()))
}
