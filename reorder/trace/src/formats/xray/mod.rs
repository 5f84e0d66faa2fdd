//! XRay's logs of calls.
//!
//! In: logs of the basic and of the flight-data-recorder (FDR) mode, and the instrumented program as a companion:
//! logs know functions by number, and only the program's `xray_instr_map` says which number is which function. Out:
//! one trace for each object of each process. [`coverage`] reads the lists of programs that remove their own sleds at the
//! first call.

mod basic;
pub(super) mod coverage;
mod fdr;
mod header;
mod map;
mod objects;
mod records;

use self::header::{Header, Mode};
use self::objects::Objects;
use self::records::Records;
use super::image_traces::ImageTraces;
use crate::{Event, Input, Note, Reading, Trace};
use reorder_base::error::{Error, Result};

/// Whether it can be a log. There is no signature, so both the header and the first record must be valid.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    let Some(header) = Header::parse(bytes) else { return false };
    // Without a record only the header identifies the log.
    if bytes.len() <= header::LENGTH && !header.has_frequency() {
        return false;
    }
    match header.mode {
        Mode::Basic => basic::accepts(&header, bytes),
        Mode::FlightRecorder => fdr::accepts(bytes),
    }
}

/// The trace of each object of each process.
///
/// # Errors
/// The log has no call, or no companion is one of its objects.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let Some(header) = Header::parse(input.bytes) else {
        return Err(Error::malformed(0, "no header of an XRay log"));
    };
    let mut records = Records::default();
    match header.mode {
        Mode::Basic => basic::read(&header, input.bytes, &mut records),
        Mode::FlightRecorder => fdr::read(&header, input.bytes, &mut records)?,
    }
    let mut notes = std::mem::take(&mut records.notes);
    let entries = records.first_entries(&header, &mut notes);
    if entries.is_empty() {
        return Err(Error::malformed(input.bytes.len() as u64, "the log has no function's entry").with_hint(
            match header.mode {
                Mode::Basic => basic::COMMAND,
                Mode::FlightRecorder => fdr::COMMAND,
            },
        ));
    }
    let objects = Objects::find(&entries, input.companions, &mut notes)?;
    let mut traces = ImageTraces::new();
    let mut unknown = 0u64;
    for entry in &entries {
        let Some(image) = objects.get(entry.object) else { continue };
        let Some((location, name)) = image.function(entry.function) else {
            unknown += 1;
            continue;
        };
        let start =
            || Trace { image: image.identity(), process: entry.process, weight: 1, ..Trace::default() };
        let event = Event {
            name,
            tick: Some(entry.tick),
            nanoseconds: entry.nanoseconds,
            count: Some(entry.calls),
            ..Event::at(location)
        };
        traces.add((entry.process, entry.object), start, event);
    }
    if unknown > 0 {
        notes.push(Note::new(format!(
            "{unknown} functions have numbers that their map does not have; left out"
        )));
    }
    Ok(Reading { traces: traces.finish(), notes })
}

#[cfg(test)]
mod tests;
