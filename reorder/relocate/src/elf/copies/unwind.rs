//! The unwind tables of an image, read so that they can be written again with entries for copies.
//!
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::bodies::Body;
use super::exceptions::ExceptionTable;
use super::obstacle::Obstacle;
use super::reader::Reader;
use super::rows::Rows;
use crate::elf::unwind::{HEADER_SIZE, KNOWN_HEADER, ROW_SIZE};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::little_endian::{u32_at, u64_at};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::analysis::exception_tables::exception_table;
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::section::Section;

/// `DW_EH_PE_indirect`.
const INDIRECT: u8 = 0x80;
/// The pointer is absent.
const OMITTED: u8 = 0xff;

/// The old tables of an image.
pub(super) struct OldTables<'data> {
    pub(super) file: &'data ElfFile<'data>,
    pub(super) frames: &'data Section<'data>,
    pub(super) bytes: &'data [u8],
    /// Starts and the addresses of their entries.
    pub(super) rows: Vec<(Address, Address)>,
    pub(super) records: Vec<Record>,
    pub(super) commons: BTreeMap<usize, Common>,
    /// Where the last entry ends: terminators follow.
    pub(super) used: usize,
    pub(super) is_fixed: bool,
}

/// A frame description entry.
pub(super) struct Record {
    /// Its place in the section, the length included.
    pub(super) range: Range<usize>,
    /// Place of its common entry.
    pub(super) parent: usize,
    /// First address covered.
    pub(super) address: Address,
    /// Bytes of code covered.
    pub(super) size: u64,
    /// Its instructions.
    pub(super) instructions: Range<usize>,
    /// Its exception table, if it has one.
    pub(super) exceptions: Option<ExceptionField>,
    /// Self-relative fields; the first is the start.
    pub(super) relative: Vec<RelativeField>,
}

impl Record {
    /// Whether it describes `place`.
    pub(super) fn covers(&self, place: Address) -> bool {
        place.0.checked_sub(self.address.0).is_some_and(|distance| distance < self.size)
    }
}

/// A field that leads to an exception table.
#[derive(Clone, Copy)]
pub(super) struct ExceptionField {
    pub(super) field: RelativeField,
    /// It counts from its own place.
    pub(super) is_relative: bool,
    /// What it leads to.
    pub(super) table: Address,
}

/// A field of four or eight bytes.
#[derive(Clone, Copy)]
pub(super) struct RelativeField {
    pub(super) place: usize,
    pub(super) width: usize,
}

impl RelativeField {
    /// Writes, at `place` of `frames`, the field of `bytes` as it reads from a place `further` bytes on.
    pub(super) fn put_moved(self, bytes: &[u8], frames: &mut [u8], place: usize, further: u64) {
        let old = if self.width == 8 {
            u64_at(bytes, self.place).unwrap_or(0)
        } else {
            u64::from(u32_at(bytes, self.place).unwrap_or(0))
        };
        self.put(frames, place, old.wrapping_sub(further));
    }

    /// Writes `value` at `place` of `frames`.
    pub(super) fn put(self, frames: &mut [u8], place: usize, value: u64) {
        if let Some(field) = frames.get_mut(place..place + self.width) {
            field.copy_from_slice(&value.to_le_bytes()[..self.width]);
        }
    }
}

/// What the entries of one common entry share.
#[derive(Clone, Default)]
pub(super) struct Common {
    pub(super) exception_table: Option<u8>,
    pub(super) has_data: bool,
    /// The image has a fixed address, so absolute pointers stay right.
    pub(super) is_fixed: bool,
    /// Self-relative fields.
    pub(super) relative: Vec<RelativeField>,
    /// Its instructions.
    pub(super) instructions: Range<usize>,
    /// What distances in code are multiples of.
    pub(super) code_factor: u64,
    /// What distances in the frame are multiples of, as it is stored.
    pub(super) data_factor: u64,
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
        let Records { mut records, commons, used } = records(bytes, frames, is_fixed)?;
        records.sort_by_key(|record| record.address);
        Ok(Some(Self { file, frames, bytes, rows, records, commons, used, is_fixed }))
    }

    /// Entries, by position, that describe the bytes of `range`.
    pub(super) fn of_range(&self, body: Address, range: &Range<Address>) -> impl Iterator<Item = &Record> {
        let from = self.records.partition_point(|record| record.address < body);
        let before = self.records[from..].iter().take_while(|record| record.address < range.end);
        before.filter(|record| record.address.plus(record.size) > range.start)
    }

    /// What of the entries of `body` cannot be repeated for parts of it.
    pub(super) fn obstacle(&self, body: &Body) -> Option<Obstacle> {
        self.of_range(body.range.start, &body.range).find_map(|record| {
            if record.exceptions.is_some_and(|field| self.table(record, field).is_none()) {
                return Some(Obstacle::ExceptionTable);
            }
            self.rows_of(record).is_none().then_some(Obstacle::UnwindInstructions)
        })
    }

    /// Whether each entry that describes a part of `range` describes all of it.
    pub(super) fn describes_whole(&self, body: Address, range: &Range<Address>) -> bool {
        self.of_range(body, range)
            .all(|record| record.address <= range.start && range.end <= record.address.plus(record.size))
    }

    /// The exception table that `field` of an entry leads to; `None` if it cannot be repeated.
    pub(super) fn table(&self, record: &Record, field: ExceptionField) -> Option<ExceptionTable<'data>> {
        let bytes = exception_table(self.file, field.table).ok()?.bytes;
        ExceptionTable::read(bytes, field.table, record.address, self.is_fixed)
    }

    /// The rows of the entry that describes `place`, and how far the place is from its start, if it has the units of `record`.
    pub(super) fn rows_at(&self, place: Address, record: &Record) -> Option<(Rows<'data>, u64)> {
        let after = self.records.partition_point(|record| record.address <= place);
        let other = self.records[..after].last()?;
        let distance = place.distance_from(other.address);
        let units = |record: &Record| {
            self.commons.get(&record.parent).map(|common| (common.code_factor, common.data_factor))
        };
        let is_alike = distance < other.size && units(other) == units(record);
        Some((self.rows_of(other).filter(|_| is_alike)?, distance))
    }

    /// What unwinding does in the code of an entry; `None` if it has unknown instructions.
    pub(super) fn rows_of(&self, record: &Record) -> Option<Rows<'data>> {
        let common = self.commons.get(&record.parent)?;
        let own = self.bytes.get(record.instructions.clone())?;
        Rows::new(self.bytes.get(common.instructions.clone())?, own, common.code_factor)
    }
}

/// The error for the entry at `position`.
pub(super) fn broken(frames: &Section<'_>, position: usize) -> Error {
    let what = "an unwind entry in a form that common linkers do not write";
    Error::malformed(frames.offset.0 + position as u64, what)
}

/// All entries.
struct Records {
    records: Vec<Record>,
    commons: BTreeMap<usize, Common>,
    /// Where the last one of any kind ends.
    used: usize,
}

fn records(bytes: &[u8], frames: &Section<'_>, is_fixed: bool) -> Result<Records> {
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
    Ok(Records { records, commons: known, used })
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
    let size = u64::from(u32_at(contents, field + 4)?);
    let mut relative = vec![RelativeField { place: field, width: 4 }];
    let mut instructions = field + 8..range.end;
    let mut exceptions = None;
    if common.has_data {
        let mut cursor = field + 8;
        let length = unsigned(contents, &mut cursor)?;
        instructions.start = usize::try_from(length).ok().and_then(|length| cursor.checked_add(length))?;
        contents.get(instructions.clone())?;
        if let Some(encoding) = common.exception_table.filter(|_| length > 0) {
            let place = cursor;
            // A null pointer says that there is no table.
            let is_null = u32_at(contents, place)? == 0;
            let field = pointer(contents, &mut cursor, encoding, common.is_fixed)?;
            if !is_null {
                relative.extend(field);
                let width = cursor - place;
                let value = match width {
                    8 => u64_at(contents, place)?,
                    _ => i64::from(u32_at(contents, place)? as i32) as u64,
                };
                let from = if field.is_some() { frames.address.plus(place as u64).0 } else { 0 };
                let is_indirect = encoding & INDIRECT != 0;
                let table = Address(if is_indirect { 0 } else { from.wrapping_add(value) });
                let is_relative = field.is_some();
                exceptions =
                    Some(ExceptionField { field: RelativeField { place, width }, is_relative, table });
            }
        }
    }
    Some(Record { range, parent, address, size, instructions, exceptions, relative })
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
    let code_factor = unsigned(record, &mut cursor)?;
    let data_factor = unsigned(record, &mut cursor)?;
    if version == 1 {
        cursor += 1;
    } else {
        unsigned(record, &mut cursor)?;
    }
    let mut common = Common { is_fixed, code_factor, data_factor, ..Common::default() };
    let mut instructions = None;
    let mut is_relative = false;
    for &letter in &record[letters..letters + letter_count] {
        match letter {
            b'z' => {
                let length = usize::try_from(unsigned(record, &mut cursor)?).ok()?;
                instructions = cursor.checked_add(length);
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
    common.instructions = instructions.unwrap_or(cursor)..record.len();
    record.get(common.instructions.clone())?;
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
    let mut reader = Reader::new(record.get(*cursor..)?);
    let value = reader.unsigned()?;
    *cursor += reader.position();
    Some(value)
}
