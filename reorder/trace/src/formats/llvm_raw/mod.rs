//! Raw profiles of LLVM's instrumentation (`.profraw`), with the times of first calls.
//!
//! In: what an instrumented program wrote at its end, versions 8 to 10, any byte order and pointer width, any number
//! of images and runs in one file. Out: one trace for each run and image.
//!
//! | part | what it does |
//! |---|---|
//! | `encoding` | magic, and fields of records |
//! | `header` | versions, flags and sizes |
//! | `profile` | the sections of one profile |
//! | `split` | profiles of a file, and which of them are one run |
//! | `functions` | counters to executed functions in order |
//! | `traces` | executed functions to events with names and addresses |
//! | `advice` | how to build programs whose profiles have an order |

pub(super) mod advice;
mod encoding;
mod functions;
mod header;
mod profile;
mod split;
mod traces;

#[cfg(test)]
mod tests;

use encoding::{Encoding, RecordLayout};

use super::super::cursor::ByteOrder;
use super::super::{Input, Note, Reading};
use reorder_base::error::Result;

/// Whether a profile starts here.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    Encoding::of_magic(bytes).is_some()
}

/// All profiles of a file.
///
/// # Errors
/// A file without any usable profile: the first reason why.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let split = split::split(input.bytes)?;
    let runs = split::runs(&split.profiles);
    let mut reading = Reading { traces: Vec::new(), notes: split.notes };
    let mut errors = Vec::new();
    for (profile, run) in split.profiles.iter().zip(runs) {
        match traces::trace(profile, run, input, &mut reading.notes) {
            Ok(trace) => reading.traces.push(trace),
            Err(error) => errors.push(error),
        }
    }
    if reading.traces.is_empty()
        && let Some(error) = errors.drain(..).next()
    {
        return Err(error);
    }
    reading.notes.extend(errors.into_iter().map(Note::from));
    if reading.traces.iter().all(|trace| trace.events.is_empty()) {
        reading.notes.push(Note::new("no instrumented function ran before the profile was written"));
    }
    Ok(reading)
}

/// What decides the layout of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordVersion {
    encoding: Encoding,
    version: u32,
}

impl RecordVersion {
    pub(super) fn layout(self) -> RecordLayout {
        RecordLayout::new(self.encoding, self.version)
    }

    pub(super) fn is_wide(self) -> bool {
        self.encoding.pointer_bytes == 8
    }

    pub(super) fn is_little_endian(self) -> bool {
        self.encoding.order == ByteOrder::Little
    }
}
