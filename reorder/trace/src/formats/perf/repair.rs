//! The records of a `perf.data` file, one after the other: which of them are whole, and what lies between them.

use super::container::are_event_descriptions;
use crate::Note;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::Result;

/// A stretch of the data that is kept.
pub(super) enum Stretch<'data> {
    /// Whole records.
    Records(&'data [u8]),
    /// A part of the compressed stream.
    Compressed(&'data [u8]),
}

const RECORD_HEADER: u64 = 8;
/// Numbers of records whose size does not say all, or that must not be believed.
const TRACING_DATA: u32 = 66;
const AUXTRACE: u32 = 71;
const FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED_ALIGNED: u32 = 83;

/// Splits `data`, which lies at `base` of the file, up to the first record that is not whole.
pub(super) fn walk<'data>(
    data: &'data [u8],
    base: u64,
    order: ByteOrder,
    notes: &mut Vec<Note>,
) -> Vec<Stretch<'data>> {
    let mut stretches = Vec::new();
    let mut cursor = Cursor::part(data, order, base);
    let mut start = 0;
    let position = |cursor: &Cursor<'_>| data.len() - cursor.remaining();
    while !cursor.is_at_end() {
        let at = cursor.offset();
        let here = position(&cursor);
        let record = match read_record(&mut cursor, order) {
            Ok(record) => record,
            Err(error) => {
                let left = data.len() - here;
                notes.push(
                    Note::at(
                        at,
                        format!("the recording breaks off: {}; {left} bytes are left out", error.message),
                    )
                    .with_hint("let perf end by itself before the file is copied"),
                );
                push(&mut stretches, &data[start..here]);
                return stretches;
            }
        };
        match record {
            Record::Whole => continue,
            Record::LeftOut => {}
            Record::Compressed(part) => {
                push(&mut stretches, &data[start..here]);
                stretches.push(Stretch::Compressed(part));
                start = position(&cursor);
                continue;
            }
        }
        push(&mut stretches, &data[start..here]);
        start = position(&cursor);
    }
    push(&mut stretches, &data[start..]);
    stretches
}

fn push<'data>(stretches: &mut Vec<Stretch<'data>>, records: &'data [u8]) {
    if !records.is_empty() {
        stretches.push(Stretch::Records(records));
    }
}

enum Record<'data> {
    Whole,
    /// Of no use here, together with what follows it outside of its size.
    LeftOut,
    Compressed(&'data [u8]),
}

fn read_record<'data>(cursor: &mut Cursor<'data>, order: ByteOrder) -> Result<Record<'data>> {
    let kind = cursor.u32()?;
    let _misc = cursor.u16()?;
    let at = cursor.offset();
    let size = u64::from(cursor.u16()?);
    let body = size.checked_sub(RECORD_HEADER).ok_or_else(|| {
        reorder_base::error::Error::malformed(
            at,
            format!("a record of {size} bytes is smaller than its header"),
        )
    })?;
    let body = cursor.take(body)?;
    let mut fields = Cursor::part(body, order, at + 2);
    Ok(match kind {
        AUXTRACE => {
            let payload = fields.u64()?;
            cursor.skip(payload)?;
            Record::LeftOut
        }
        TRACING_DATA => {
            let payload = u64::from(fields.u32()?).next_multiple_of(8);
            cursor.skip(payload)?;
            Record::LeftOut
        }
        FEATURE => {
            const EVENT_DESCRIPTIONS: u64 = 12;
            let number = fields.u64()?;
            let is_sound = number != EVENT_DESCRIPTIONS || are_event_descriptions(fields.rest(), order);
            if is_sound { Record::Whole } else { Record::LeftOut }
        }
        COMPRESSED => Record::Compressed(body),
        COMPRESSED_ALIGNED => {
            let size = fields.u64()?;
            Record::Compressed(fields.take(size)?)
        }
        _ => Record::Whole,
    })
}

/// Appends the kept records to `kept`, compressed ones after all others: their parts are one stream, in which a record
/// may reach from one part into the next, and the records between the parts are marks of rounds.
pub(super) fn expand(stretches: &[Stretch<'_>], order: ByteOrder, kept: &mut Vec<u8>, notes: &mut Vec<Note>) {
    let mut inflater = Inflater::default();
    for stretch in stretches {
        match stretch {
            Stretch::Records(records) => kept.extend_from_slice(records),
            Stretch::Compressed(part) => inflater.add(part),
        }
    }
    let inflated = inflater.finish(notes);
    for stretch in walk(&inflated, 0, order, notes) {
        if let Stretch::Records(records) = stretch {
            kept.extend_from_slice(records);
        }
    }
}

/// Inflates the stream of compressed records.
#[derive(Default)]
struct Inflater {
    stream: Vec<u8>,
}

impl Inflater {
    fn add(&mut self, part: &[u8]) {
        self.stream.extend_from_slice(part);
    }

    /// What comes out, up to the first damage.
    fn finish(self, notes: &mut Vec<Note>) -> Vec<u8> {
        /// As much as zlib could make of its input; zstd would make forty times more of a hostile one.
        const MAX_RATIO: usize = 1000;
        let mut inflated = Vec::new();
        if self.stream.is_empty() {
            return inflated;
        }
        let largest = self.stream.len().saturating_mul(MAX_RATIO);
        let mut context = zstd_safe::DCtx::create();
        let mut input = zstd_safe::InBuffer::around(&self.stream);
        let mut buffer = vec![0u8; 128 << 10];
        loop {
            let mut output = zstd_safe::OutBuffer::around(buffer.as_mut_slice());
            if let Err(code) = context.decompress_stream(&mut output, &mut input) {
                let reason = zstd_safe::get_error_name(code);
                notes.push(Note::new(format!(
                    "compressed records are damaged ({reason}); those before are kept"
                )));
                break;
            }
            let written = output.pos();
            inflated.extend_from_slice(output.as_slice());
            let is_drained = written < buffer.len() && input.pos() == self.stream.len();
            if inflated.len() > largest {
                notes.push(Note::new(format!(
                    "compressed records inflate to more than {largest} bytes: the rest is left out"
                )));
                break;
            }
            if is_drained {
                break;
            }
        }
        inflated
    }
}
