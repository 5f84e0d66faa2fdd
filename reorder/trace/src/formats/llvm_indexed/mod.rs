//! LLVM's indexed profiles (`.profdata`), as `llvm-profdata merge` writes them.
//!
//! In: the file. Out: one exact trace for each run that was kept, with its weight; of profiles without traces, the
//! functions that ran with their counts. Functions are spelled as LLVM spells them: local ones as `file;name`, before
//! LLVM 18 `file:name`. One that has no record in the profile stays a hash.
//!
//! The layout (`InstrProf.h`, `InstrProfWriter.cpp`): a header, summaries, the functions' records as a hash table on
//! disk, the table's buckets, then sections that the header points to. All little endian; offsets count from
//! the start of the file. Versions 4 to 13 are read; traces exist since version 10 (LLVM 17).
//!
//! A profile states the build-ids of the instrumented images. They are left alone: the image to be laid out is another
//! build, and no trace says which of several images it belongs to.

mod counters;
mod header;
mod table;
mod traces;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::llvm_merged::{self, Counted};
use crate::{Event, Input, Location, Name, NameHash, Note, Reading, Trace};
use header::Header;
use reorder_base::error::{Error, Result};
use table::Record;
use traces::{StoredTrace, StoredTraces};

/// Whether the file starts as an indexed profile does; a big-endian raw profile differs in the seventh byte.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    bytes.starts_with(&header::MAGIC)
}

/// The traces of the profile, or the counts of one that has none.
///
/// # Errors
/// Versions that are not known, and files of which neither a trace nor a record can be read.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let header = Header::read(input.bytes)?;
    let stored = match header.traces {
        Some(offset) => traces::read(input.bytes, offset),
        None => StoredTraces::default(),
    };
    if stored.traces.iter().any(|trace| !trace.functions.is_empty()) {
        Ok(ordered(input.bytes, &header, stored))
    } else {
        counted(input.bytes, &header, stored)
    }
}

/// The functions of all traces, each in one place.
struct Traced<'data> {
    /// Places by hash.
    places: HashMap<u64, u32>,
    /// Hash, and name where the function table has it, by place.
    functions: Vec<(u64, Option<&'data [u8]>)>,
}

impl<'data> Traced<'data> {
    fn new(stored: &StoredTraces<'_>) -> Self {
        let mut places = HashMap::new();
        let mut functions = Vec::new();
        for hash in stored.traces.iter().flat_map(StoredTrace::hashes) {
            places.entry(hash).or_insert_with(|| {
                functions.push((hash, None));
                functions.len() as u32 - 1
            });
        }
        Self { places, functions }
    }

    fn place(&self, hash: u64) -> Option<usize> {
        self.places.get(&hash).map(|&place| place as usize)
    }

    /// Keeps a record's name; whether the function is in a trace at all.
    fn name(&mut self, record: &Record<'data>) -> bool {
        let function = self.place(record.hash).and_then(|place| self.functions.get_mut(place));
        // Without a key the hash says more.
        function.map(|(_, name)| *name = Some(record.name).filter(|name| !name.is_empty())).is_some()
    }

    /// One location for all events of a function, so that traces share its name.
    fn locations(&self) -> Vec<Location> {
        let location = |(hash, name): &(u64, Option<&[u8]>)| {
            name.map_or(Location::NameHash(NameHash::Md5(*hash)), |name| Location::Name(Name::from(name)))
        };
        self.functions.iter().map(location).collect()
    }
}

fn ordered(bytes: &[u8], header: &Header, stored: StoredTraces<'_>) -> Reading {
    let mut traced = Traced::new(&stored);
    let mut only_counted = 0;
    let walk = table::walk(bytes, header.table, |record| {
        if !traced.name(&record) && counters::greatest(record.data, header) > 0 {
            only_counted += 1;
        }
    });
    let lengths: Vec<usize> = stored.traces.iter().map(StoredTrace::len).collect();
    let mut reading = Reading::default();
    reading.notes.extend(stored.damage.map(Note::from));
    reading.notes.extend(walk.damage.map(|error| table_damage(error, walk.records)));
    reading.notes.extend(llvm_merged::limits(&lengths, stored.stream_size));
    reading.notes.extend(llvm_merged::only_counted(only_counted));
    let mut lost = Lost::default();
    reading.traces = events(&stored.traces, &traced, &mut lost);
    reading
        .notes
        .extend(told(lost.repeated, "events repeat a function of their trace; the first of each is kept"));
    reading.notes.extend(told(
        lost.nameless,
        "events are of functions without a record: of their names only the hash is known",
    ));
    reading
}

/// Events of which something is missing.
#[derive(Default)]
struct Lost {
    repeated: u64,
    nameless: u64,
}

fn events(stored: &[StoredTrace<'_>], traced: &Traced<'_>, lost: &mut Lost) -> Vec<Trace> {
    let locations = traced.locations();
    // The run in which a function was seen last, by place.
    let mut seen = vec![0usize; locations.len()];
    let mut traces = Vec::with_capacity(stored.len());
    for (run, trace) in (1..).zip(stored) {
        let mut events = Vec::with_capacity(trace.len());
        for place in trace.hashes().filter_map(|hash| traced.place(hash)) {
            // Every place has a location: both come from the same functions.
            if std::mem::replace(&mut seen[place], run) == run {
                lost.repeated += 1;
                continue;
            }
            let location = &locations[place];
            lost.nameless += u64::from(matches!(location, Location::NameHash(_)));
            events.push(Event::at(location.clone()));
        }
        traces.push(llvm_merged::trace(run, trace.weight, events));
    }
    traces
}

fn told(count: u64, what: &str) -> Option<Note> {
    (count > 0).then(|| Note::new(format!("{count} {what}")))
}

fn table_damage(error: Error, kept: u64) -> Note {
    let mut note = Note::from(error);
    note.message = format!("the function table is damaged: {}; {kept} of its names are known", note.message);
    note
}

fn counted(bytes: &[u8], header: &Header, stored: StoredTraces<'_>) -> Result<Reading> {
    let mut functions = Vec::new();
    let walk = table::walk(bytes, header.table, |record| {
        let count = counters::frequency(record.data, header);
        functions.push(Counted { count, hash: record.hash, name: record.name });
    });
    let mut damage = Vec::new();
    match walk.damage {
        Some(error) if functions.is_empty() => {
            return Err(error.with_hint("merge it again: llvm-profdata merge *.profraw -o merged.profdata"));
        }
        error => damage.extend(error.map(|error| table_damage(error, walk.records))),
    }
    let mut reading = Reading { notes: damage, ..Reading::of(llvm_merged::counts(functions)) };
    reading
        .notes
        .push(stored.damage.map_or_else(|| llvm_merged::without_traces(stored.stream_size), Note::from));
    if !header.counts_entries() {
        reading.notes.push(llvm_merged::counts_of_blocks());
    }
    Ok(reading)
}
