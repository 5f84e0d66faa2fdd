//! The frame of a `perf.data` file, checked before the library that reads it sees it.
//!
//! ```text
//! "PERFILE2" (reversed: big endian), u64 104, u64 size of an attribute,
//! { u64 offset, u64 size } attributes, data, event types; 256 bits of features
//! ... records { u32 type, u16 misc, u16 size, body } ...        data
//! { u64 offset, u64 size } for each feature, right after the data
//!
//! "PERFILE2", u64 16, records                                    written to a pipe
//! ```
//!
//! `linux-perf-data` believes sizes: it divides by the size of an attribute, allocates what a feature or a trace of a
//! hardware unit claims, inflates without end, and adds offsets unchecked. What it is given has none of these: sections
//! lie inside the file, features that do not are taken out, records are whole, foreign payload is cut out and
//! compressed records are inflated within a bound.

use std::borrow::Cow;

use super::repair::{Stretch, expand, walk};
use crate::Note;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// A file that the library can read.
pub(super) struct Container<'data> {
    pub(super) bytes: Cow<'data, [u8]>,
    pub(super) is_pipe: bool,
    pub(super) notes: Vec<Note>,
}

pub(super) const HEADER: u64 = 104;
const PIPE_HEADER: u64 = 16;
/// Numbers of features, with their sections after the data in this order.
const EVENT_DESCRIPTIONS: u32 = 12;
/// What is used of a file; all other features are taken out unread.
const USED: [u32; 4] = [2, EVENT_DESCRIPTIONS, 129, 132];
/// An attribute of the oldest kernels, and where its events' numbers are.
const MIN_ATTRIBUTE: u64 = 64;
const SECTION: u64 = 16;

pub(super) fn byte_order(bytes: &[u8]) -> Option<ByteOrder> {
    match bytes.first_chunk()? {
        b"PERFILE2" => Some(ByteOrder::Little),
        b"2ELIFREP" => Some(ByteOrder::Big),
        _ => None,
    }
}

/// Checks `bytes` and takes out what is damaged.
///
/// # Errors
/// Without attributes, the file's records have no meaning.
pub(super) fn prepare(bytes: &[u8]) -> Result<Container<'_>> {
    let order = byte_order(bytes).ok_or_else(|| Error::malformed(0, "no perf.data file"))?;
    let mut cursor = Cursor::new(bytes, order);
    cursor.skip(8)?;
    if cursor.u64()? == PIPE_HEADER { prepare_pipe(bytes, order) } else { prepare_file(bytes, order, cursor) }
}

fn prepare_pipe(bytes: &[u8], order: ByteOrder) -> Result<Container<'_>> {
    let mut notes = Vec::new();
    let records = bytes.get(PIPE_HEADER as usize..).unwrap_or_default();
    let stretches = walk(records, PIPE_HEADER, order, &mut notes);
    let kept = match stretches.as_slice() {
        [Stretch::Records(all)] if all.len() == records.len() => Cow::Borrowed(bytes),
        _ => {
            let mut kept = bytes[..PIPE_HEADER as usize].to_vec();
            expand(&stretches, order, &mut kept, &mut notes);
            Cow::Owned(kept)
        }
    };
    Ok(Container { bytes: kept, is_pipe: true, notes })
}

struct Header {
    attribute_size: u64,
    attributes: (u64, u64),
    data: (u64, u64),
    features: [u64; 4],
}

fn prepare_file<'data>(
    bytes: &'data [u8],
    order: ByteOrder,
    mut cursor: Cursor<'data>,
) -> Result<Container<'data>> {
    let length = bytes.len() as u64;
    let attribute_size = cursor.u64()?;
    let mut section = || -> Result<(u64, u64)> { Ok((cursor.u64()?, cursor.u64()?)) };
    let (attributes, mut data, _event_types) = (section()?, section()?, section()?);
    let mut features = [0; 4];
    for word in &mut features {
        *word = cursor.u64()?;
    }
    check_attributes(attribute_size, attributes, length)?;
    let mut notes = Vec::new();
    if data.0 > length || data.0 < HEADER {
        return Err(Error::malformed(40, format!("the data should start at {:#x} of {length:#x}", data.0)));
    }
    let available = length - data.0;
    if data.1 == 0 || data.1 > available {
        // perf writes the size last, so a killed one leaves zero.
        notes.push(
            Note::at(
                data.0,
                "the recording was not finished; its complete records are read, build-ids are missing",
            )
            .with_hint("stop perf by an interrupt (Ctrl-C), not by a kill, and record again"),
        );
        data.1 = available;
        features = [0; 4];
    }
    let header = Header { attribute_size, attributes, data, features };
    rebuild(bytes, order, &header, notes)
}

fn check_attributes(size: u64, (offset, total): (u64, u64), length: u64) -> Result<()> {
    const AT: u64 = 16;
    let fits = offset.checked_add(total).is_some_and(|end| end <= length);
    if size < MIN_ATTRIBUTE + SECTION || total < size || total % size != 0 || !fits {
        let message = format!("attributes of {size} bytes in {total} bytes at {offset:#x} describe no event");
        return Err(
            Error::malformed(AT, message).with_hint("record again: perf record -o perf.data -- PROGRAM")
        );
    }
    Ok(())
}

/// A new file of the parts that are used: header, attributes, whole records, features.
fn rebuild<'data>(
    bytes: &'data [u8],
    order: ByteOrder,
    header: &Header,
    mut notes: Vec<Note>,
) -> Result<Container<'data>> {
    let part = |(offset, size): (u64, u64)| -> &'data [u8] {
        let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
        range.and_then(|(offset, size)| bytes.get(offset..)?.get(..size)).unwrap_or_default()
    };
    let features = used_features(part, order, header, &mut notes)?;
    let records = part(header.data);
    let stretches = walk(records, header.data.0, order, &mut notes);

    let mut attributes = part(header.attributes).to_vec();
    let is_simpleperf = features.iter().any(|(number, _)| *number == 129);
    forget_event_numbers(&mut attributes, header, is_simpleperf);
    let data_start = HEADER + attributes.len() as u64;
    let mut data = Vec::new();
    expand(&stretches, order, &mut data, &mut notes);

    let mut writer = Writer { bytes: bytes[..8].to_vec(), order };
    writer.numbers(&[HEADER, header.attribute_size, HEADER, attributes.len() as u64]);
    writer.numbers(&[data_start, data.len() as u64, 0, 0]);
    let mut bits = [0u64; 4];
    for (number, _) in &features {
        bits[*number as usize / 64] |= 1 << (number % 64);
    }
    writer.numbers(&bits);
    writer.bytes.extend_from_slice(&attributes);
    writer.bytes.extend_from_slice(&data);
    let mut offset = data_start + data.len() as u64 + SECTION * features.len() as u64;
    for (_, contents) in &features {
        writer.numbers(&[offset, contents.len() as u64]);
        offset += contents.len() as u64;
    }
    for (_, contents) in &features {
        writer.bytes.extend_from_slice(contents);
    }
    Ok(Container { bytes: Cow::Owned(writer.bytes), is_pipe: false, notes })
}

/// Simpleperf's attributes end in offsets of lists of numbers. The library reads them for that tool alone, which
/// describes its events by position as well; all attributes then have no numbers.
fn forget_event_numbers(attributes: &mut [u8], header: &Header, is_simpleperf: bool) {
    if is_simpleperf {
        let size = usize::try_from(header.attribute_size).unwrap_or(usize::MAX);
        for attribute in attributes.chunks_mut(size) {
            let list = attribute.len().saturating_sub(SECTION as usize);
            attribute[list..].fill(0);
        }
    }
}

/// Numbers and contents of the features that are used and sound.
fn used_features<'data>(
    part: impl Fn((u64, u64)) -> &'data [u8],
    order: ByteOrder,
    header: &Header,
    notes: &mut Vec<Note>,
) -> Result<Vec<(u32, &'data [u8])>> {
    let numbers =
        (0..256u32).filter(|number| header.features[*number as usize / 64] >> (number % 64) & 1 == 1);
    let mut table_at = header.data.0 + header.data.1;
    let mut features = Vec::new();
    for number in numbers {
        let entry = part((table_at, SECTION));
        let mut cursor = Cursor::part(entry, order, table_at);
        let place = (|| Ok::<_, Error>((cursor.u64()?, cursor.u64()?)))();
        let contents = place.as_ref().map_or(&[][..], |place| part(*place));
        let is_sound = place.is_ok_and(|(_, size)| size == contents.len() as u64)
            && (number != EVENT_DESCRIPTIONS || are_event_descriptions(contents, order));
        if USED.contains(&number) && is_sound {
            features.push((number, contents));
        } else if USED.contains(&number) {
            notes.push(Note::at(
                table_at.min(header.data.0 + header.data.1),
                format!("feature {number} of the recording is damaged and was left out"),
            ));
        }
        table_at = table_at.saturating_add(SECTION);
    }
    Ok(features)
}

/// `u32 n, u32 size, n x { attribute, u32 numbers, u32 length, name, numbers x u64 }`, all of it inside.
pub(super) fn are_event_descriptions(contents: &[u8], order: ByteOrder) -> bool {
    let mut cursor = Cursor::new(contents, order);
    let mut check = || -> Result<bool> {
        let (count, size) = (cursor.u32()?, cursor.u32()?);
        for _ in 0..count {
            cursor.skip(u64::from(size))?;
            let numbers = cursor.u32()?;
            let length = cursor.u32()?;
            cursor.skip(u64::from(length))?;
            cursor.take_array(u64::from(numbers), 8)?;
        }
        Ok(count > 0 && u64::from(size) >= MIN_ATTRIBUTE)
    };
    check().unwrap_or(false)
}

struct Writer {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Writer {
    fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.bytes.extend_from_slice(&match self.order {
                ByteOrder::Little => number.to_le_bytes(),
                ByteOrder::Big => number.to_be_bytes(),
            });
        }
    }
}
