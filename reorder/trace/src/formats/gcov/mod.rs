//! GCC's instrumentation (`-fprofile-generate`): the order of first executions in `.gcda` files.
//!
//! In: one `.gcda` for each object file of the program, and its `.gcno` for the names. Out: the functions that ran, by
//! rank; [`join`] makes one trace of all files of a run. Without names a function is its profile id. Files of
//! `--coverage` have no ranks and give counts.
//!
//! The format (`gcov-io.h`): words in the byte order of the processor that writes. A second run in the same place adds its
//! counters to the file and keeps the smaller rank of each function: one order with ties, in which single runs can no longer be seen.
//! `GCOV_PREFIX` gives each run a place of its own.

mod data;
mod header;
mod join;
mod notes;
mod profile_id;

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::{Event, Evidence, Input, Location, NameHash, Note, Reading, Trace};
use data::{Data, Function};
use header::Kind;
use notes::Found;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

pub(super) use join::join;
pub use profile_id::gcc_profile_id;

/// Whether it starts as `.gcda` files do, and not as AutoFDO's files for GCC.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    header::recognise(bytes, Kind::Data).is_some()
}

/// One object file's functions in order of first execution.
///
/// # Errors
/// Versions before GCC 5, and files without a complete function.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let (header, mut cursor) = header::read(input.bytes, Kind::Data)?;
    let mut data = data::read(header, &mut cursor);
    let damage = data.damage.take();
    let is_whole = damage.is_none();
    let mut notes: Vec<Note> = match damage {
        Some(error) if data.functions.is_empty() => return Err(error),
        Some(error) => vec![error.into()],
        None => Vec::new(),
    };
    let names = match notes::find(input, header) {
        Found::Names(names) => names,
        Found::Other(path) => {
            notes.push(other_notes(&path));
            notes::Names::default()
        }
        Found::Nothing => notes::Names::default(),
    };
    let location = |function: &Function| match names.get(function.id, function.checksum) {
        Some(name) => Location::Name(name.clone()),
        None => Location::NameHash(NameHash::GccProfileId(function.id)),
    };
    let trace = if data.functions.iter().any(|function| function.rank.is_some()) {
        notes.extend(blended(&data));
        ranked(&data, location)
    } else {
        let note = no_ranks(&data)?;
        // In a file that was cut the first ranks may have been after the cut.
        notes.extend(is_whole.then_some(note));
        counted(&data, location)
    };
    notes.extend(without_names(nameless(&trace), &beside(input.path)));
    Ok(Reading { traces: vec![trace], notes })
}

fn ranked(data: &Data, location: impl Fn(&Function) -> Location) -> Trace {
    let mut functions: Vec<(u64, &Function)> = data
        .functions
        .iter()
        .filter_map(|function| Some((function.rank.filter(|&rank| rank > 0)?, function)))
        .collect();
    functions.sort_by_key(|(rank, function)| (*rank, function.id));
    let event =
        |(rank, function): &(u64, &Function)| Event { tick: Some(*rank), ..Event::at(location(function)) };
    let evidence = if data.runs > 1 { Evidence::Blended } else { Evidence::Exact };
    Trace { weight: 1, evidence, events: functions.iter().map(event).collect(), ..Trace::default() }
}

fn counted(data: &Data, location: impl Fn(&Function) -> Location) -> Trace {
    let mut functions: Vec<&Function> =
        data.functions.iter().filter(|function| function.greatest > 0).collect();
    functions.sort_by_key(|function| (std::cmp::Reverse(function.greatest), function.id));
    let event =
        |function: &&Function| Event { count: Some(function.greatest), ..Event::at(location(function)) };
    let events = functions.iter().map(event).collect();
    Trace { weight: 1, evidence: Evidence::Counts, events, ..Trace::default() }
}

fn blended(data: &Data) -> Option<Note> {
    (data.runs > 1).then(|| {
        Note::new(format!(
            "{} runs or processes were added up in this file: each function has its smallest rank, and no run's own order is left",
            data.runs
        ))
        .with_hint("give each run a directory of its own, GCOV_PREFIX=runs/1 PROGRAM, GCOV_PREFIX=runs/2 PROGRAM and so on, and then the directory `runs`")
    })
}

fn no_ranks(data: &Data) -> Result<Note> {
    if data.functions.is_empty() {
        return Err(
            Error::malformed(0, "no function of this object file was instrumented").with_hint(REBUILD)
        );
    }
    Ok(Note::new("this profile has no ranks: it counts how often arcs were taken and holds no order; counts are those of each function's most frequent arc").with_hint(REBUILD))
}

const REBUILD: &str = "rebuild with gcc -fprofile-generate instead of --coverage or -fprofile-arcs, for names also with -ftest-coverage, and run again; clang writes no order into .gcda files: -fprofile-generate -ftemporal-profile";

/// How many functions are known by their hashes alone.
fn nameless(trace: &Trace) -> usize {
    trace.events.iter().filter(|event| event.symbol().is_none()).count()
}

/// What the compiler calls the file with the names of the functions in the data at `path`.
fn beside(path: &Path) -> String {
    path.with_extension("gcno").file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn without_names(count: usize, file: &str) -> Option<Note> {
    (count > 0).then(|| {
        Note::new(format!("the names of {count} functions are not known, only their hashes; local functions may not be found by them"))
            .with_hint(Hint::companion("build with -ftest-coverage too, and give the file that it makes", file))
    })
}

fn other_notes(path: &Path) -> Note {
    Note::new(format!("{} belongs to another compilation", path.display()))
        .with_hint(Hint::companion("give the .gcno file of the build that wrote the .gcda", "FILE"))
}
