//! One profile of a raw file: its header and its sections.
//!
//! ```text
//! header     magic, version and flags, sizes of what follows, distances between the sections in memory
//! build-ids  { u64 length, bytes, to a multiple of 8 }
//! records    one for each function
//! counters   u64, or one byte each; padding on both sides
//! bitmap     from version 9 on, with padding after it
//! names      to a multiple of 8
//! vtables    from version 10 on: records and names, each to a multiple of 8
//! values     for each record that has sites: u32 length with itself, ...; absent in continuous mode
//! ```
//!
//! Specification: `InstrProfData.inc`, `InstrProfilingWriter.c` and `RawInstrProfReader`.

use super::encoding::{Encoding, Record, RecordLayout};
use super::header::{Flags, Header};
use crate::Note;
use crate::cursor::Cursor;
use reorder_base::error::{Error, Result};

/// A part of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Section<'data> {
    pub(super) bytes: &'data [u8],
    /// In the file.
    pub(super) offset: u64,
}

/// One image's counters as one process left them.
#[derive(Debug)]
pub(super) struct Profile<'data> {
    /// Of the header in the file.
    pub(super) offset: u64,
    pub(super) encoding: Encoding,
    pub(super) version: u32,
    pub(super) flags: Flags,
    /// Of the image; none in Mach-O programs.
    pub(super) build_ids: Vec<&'data [u8]>,
    pub(super) layout: RecordLayout,
    pub(super) records: Section<'data>,
    pub(super) counters: Section<'data>,
    pub(super) names: Section<'data>,
    /// From the records to the counters in memory.
    pub(super) counters_delta: u64,
    /// Run-time address of the names.
    pub(super) names_delta: u64,
}

/// A profile and where the next one may start; `None` if the part after the counters is damaged.
pub(super) struct Parsed<'data> {
    pub(super) profile: Profile<'data>,
    pub(super) end: Option<usize>,
    pub(super) notes: Vec<Note>,
}

impl<'data> Profile<'data> {
    /// The profile at `offset` of a file; complete up to its counters, or an error.
    ///
    /// # Errors
    /// Other versions, and sections before the names that are not whole.
    pub(super) fn parse(file: &'data [u8], offset: usize) -> Result<Parsed<'data>> {
        let bytes = file.get(offset..).unwrap_or_default();
        let encoding = Encoding::of_magic(bytes)
            .ok_or_else(|| Error::malformed(offset as u64, "no raw profile starts here"))?;
        let mut cursor = Cursor::part(bytes, encoding.order, offset as u64);
        cursor.skip(8)?;
        let header = Header::read(&mut cursor)?;
        let mut notes = Vec::new();
        let build_ids = read_build_ids(&mut cursor, header.build_id_bytes, &mut notes)?;
        let layout = RecordLayout::new(encoding, header.version);
        let records = take(&mut cursor, "records", header.records, layout.size as u64)?;
        cursor.skip(header.padding_before_counters).map_err(|error| cut("padding", error))?;
        let counter_bytes = if header.flags.is_byte_coverage() { 1 } else { 8 };
        let counters = take(&mut cursor, "counters", header.counters, counter_bytes)?;
        let mut profile = Self {
            offset: offset as u64,
            encoding,
            version: header.version,
            flags: header.flags,
            build_ids,
            layout,
            records,
            counters,
            names: Section::default(),
            counters_delta: header.counters_delta,
            names_delta: header.names_delta,
        };
        let after_values =
            profile.read_names(&mut cursor, &header).and_then(|()| profile.skip_values(&mut cursor));
        let end = match after_values {
            Ok(missing) => {
                notes.extend(missing);
                Some(offset + (bytes.len() - cursor.remaining()))
            }
            Err(error) => {
                notes.push(Note::from(error));
                None
            }
        };
        Ok(Parsed { profile, end, notes })
    }

    /// All records in file order, with their offsets in the file.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + Clone {
        self.records.bytes.chunks_exact(self.layout.size).map(|record| self.layout.read(record))
    }

    /// The record called `number`, and where it lies.
    pub(super) fn record(&self, number: usize) -> Option<(u64, Record)> {
        let start = number.checked_mul(self.layout.size)?;
        let record = self.records.bytes.get(start..)?.get(..self.layout.size)?;
        Some((self.records.offset + start as u64, self.layout.read(record)))
    }

    pub(super) fn name_hashes(&self) -> impl Iterator<Item = u64> {
        self.records.bytes.chunks_exact(self.layout.size).map(|record| self.layout.name_hash(record))
    }

    /// Whether records and names stayed in the program or its debug file.
    pub(super) fn is_correlated(&self) -> bool {
        self.records.bytes.is_empty() && self.names.bytes.is_empty() && !self.counters.bytes.is_empty()
    }

    /// Moves past the names and what follows them. A cut in the names leaves what there is of them.
    fn read_names(&mut self, cursor: &mut Cursor<'data>, header: &Header) -> Result<()> {
        cursor.skip(header.padding_after_counters)?;
        cursor.skip(header.bitmap_bytes)?;
        cursor.skip(header.padding_after_bitmap)?;
        self.names = Section { bytes: cursor.rest(), offset: cursor.offset() };
        self.names.bytes = cursor.take(header.names).map_err(|error| cut("names", error))?;
        cursor.align_to(8);
        let vtable_bytes = if self.encoding.pointer_bytes == 8 { 24 } else { 16 };
        cursor.take_array(header.vtables, vtable_bytes)?;
        cursor.align_to(8);
        cursor.skip(header.vtable_names)?;
        cursor.align_to(8);
        Ok(())
    }

    /// Moves past the values, which are not used. In continuous mode they are never written.
    fn skip_values(&self, cursor: &mut Cursor<'data>) -> Result<Option<Note>> {
        let records = self.records.bytes.chunks_exact(self.layout.size);
        let with_values = records.filter(|record| self.layout.has_values(record)).count();
        let is_absent = cursor.is_at_end() || Encoding::of_magic(cursor.rest()).is_some();
        if with_values > 0 && is_absent {
            let message = "the values after the names are missing, as in continuous mode or in a cut file; the order \
                           does not need them";
            return Ok(Some(Note::at(cursor.offset(), message)));
        }
        for _ in 0..with_values {
            let start = cursor.offset();
            let length = cursor.u32().and_then(|length| match length {
                8.. if length % 8 == 0 => Ok(u64::from(length)),
                _ => Err(Error::malformed(start, format!("{length} bytes of values"))),
            });
            length.and_then(|length| cursor.skip(length - 4)).map_err(|error| {
                let message =
                    "the values after the names are damaged; the order before them does not need them";
                Error::malformed(start, format!("{message} ({})", error.message))
            })?;
        }
        Ok(None)
    }
}

fn take<'data>(cursor: &mut Cursor<'data>, what: &str, count: u64, size: u64) -> Result<Section<'data>> {
    let offset = cursor.offset();
    let bytes = cursor.take_array(count, size).map_err(|error| cut(what, error))?;
    Ok(Section { bytes, offset })
}

fn cut(what: &str, error: Error) -> Error {
    let message = format!("the file ends in the {what} of a profile: {}", error.message);
    Error::malformed(error.offset.unwrap_or(0), message).with_hint(
        "record again, and let the program write its profile to the end: it may have been killed, or the disk full",
    )
}

/// Moves past the build-ids; damaged ones are left out.
fn read_build_ids<'data>(
    cursor: &mut Cursor<'data>,
    length: u64,
    notes: &mut Vec<Note>,
) -> Result<Vec<&'data [u8]>> {
    let (order, offset) = (cursor.order(), cursor.offset());
    let mut area = Cursor::part(cursor.take(length)?, order, offset);
    let mut build_ids = Vec::new();
    while !area.is_at_end() {
        let start = area.offset();
        match area.u64().and_then(|length| area.take(length)) {
            Ok(build_id) => build_ids.push(build_id),
            Err(error) => {
                notes.push(Note::at(start, format!("a build-id is damaged and left out: {}", error.message)));
                break;
            }
        }
        area.align_to(8);
    }
    build_ids.retain(|build_id| !build_id.is_empty());
    Ok(build_ids)
}
