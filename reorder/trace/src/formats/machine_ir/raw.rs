//! The raw profile: what one run wrote, a copy of the program's section.
//!
//! The linker decides where each function's record lies; only the map shows it. In call-graph mode a record is the number
//! of calls and the time of the first, a counter of the process, all bits set in functions that never ran; in
//! coverage mode it is a byte, 0 if the function ran. Bytes for blocks follow.

use std::collections::HashMap;

use super::header::{Header, MAGIC, Mode};
use super::map::{self, Map};
use crate::cursor::{ByteOrder, Cursor};
use crate::{Event, Evidence, Input, Location, Name, Note, Reading, Trace};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// What an untouched field holds.
const NEVER: u32 = u32::MAX;

/// One function that ran.
struct Ran<'data> {
    /// When it ran first, and how often; not in coverage mode.
    call: Option<(u32, u32)>,
    position: u64,
    name: &'data [u8],
}

pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let files = map::files(input);
    let maps: Vec<Map<'_>> = files.iter().filter_map(|bytes| map::read(bytes)).collect();
    let mut notes = Vec::new();
    let mut ran = Vec::new();
    let mut unmapped = Vec::new();
    let mut repeated = 0u64;
    let mut by_module = HashMap::new();
    for map in &maps {
        by_module.entry(map.module).or_insert((map, false));
    }
    for (at, unit) in units(input.bytes) {
        let header = Header::read(unit, at)?;
        match by_module.get_mut(&header.module) {
            // Each would have all functions of the map again.
            Some((_, true)) => repeated += 1,
            Some((map, is_read)) => {
                *is_read = true;
                notes.extend(map.damage.as_ref().map(|error| damaged_map(error, map)));
                notes.extend(read_unit(unit, at, header, map, &mut ran));
            }
            None => unmapped.push(header.module),
        }
    }
    if repeated > 0 {
        notes.push(Note::new(format!("{repeated} parts repeat a link unit and were left out")));
    }
    if let Some(module) = unmapped.first() {
        let what = if maps.is_empty() { "no map is given" } else { "none of the maps is of its program" };
        let error = Error::malformed(
            MODULE_FIELD,
            format!("functions have no names: {what} (module {module:#010x})"),
        );
        let error = error.with_hint(Hint::companion(
            "llvm-objcopy --dump-section=__llvm_mipmap=PROGRAM.mipmap PROGRAM, and give that file",
            "PROGRAM.mipmap",
        ));
        if unmapped.len() == units(input.bytes).count() {
            return Err(error);
        }
        notes.push(error.into());
    }
    Ok(Reading { traces: vec![trace(ran, &mut notes)], notes })
}

/// Where the header has the number of the module.
const MODULE_FIELD: u64 = 12;

fn damaged_map(error: &Error, map: &Map<'_>) -> Note {
    Note::new(format!("the map is damaged: {error}; its first {} functions are known", map.entries.len()))
}

/// The parts of the file, one for each link unit, with their offsets; the first one at the start.
fn units(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let is_start = |at: &usize| {
        let part = bytes.get(*at..).unwrap_or_default();
        *at == 0 || part.starts_with(&MAGIC) && Header::read(part, 0).is_ok()
    };
    let starts: Vec<usize> = (0..bytes.len()).step_by(4).filter(is_start).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([bytes.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| (start as u64, bytes.get(start..end).unwrap_or_default()))
}

/// Adds the functions of a unit that ran; what is outside of it is counted.
fn read_unit<'data>(
    unit: &[u8],
    at: u64,
    header: Header,
    map: &Map<'data>,
    ran: &mut Vec<Ran<'data>>,
) -> Vec<Note> {
    let (mut outside, mut nameless) = (0u64, 0u64);
    for entry in &map.entries {
        let position =
            u64::try_from(entry.position).ok().filter(|position| *position >= header.length as u64);
        let record = position.and_then(|position| {
            let part = unit.get(usize::try_from(position).ok()?..)?;
            let record =
                record(&mut Cursor::part(part, ByteOrder::Little, at + position), header.mode).ok()?;
            Some((position, record))
        });
        match record {
            None => outside += 1,
            Some((_, Some(_))) if entry.name.is_empty() => nameless += 1,
            Some((position, Some(call))) => ran.push(Ran { call, position: at + position, name: entry.name }),
            Some((_, None)) => {}
        }
    }
    let mut notes = Vec::new();
    if outside > 0 {
        notes.push(Note::at(at, format!("{outside} of {} functions of the map lie outside of the profile: it was cut, or the map is of another build", map.entries.len())));
    }
    if nameless > 0 {
        notes.push(Note::at(
            at,
            format!("{nameless} functions that ran have no name in the map and were left out"),
        ));
    }
    notes
}

/// `None` when the function never ran; `Some(None)` when it ran at an unknown time.
#[allow(clippy::option_option)] // whether it ran, and whether there is a time
fn record(cursor: &mut Cursor<'_>, mode: Mode) -> Result<Option<Option<(u32, u32)>>> {
    Ok(match mode {
        Mode::Coverage => (cursor.u8()? == 0).then_some(None),
        Mode::CallGraph => {
            let (calls, time) = (cursor.u32()?, cursor.u32()?);
            (time != NEVER).then_some(Some((time, calls)))
        }
    })
}

fn trace(mut ran: Vec<Ran<'_>>, notes: &mut Vec<Note>) -> Trace {
    ran.sort_by_key(|function| (function.call.map(|(time, _)| time), function.position));
    let event = |function: &Ran<'_>| Event {
        tick: function.call.map(|(time, _)| time.into()),
        count: function.call.map(|(_, calls)| calls.into()),
        ..Event::at(Location::Name(Name::from(function.name)))
    };
    let events = ran.iter().map(event).collect();
    let mut evidence = Evidence::Exact;
    if ran.iter().any(|function| function.call.is_none()) {
        evidence = Evidence::Counts;
        notes.push(
            Note::new("this profile has no times: it says which functions ran and holds no order")
                .with_hint("build with -enable-machine-instrumentation -enable-machine-call-graph instead of -enable-machine-function-coverage"),
        );
    }
    Trace { weight: 1, evidence, events, ..Trace::default() }
}
