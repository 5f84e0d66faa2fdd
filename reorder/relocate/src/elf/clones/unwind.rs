//! Unwind tables with the copies: all old entries, then entries for the copies, and a new search table.
//!
//! Exception tables are shared: they are relative to the function's start, or lead into the original, whose frame is the
//! same.
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::copies::Copies;
use crate::elf::unwind::{HEADER_SIZE, KNOWN_HEADER, ROW_SIZE};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::little_endian::{u32_at, u64_at};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::section::Section;

/// The pointer is absent.
const OMITTED: u8 = 0xff;

/// The old tables of an image.
pub(super) struct OldTables<'data> {
    frames: &'data Section<'data>,
    bytes: &'data [u8],
    /// Starts and the addresses of their entries.
    rows: Vec<(Address, Address)>,
    records: Vec<Record>,
    /// Where the last entry ends: terminators follow.
    used: usize,
    is_fixed: bool,
}

/// A frame description entry.
struct Record {
    /// Its place in the section, the length included.
    range: Range<usize>,
    /// Place of its common entry.
    parent: usize,
    /// First address covered.
    address: Address,
    /// Self-relative fields; the first is the start.
    relative: Vec<RelativeField>,
}

/// A field of four or eight bytes.
#[derive(Clone, Copy)]
struct RelativeField {
    place: usize,
    width: usize,
}

impl RelativeField {
    /// Writes, at `place` of `frames`, the field of `bytes` as it reads from a place `further` bytes on.
    fn put_moved(self, bytes: &[u8], frames: &mut [u8], place: usize, further: u64) {
        let old = if self.width == 8 {
            u64_at(bytes, self.place).unwrap_or(0)
        } else {
            u64::from(u32_at(bytes, self.place).unwrap_or(0))
        };
        let new = old.wrapping_sub(further).to_le_bytes();
        if let Some(field) = frames.get_mut(place..place + self.width) {
            field.copy_from_slice(&new[..self.width]);
        }
    }
}

/// What the entries of one common entry share.
#[derive(Clone, Default)]
struct Common {
    exception_table: Option<u8>,
    has_data: bool,
    /// The image has a fixed address, so absolute pointers stay right.
    is_fixed: bool,
    /// Self-relative fields.
    relative: Vec<RelativeField>,
}

/// New contents of both sections.
pub(super) struct NewTables {
    /// `.eh_frame_hdr`.
    pub search: Vec<u8>,
    /// `.eh_frame`.
    pub frames: Vec<u8>,
}

impl<'data> OldTables<'data> {
    /// Reads the tables; `None` when there are none.
    ///
    /// # Errors
    /// Refuses (R8) unwind entries without a search table, and forms that common linkers do not write.
    pub(super) fn read(file: &'data ElfFile<'data>) -> Result<Option<Self>> {
        let frames = file.section(b".eh_frame").filter(|section| section.has_bytes());
        let Some(frames) = frames else { return Ok(None) };
        let refused = |what: &str| {
            let cure = "relink with --eh-frame-hdr of ld.bfd, gold, lld or mold";
            Error::from(Refusal::new(RefusalCode::UnwindEncoding, what, cure).at(frames.address))
        };
        let bytes = file.section_bytes(frames);
        let is_found = file.segments.iter().any(|segment| segment.kind == object::elf::PT_GNU_EH_FRAME.0);
        let search = file.section(b".eh_frame_hdr").filter(|_| is_found).ok_or_else(|| {
            refused("copies need an unwind search table (.eh_frame_hdr), and there is none")
        })?;
        let table = file.section_bytes(search);
        if table.get(..4) != Some(&KNOWN_HEADER) {
            return Err(refused("the unwind search table (.eh_frame_hdr) has an unknown encoding"));
        }
        let count = u32_at(table, 8).unwrap_or(0) as usize;
        let rows = count
            .checked_mul(ROW_SIZE)
            .and_then(|size| table.get(HEADER_SIZE..HEADER_SIZE.checked_add(size)?))
            .ok_or_else(|| Error::malformed(search.offset.0, "the unwind search table is cut off"))?;
        let at = |row: &[u8], at| {
            let distance = i64::from(u32_at(row, at).unwrap_or(0) as i32);
            search.address.plus(distance as u64)
        };
        let rows = rows.chunks_exact(ROW_SIZE).map(|row| (at(row, 0), at(row, 4))).collect();
        let is_fixed = file.linkage == Linkage::FixedAddress;
        let (records, used) = records(bytes, frames, is_fixed)?;
        Ok(Some(Self { frames, bytes, rows, records, used, is_fixed }))
    }

    /// Bytes of the search table with `copies`.
    pub(super) fn search_size(&self, copies: &Copies<'_>) -> u64 {
        (HEADER_SIZE + (self.rows.len() + self.added(copies).len()) * ROW_SIZE) as u64
    }

    /// The entries that have to be repeated, each with the place of its copy.
    fn added(&self, copies: &Copies<'_>) -> Vec<(&Record, NewAddress)> {
        let mut by_start: BTreeMap<Address, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            by_start.entry(record.address).or_default().push(record);
        }
        let mut added = Vec::new();
        for (body, copy) in copies.bodies.iter().zip(&copies.starts) {
            for (address, records) in by_start.range(body.range.clone()) {
                let place = copy.plus(address.distance_from(body.range.start));
                added.extend(records.iter().map(|record| (*record, place)));
            }
        }
        added
    }

    /// The tables at their new places.
    ///
    /// # Errors
    /// Distances that do not fit, which a segment next to the image does not have.
    pub(super) fn extended(
        &self,
        copies: &Copies<'_>,
        search_address: NewAddress,
        frames_address: NewAddress,
    ) -> Result<NewTables> {
        let shift = frames_address.0.wrapping_sub(self.frames.address.0);
        let mut frames = self.bytes[..self.used].to_vec();
        let parents = self.fields_in_parents()?;
        for field in self.records.iter().flat_map(|record| record.relative.iter().copied()).chain(parents) {
            field.put_moved(self.bytes, &mut frames, field.place, shift);
        }
        let mut rows: Vec<(u64, u64)> =
            self.rows.iter().map(|(start, entry)| (start.0, entry.0.wrapping_add(shift))).collect();
        for (record, copy) in self.added(copies) {
            let start = frames.len();
            frames.extend_from_slice(&self.bytes[record.range.clone()]);
            put(&mut frames, start + 4, (start + 4 - record.parent) as u32);
            // The first field is the start; the targets of the others stay where they were.
            for (number, field) in record.relative.iter().enumerate() {
                let place = start + (field.place - record.range.start);
                let further = shift.wrapping_add((place - field.place) as u64);
                let target = if number == 0 { copy.0.wrapping_sub(record.address.0) } else { 0 };
                field.put_moved(self.bytes, &mut frames, place, further.wrapping_sub(target));
            }
            rows.push((copy.0, frames_address.0.wrapping_add(start as u64)));
        }
        frames.extend_from_slice(&[0; 4]);
        rows.sort_by_key(|row| row.0);
        let mut search = KNOWN_HEADER.to_vec();
        let distance = |address: u64, from: u64| {
            i32::try_from(address.wrapping_sub(from) as i64)
                .map_err(|_| Error::malformed(self.frames.offset.0, "unwind tables too far apart"))
        };
        search.extend(distance(frames_address.0, search_address.plus(4).0)?.to_le_bytes());
        search.extend((rows.len() as u32).to_le_bytes());
        for (start, entry) in rows {
            search.extend(distance(start, search_address.0)?.to_le_bytes());
            search.extend(distance(entry, search_address.0)?.to_le_bytes());
        }
        Ok(NewTables { search, frames })
    }

    /// Self-relative fields in common entries.
    fn fields_in_parents(&self) -> Result<Vec<RelativeField>> {
        let mut parents: Vec<usize> = self.records.iter().map(|record| record.parent).collect();
        parents.sort_unstable();
        parents.dedup();
        let mut places = Vec::new();
        for parent in parents {
            places.extend(
                common(self.bytes, parent, self.is_fixed)
                    .ok_or_else(|| broken(self.frames, parent))?
                    .relative,
            );
        }
        Ok(places)
    }
}

fn broken(frames: &Section<'_>, position: usize) -> Error {
    let what = "an unwind entry in a form that common linkers do not write";
    Error::malformed(frames.offset.0 + position as u64, what)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// All entries, and where the last one of any kind ends.
fn records(bytes: &[u8], frames: &Section<'_>, is_fixed: bool) -> Result<(Vec<Record>, usize)> {
    let mut known: BTreeMap<usize, Common> = BTreeMap::new();
    let mut records = Vec::new();
    let (mut position, mut used) = (0, 0);
    while let Some(length) = u32_at(bytes, position) {
        let wrong = || broken(frames, position);
        let end = (position + 4).checked_add(length as usize).filter(|end| *end <= bytes.len());
        let end = end.ok_or_else(wrong)?;
        let back = if length == 0 { 0 } else { u32_at(bytes, position + 4).ok_or_else(wrong)? as usize };
        if back != 0 {
            let parent = (position + 4).checked_sub(back).ok_or_else(wrong)?;
            let common = match known.entry(parent) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(common(bytes, parent, is_fixed).ok_or_else(wrong)?),
            };
            let found = record(bytes, position..end, parent, common, frames);
            records.push(found.ok_or_else(wrong)?);
        }
        position = end;
        if length != 0 {
            used = end;
        }
    }
    Ok((records, used))
}

fn record(
    bytes: &[u8],
    range: Range<usize>,
    parent: usize,
    common: &Common,
    frames: &Section<'_>,
) -> Option<Record> {
    let contents = bytes.get(..range.end)?;
    let field = range.start + 8;
    let distance = i64::from(u32_at(contents, field)? as i32);
    let address = frames.address.plus(field as u64).plus(distance as u64);
    let mut relative = vec![RelativeField { place: field, width: 4 }];
    if common.has_data {
        let mut cursor = field + 8;
        let length = unsigned(contents, &mut cursor)?;
        if let Some(encoding) = common.exception_table.filter(|_| length > 0) {
            let place = cursor;
            // A null pointer says that there is no table.
            let is_null = u32_at(contents, place)? == 0;
            relative.extend(pointer(contents, &mut cursor, encoding, common.is_fixed)?.filter(|_| !is_null));
        }
    }
    Some(Record { range, parent, address, relative })
}

/// Reads a common entry; `None` when it is not understood.
fn common(bytes: &[u8], position: usize, is_fixed: bool) -> Option<Common> {
    let length = u32_at(bytes, position)? as usize;
    let record = bytes.get(..position.checked_add(4)?.checked_add(length)?)?;
    if u32_at(record, position + 4)? != 0 {
        return None;
    }
    let version = *record.get(position + 8)?;
    let letters = position + 9;
    // Longer augmentations have no known meaning.
    let letter_count = record.get(letters..)?.iter().take(8).position(|letter| *letter == 0)?;
    let mut cursor = letters + letter_count + 1;
    unsigned(record, &mut cursor)?;
    unsigned(record, &mut cursor)?;
    if version == 1 {
        cursor += 1;
    } else {
        unsigned(record, &mut cursor)?;
    }
    let mut common = Common { is_fixed, ..Common::default() };
    let mut is_relative = false;
    for &letter in &record[letters..letters + letter_count] {
        match letter {
            b'z' => {
                unsigned(record, &mut cursor)?;
                common.has_data = true;
            }
            b'R' => {
                is_relative = *record.get(cursor)? == 0x1b;
                cursor += 1;
            }
            b'L' => {
                common.exception_table = Some(*record.get(cursor)?).filter(|encoding| *encoding != OMITTED);
                cursor += 1;
            }
            b'P' => {
                let encoding = *record.get(cursor)?;
                cursor += 1;
                common.relative.extend(pointer(record, &mut cursor, encoding, is_fixed)?);
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    is_relative.then_some(common)
}

/// Skips a pointer; gives it if it is self-relative. `None` for forms that cannot be moved.
fn pointer(record: &[u8], cursor: &mut usize, encoding: u8, is_fixed: bool) -> Option<Option<RelativeField>> {
    let place = *cursor;
    let width = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => 8,
        0x03 | 0x0b => 4,
        _ => return None,
    };
    *cursor += width;
    record.get(..*cursor)?;
    match encoding & 0x70 {
        // An absolute address, which in an image without a fixed place something else would have to adjust.
        0x00 if is_fixed || is_null(record, place..place + width) => Some(None),
        0x10 => Some(Some(RelativeField { place, width })),
        _ => None,
    }
}

fn is_null(record: &[u8], place: Range<usize>) -> bool {
    record.get(place).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// The next LEB128 number; of signed ones only the length matters.
fn unsigned(record: &[u8], cursor: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *record.get(*cursor)?;
        *cursor += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
