//! Calls of all threads: first entries, and signs of calls that were not recorded.

use std::collections::HashMap;

use super::header::{Header, Mode};
use crate::Note;

/// An entry or an exit of one function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) process: Option<u32>,
    pub(super) thread: u32,
    /// Object and function.
    pub(super) id: u32,
    pub(super) is_entry: bool,
    pub(super) tick: u64,
    /// Offset in the file.
    pub(super) offset: u64,
}

/// The meaning of an event's kind: entry, exit, exit by a tail call, entry with argument.
pub(super) fn is_entry(kind: u8) -> Option<bool> {
    match kind {
        0 | 3 => Some(true),
        1 | 2 => Some(false),
        _ => None,
    }
}

/// All calls of a log, in any order.
#[derive(Default)]
pub(super) struct Records {
    records: Vec<Record>,
    pub(super) notes: Vec<Note>,
}

/// The first entry of one function in one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) process: Option<u32>,
    pub(super) object: u32,
    pub(super) function: u32,
    pub(super) tick: u64,
    /// Ticks since the first record of the process.
    pub(super) nanoseconds: Option<u64>,
    pub(super) calls: u64,
}

/// The lower bits of an id are the function, the upper ones its object.
const FUNCTION_BITS: u32 = 24;

/// XRay leaves out shorter calls by default, in nanoseconds.
const DEFAULT_THRESHOLD: u64 = 5_000;

impl Records {
    pub(super) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// First entries in order of time, which is not the order in the file: there, the buffers of threads follow each other.
    pub(super) fn first_entries(mut self, header: &Header, notes: &mut Vec<Note>) -> Vec<Entry> {
        self.records.sort_by_key(|record| (record.tick, record.offset));
        let mut indices: HashMap<(Option<u32>, u32), usize> = HashMap::new();
        let mut starts: HashMap<Option<u32>, u64> = HashMap::new();
        let mut entries: Vec<Entry> = Vec::new();
        for record in &self.records {
            let start = *starts.entry(record.process).or_insert(record.tick);
            if record.is_entry {
                let index = *indices.entry((record.process, record.id)).or_insert_with(|| {
                    entries.push(Entry {
                        process: record.process,
                        object: record.id >> FUNCTION_BITS,
                        function: record.id & ((1 << FUNCTION_BITS) - 1),
                        tick: record.tick,
                        nanoseconds: nanoseconds(record.tick - start, header.frequency),
                        calls: 0,
                    });
                    entries.len() - 1
                });
                entries[index].calls += 1;
            }
        }
        self.tell_losses(header, notes);
        entries
    }

    /// Notes about exits without an entry, and about logs without short calls.
    fn tell_losses(&self, header: &Header, notes: &mut Vec<Note>) {
        let mut open: HashMap<(Option<u32>, u32, u32), u64> = HashMap::new();
        let mut last: HashMap<(Option<u32>, u32), Record> = HashMap::new();
        let (mut orphans, mut shortest) = (0u64, None::<u64>);
        for record in &self.records {
            let thread = (record.process, record.thread);
            let depth = open.entry((record.process, record.thread, record.id)).or_default();
            if record.is_entry {
                *depth += 1;
            } else if *depth > 0 {
                *depth -= 1;
                let entry = last.get(&thread).filter(|last| last.is_entry && last.id == record.id);
                let lasted = entry.and_then(|entry| nanoseconds(record.tick - entry.tick, header.frequency));
                shortest = shortest.into_iter().chain(lasted).min();
            } else {
                orphans += 1;
            }
            last.insert(thread, *record);
        }
        if orphans > 0 {
            let note = Note::new(format!(
                "{orphans} exits have no entry: the calls began before the oldest record, so first executions are \
                 missing"
            ));
            notes.push(match header.mode {
                Mode::Basic => note.with_hint(super::basic::COMMAND),
                Mode::FlightRecorder => note.with_hint(
                    "the recorder overwrites its oldest buffers: give it more and larger ones, for example \
                     buffer_size=1048576:buffer_max=1000",
                ),
            });
        }
        if shortest.is_some_and(|shortest| shortest >= DEFAULT_THRESHOLD) {
            notes.push(
                Note::new(format!(
                    "no call took less than {} ns: short functions were probably filtered out",
                    shortest.unwrap_or_default()
                ))
                .with_hint("run with func_duration_threshold_us=0 in XRAY_BASIC_OPTIONS or XRAY_FDR_OPTIONS"),
            );
        }
    }
}

fn nanoseconds(ticks: u64, frequency: u64) -> Option<u64> {
    let exact = (u128::from(ticks) * 1_000_000_000).checked_div(u128::from(frequency))?;
    u64::try_from(exact).ok()
}
