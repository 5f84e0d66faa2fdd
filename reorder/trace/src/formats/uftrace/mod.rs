//! Directories written by `uftrace record`.
//!
//! In: `info` (detection, byte order), `task.txt` (processes, threads and sessions), `sid-*.map` (the addresses of
//! each session's images), `*.sym` (symbols by image), `TID.dat` (the calls of each thread); uftrace's `utils/data-file.c`
//! and `libmcount/record.c`. Out: one trace for each image of each session of each process. A session lasts from one
//! `exec` to the next; a forked child belongs to its parent's session.

mod calls;
mod images;
mod tasks;

use std::collections::HashMap;
use std::path::Path;

use self::calls::{Call, Calls};
use self::images::{Image, Images};
use self::tasks::Tasks;
use super::image_traces::ImageTraces;
use crate::cursor::{ByteOrder, Cursor};
use crate::{Event, Input, Location, Note, Reading, Trace};
use reorder_base::address::RuntimeAddress;
use reorder_base::error::{Error, Result};

const COMMAND: &str = "gcc -pg (or gcc -fpatchable-function-entry=5, recorded with -P .), then uftrace record \
                       PROGRAM ARGUMENTS";

/// Whether this is the file `info` of such a directory.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    bytes.starts_with(b"Ftrace!\0")
}

/// Whether uftrace writes files of this name next to `info`.
pub(super) fn is_part(path: &Path) -> bool {
    let name = path.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
    let of_thread = |stem: &[u8]| {
        stem.iter().all(u8::is_ascii_digit)
            || stem.starts_with(b"perf-cpu")
            || stem.starts_with(b"kernel-cpu")
    };
    name.strip_suffix(b".dat").is_some_and(of_thread)
        || name.starts_with(b"sid-") && name.ends_with(b".map")
        || [&b".sym"[..], b".dbg"].iter().any(|ending| name.ends_with(ending))
        || [&b"task.txt"[..], b"events.txt", b"extern.dat", b"default.opts", b"kernel_header", b"kallsyms"]
            .contains(&name)
}

/// The traces of the whole directory.
///
/// # Errors
/// No thread has a call.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let directory = input.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let order = byte_order(input.bytes)?;
    let mut notes = Vec::new();
    let tasks = Tasks::read(directory, &mut notes);
    let calls = Calls::read(directory, order, &tasks, &mut notes)?;
    if calls.is_empty() {
        return Err(Error::malformed(0, "no thread of the recording has a call").with_hint(COMMAND));
    }
    let images = Images::read(directory, &tasks, input.companions, &mut notes);
    Ok(Reading { traces: traces(&calls, &tasks, &images, &mut notes), notes })
}

/// The byte after magic, version and size of the header.
fn byte_order(info: &[u8]) -> Result<ByteOrder> {
    let mut cursor = Cursor::new(info, ByteOrder::Little);
    cursor.skip(14)?;
    match cursor.u8()? {
        1 => Ok(ByteOrder::Little),
        2 => Ok(ByteOrder::Big),
        other => Err(Error::malformed(14, format!("an unknown byte order {other}"))),
    }
}

fn traces(calls: &[Call], tasks: &Tasks, images: &Images, notes: &mut Vec<Note>) -> Vec<Trace> {
    let mut traces = ImageTraces::new();
    let (mut stubs, mut outside) = (0u64, 0u64);
    for call in calls {
        let Some(image) = images.containing(call) else {
            outside += 1;
            continue;
        };
        let Some(event) = event(call, image) else {
            stubs += 1;
            continue;
        };
        let started = call.session.and_then(|session| tasks.sessions.get(session));
        let since = started.and_then(|session| call.time.checked_sub(session.time));
        let start = || Trace {
            image: image.identity.clone(),
            process: Some(call.process),
            command: started.map(|session| session.program.clone()).into_iter().collect(),
            weight: 1,
            ..Trace::default()
        };
        let key = (call.process, call.session, image.identity.path.clone());
        traces.add(key, start, Event { nanoseconds: since, ..event });
    }
    let all = calls.len();
    if stubs > 0 {
        notes.push(Note::new(format!(
            "{stubs} of {all} functions are stubs of calls into libraries that are not instrumented; left out"
        )));
    }
    if outside > 0 {
        notes
            .push(Note::new(format!("{outside} of {all} functions lie in no known image and were left out")));
    }
    let mut runs: HashMap<_, u32> = HashMap::new();
    let mut traces = traces.finish();
    // A process that executed the same program again has two traces of one image.
    for trace in &mut traces {
        let run = runs.entry((trace.process, trace.image.path.clone())).or_default();
        *run += 1;
        trace.run = *run;
    }
    traces
}

/// `None` for stubs.
fn event(call: &Call, image: &Image) -> Option<Event> {
    let location = match image.symbol_of(RuntimeAddress(call.address)) {
        Some(symbol) if symbol.is_stub => return None,
        Some(symbol) => {
            let name = (!super::image_traces::is_demangled(&symbol.name)).then(|| symbol.name.clone());
            return Some(Event {
                name,
                tick: Some(call.time),
                count: Some(call.count),
                ..Event::at(Location::Image(image.stated(symbol.address)))
            });
        }
        None => Location::Inside(image.stated(image.relative(RuntimeAddress(call.address)))),
    };
    Some(Event { tick: Some(call.time), count: Some(call.count), ..Event::at(location) })
}
