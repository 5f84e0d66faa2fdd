//! Logs of the flight-data-recorder mode (`xray_fdr_log_writer.h`): buffers of records.
//!
//! A record whose first byte is even is a call of 8 bytes. If the first byte is odd, the record has 16 bytes and the upper
//! bits of that byte are its kind. The clock of a call is the distance from the record before it; a buffer begins with an
//! absolute one. From version 3 on, a buffer begins with its size in bytes. Before, all buffers have the size stated in the
//! header and end with a mark; bytes after the mark are meaningless.

use super::header::{Header, LENGTH};
use super::records::{Record, Records, is_entry};
use crate::Note;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

pub(super) const COMMAND: &str = "clang -fxray-instrument -fxray-instruction-threshold=1 …, mode xray-fdr with \
     func_duration_threshold_us=0, and __xray_log_finalize() and __xray_log_flushLog() before the program ends";

const METADATA: u64 = 16;

mod kind {
    pub(super) const NEW_BUFFER: u8 = 0;
    pub(super) const END_OF_BUFFER: u8 = 1;
    pub(super) const NEW_CPU: u8 = 2;
    pub(super) const TSC_WRAP: u8 = 3;
    pub(super) const WALL_CLOCK: u8 = 4;
    pub(super) const CUSTOM_EVENT: u8 = 5;
    pub(super) const CALL_ARGUMENT: u8 = 6;
    pub(super) const BUFFER_EXTENTS: u8 = 7;
    pub(super) const TYPED_EVENT: u8 = 8;
    pub(super) const PROCESS: u8 = 9;
}

/// Whether the first record is one that begins a buffer.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    bytes.get(LENGTH).is_none_or(|&first| {
        first & 1 == 1 && [kind::BUFFER_EXTENTS, kind::NEW_BUFFER].contains(&(first >> 1))
    })
}

/// Adds the calls of all buffers. Reading of a buffer ends at the first damaged record, and that of the log where it is cut.
///
/// # Errors
/// Logs of big-endian processors, whose bit fields are laid out differently.
pub(super) fn read(header: &Header, bytes: &[u8], records: &mut Records) -> Result<()> {
    if header.order == ByteOrder::Big {
        return Err(Error::malformed(0, "FDR logs of big-endian processors cannot be read")
            .with_hint("use the basic mode: xray_mode=xray-basic"));
    }
    let body = bytes.get(LENGTH..).unwrap_or_default();
    let mut reader = Reader {
        cursor: Cursor::part(body, header.order, LENGTH as u64),
        header: *header,
        process: None,
        thread: 0,
        clock: None,
        buffer_end: None,
        timeless: 0,
    };
    let (mut first_damage, mut damages) = (None, 0u64);
    while !reader.cursor.is_at_end() {
        let start = reader.cursor.offset();
        if let Err(error) = reader.record(records) {
            damages += 1;
            first_damage.get_or_insert((start, error));
            if !(reader.skip_buffer() && reader.cursor.offset() > start) {
                break;
            }
        }
    }
    if let Some((offset, error)) = first_damage {
        let more = if damages > 1 {
            format!(", and {} more buffers are damaged", damages - 1)
        } else {
            String::new()
        };
        records.notes.push(
            Note::at(
                offset,
                format!("{}{more}; the records before it in the buffer were kept", error.message),
            )
            .with_hint(
                "the log may be cut: call __xray_log_finalize() and __xray_log_flushLog(), and let the \
                            program end by itself",
            ),
        );
    }
    if reader.timeless > 0 {
        let timeless = reader.timeless;
        records.notes.push(Note::new(format!("{timeless} calls precede any clock and were left out")));
    }
    Ok(())
}

struct Reader<'data> {
    cursor: Cursor<'data>,
    header: Header,
    process: Option<u32>,
    thread: u32,
    clock: Option<u64>,
    /// Offset in the file of the buffer's end, if the buffer states it.
    buffer_end: Option<u64>,
    timeless: u64,
}

impl Reader<'_> {
    fn record(&mut self, records: &mut Records) -> Result<()> {
        let offset = self.cursor.offset();
        if self.buffer_end == Some(offset) {
            self.buffer_end = None;
        }
        match self.cursor.rest().first() {
            Some(first) if first & 1 == 1 => self.metadata(first >> 1),
            _ => self.call(offset, records),
        }
    }

    fn call(&mut self, offset: u64, records: &mut Records) -> Result<()> {
        let (word, delta) = (self.cursor.u32()?, self.cursor.u32()?);
        let (event, id) = ((word >> 1 & 7) as u8, word >> 4);
        let Some(is_entry) = is_entry(event).filter(|_| id != 0) else {
            return Err(Error::malformed(offset, "a call of no known kind"));
        };
        self.clock = self.clock.map(|clock| clock.wrapping_add(u64::from(delta)));
        match self.clock {
            Some(tick) => {
                let (process, thread) = (self.process, self.thread);
                records.push(Record { process, thread, id, is_entry, tick, offset });
            }
            None => self.timeless += 1,
        }
        Ok(())
    }

    fn metadata(&mut self, kind: u8) -> Result<()> {
        let start = self.cursor.offset();
        let record = self.cursor.take(METADATA)?;
        let mut body = Cursor::part(record, self.header.order, start);
        body.skip(1)?;
        match kind {
            kind::BUFFER_EXTENTS => {
                (self.buffer_end, self.clock) = (self.cursor.offset().checked_add(body.u64()?), None);
            }
            kind::NEW_BUFFER => (self.thread, self.clock) = (body.u32()?, None),
            kind::PROCESS => self.process = Some(body.u32()?),
            kind::NEW_CPU => {
                body.skip(2)?;
                self.clock = Some(body.u64()?);
            }
            kind::TSC_WRAP => self.clock = Some(body.u64()?),
            kind::CUSTOM_EVENT | kind::TYPED_EVENT => {
                let payload = body.u32()?;
                if kind == kind::TYPED_EVENT || self.header.version >= 5 {
                    // Signed: a thread may have moved to a processor whose clock is earlier.
                    let delta = i64::from(body.u32()?.cast_signed());
                    self.clock = self.clock.map(|clock| clock.wrapping_add_signed(delta));
                }
                self.cursor.skip(u64::from(payload))?;
            }
            // The last buffer may be cut after its mark: it is complete.
            kind::END_OF_BUFFER if !self.skip_buffer() => self.cursor.skip(self.cursor.remaining() as u64)?,
            kind::END_OF_BUFFER => {}
            kind::WALL_CLOCK | kind::CALL_ARGUMENT => {}
            _ => return Err(Error::malformed(start, format!("a record of unknown kind {kind}"))),
        }
        Ok(())
    }

    /// Advances to the next buffer; `false` if its offset is unknown or the file ends before it.
    fn skip_buffer(&mut self) -> bool {
        let here = self.cursor.offset();
        let fixed = || {
            let inside = here.checked_sub(LENGTH as u64)?;
            let size = Some(self.header.buffer_size).filter(|size| *size > 0)?;
            inside.checked_next_multiple_of(size)?.checked_add(LENGTH as u64)
        };
        let next = if self.header.version >= 3 { self.buffer_end } else { fixed() };
        self.buffer_end = None;
        let distance = next.and_then(|next| next.checked_sub(here));
        distance.is_some_and(|distance| self.cursor.skip(distance).is_ok())
    }
}
