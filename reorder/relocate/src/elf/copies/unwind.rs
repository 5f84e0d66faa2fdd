//! Unwind tables with the copies: all old entries, then entries for the copies, and a new search table.
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::bodies::Body;
use super::obstacle::Obstacle;
use super::placed::{Copies, Placed};
use super::rows::Rows;
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
    commons: BTreeMap<usize, Common>,
    /// Where the last entry ends: terminators follow.
    used: usize,
}

/// A frame description entry.
struct Record {
    /// Its place in the section, the length included.
    range: Range<usize>,
    /// Place of its common entry.
    parent: usize,
    /// First address covered.
    address: Address,
    /// Bytes of code covered.
    size: u64,
    /// Its instructions.
    instructions: Range<usize>,
    /// It has a table of exceptions.
    has_exceptions: bool,
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
    /// Its instructions.
    instructions: Range<usize>,
    /// What distances in code are multiples of.
    code_factor: u64,
}

/// An entry for a copy.
struct Added<'run> {
    /// That of the original.
    record: &'run Record,
    /// First address covered.
    start: NewAddress,
    /// Bytes of code covered.
    size: u32,
    /// Its instructions.
    program: Vec<u8>,
}

/// New contents of both sections.
pub(super) struct NewTables {
    /// `.eh_frame_hdr`.
    pub search: Vec<u8>,
    /// `.eh_frame`.
    pub frames: Vec<u8>,
    /// Where `.eh_frame` is.
    pub frames_address: NewAddress,
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
        Ok(Some(Self { frames, bytes, rows, records, commons, used }))
    }

    /// Bytes of the search table with so many more rows.
    fn search_size(&self, added: usize) -> u64 {
        (HEADER_SIZE + (self.rows.len() + added) * ROW_SIZE) as u64
    }

    /// Entries, by position, that describe the bytes of `range`.
    fn of_range(&self, body: Address, range: &Range<Address>) -> impl Iterator<Item = &Record> {
        let from = self.records.partition_point(|record| record.address < body);
        let before = self.records[from..].iter().take_while(|record| record.address < range.end);
        before.filter(|record| record.address.plus(record.size) > range.start)
    }

    /// The first of `bodies` with an exception table, or with instructions that are not known, and the place of its entry.
    pub(super) fn obstacle(&self, body: &Body) -> Option<Obstacle> {
        self.of_range(body.range.start, &body.range).find_map(|record| match self.rows_of(record) {
            _ if record.has_exceptions => Some(Obstacle::ExceptionTable),
            None => Some(Obstacle::UnwindInstructions),
            Some(_) => None,
        })
    }

    fn rows_of(&self, record: &Record) -> Option<Rows<'data>> {
        let common = self.commons.get(&record.parent)?;
        let own = self.bytes.get(record.instructions.clone())?;
        Rows::new(self.bytes.get(common.instructions.clone())?, own, common.code_factor)
    }

    /// The entries that copies need, ascending by original.
    fn added(&self, copies: &Copies<'_>) -> Option<Vec<Added<'_>>> {
        let mut added = Vec::new();
        for (fragment, placed) in copies.fragments.iter().zip(&copies.placed) {
            let range = fragment.original(copies.bodies);
            let body = copies.bodies[fragment.body].range.start;
            for record in self.of_range(body, &range) {
                let covered = record.address..record.address.plus(record.size);
                let steps = fragment.of(copies.bodies).iter().zip(&placed.arranged.offsets);
                let steps = steps.map(|((offset, _), copy)| (body.plus(u64::from(*offset)), *copy));
                let mut places: Vec<(u64, u32)> = steps
                    .filter(|(place, _)| covered.contains(place))
                    .map(|(place, copy)| (place.distance_from(record.address), copy))
                    .collect();
                let Some(&(_, first)) = places.first() else { continue };
                // What follows the instructions jumps to where the original goes on.
                let is_whole = covered.end >= range.end;
                let end = if is_whole {
                    placed.arranged.size()
                } else {
                    last_end(&places, placed, &range, &covered)
                };
                if covered.contains(&range.end) {
                    places.push((range.end.distance_from(record.address), placed.arranged.code_size()));
                }
                places.iter_mut().for_each(|(_, copy)| *copy -= first);
                let program = self.rows_of(record)?.program(&places)?;
                added.push(Added {
                    record,
                    start: placed.start.plus(u64::from(first)),
                    size: end - first,
                    program,
                });
            }
        }
        Some(added)
    }

    /// The tables at their new places.
    ///
    /// # Errors
    /// Distances that do not fit, which a segment next to the image does not have.
    pub(super) fn extended(&self, copies: &Copies<'_>, search_address: NewAddress) -> Result<NewTables> {
        let added = self.added(copies).ok_or_else(|| broken(self.frames, 0))?;
        let search_end = search_address.plus(self.search_size(added.len()));
        let frames_address = NewAddress(search_end.0.next_multiple_of(8));
        let shift = frames_address.0.wrapping_sub(self.frames.address.0);
        let mut frames = self.bytes[..self.used].to_vec();
        let parents = self.commons.values().flat_map(|common| common.relative.iter().copied());
        for field in self.records.iter().flat_map(|record| record.relative.iter().copied()).chain(parents) {
            field.put_moved(self.bytes, &mut frames, field.place, shift);
        }
        let mut rows: Vec<(u64, u64)> =
            self.rows.iter().map(|(start, entry)| (start.0, entry.0.wrapping_add(shift))).collect();
        for Added { record, start: copy, size, program } in added {
            let start = frames.len();
            // Up to the instructions, with the length below.
            frames.extend_from_slice(&self.bytes[record.range.start..record.instructions.start]);
            put(&mut frames, start + 4, (start + 4 - record.parent) as u32);
            // The first field is the start; the targets of the others stay where they were.
            for (number, field) in record.relative.iter().enumerate() {
                let place = start + (field.place - record.range.start);
                let further = shift.wrapping_add((place - field.place) as u64);
                let target = if number == 0 { copy.0.wrapping_sub(record.address.0) } else { 0 };
                field.put_moved(self.bytes, &mut frames, place, further.wrapping_sub(target));
            }
            put(&mut frames, start + 12, size);
            frames.extend(program);
            // The entry is padded with instructions that do nothing.
            frames.resize(frames.len().next_multiple_of(8) + 4, 0);
            let length = frames.len() - start - 4;
            put(&mut frames, start, length as u32);
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
        Ok(NewTables { search, frames, frames_address })
    }
}

fn broken(frames: &Section<'_>, position: usize) -> Error {
    let what = "an unwind entry in a form that no usual linker writes";
    Error::malformed(frames.offset.0 + position as u64, what)
}

/// Where the copy of the last instruction of `places`, which are not all of the fragment, ends.
fn last_end(places: &[(u64, u32)], placed: &Placed, range: &Range<Address>, covered: &Range<Address>) -> u32 {
    debug_assert!(covered.end < range.end, "the entry ends inside the fragment");
    let last = places.last().map_or(0, |(_, copy)| *copy);
    let after = placed.arranged.offsets.partition_point(|offset| *offset <= last);
    placed.arranged.offsets.get(after).copied().unwrap_or(placed.arranged.code_size())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
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
    let mut has_exceptions = false;
    if common.has_data {
        let mut cursor = field + 8;
        let length = unsigned(contents, &mut cursor)?;
        instructions.start = usize::try_from(length).ok().and_then(|length| cursor.checked_add(length))?;
        contents.get(instructions.clone())?;
        if let Some(encoding) = common.exception_table.filter(|_| length > 0) {
            let place = cursor;
            // A null pointer says that there is no table.
            let is_null = u32_at(contents, place)? == 0;
            has_exceptions = !is_null;
            relative.extend(pointer(contents, &mut cursor, encoding, common.is_fixed)?.filter(|_| !is_null));
        }
    }
    Some(Record { range, parent, address, size, instructions, has_exceptions, relative })
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
    unsigned(record, &mut cursor)?;
    if version == 1 {
        cursor += 1;
    } else {
        unsigned(record, &mut cursor)?;
    }
    let mut common = Common { is_fixed, code_factor, ..Common::default() };
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
