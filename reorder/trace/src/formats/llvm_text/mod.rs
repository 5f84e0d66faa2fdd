//! LLVM's profiles as text (`llvm-profdata merge --text`).
//!
//! In: the file. Out: what [`super::llvm_indexed`] gives for the same profile.
//!
//! The form (`TextInstrProfReader`): header lines that start with `:`, `:temporal_prof_traces` among them with
//! all traces after it (their number, the number of runs they stand for; for each its weight and a line of names
//! between commas); then the functions, each a name, a hash, a number of counters and the counters. Blank lines
//! and lines that start with `#` are ignored everywhere; numbers may have C's prefixes.

mod lines;
mod records;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::llvm_merged;
use crate::{Event, Input, Location, Name, Note, Reading, Trace};
use lines::Lines;
use reorder_base::error::{Error, Result};

/// The words after the `:` of a header line, in any case.
const HEADERS: [&[u8]; 8] = [
    b"ir",
    b"fe",
    b"csir",
    b"entry_first",
    b"not_entry_first",
    b"instrument_loop_entries",
    b"single_byte_coverage",
    TRACES,
];

const TRACES: &[u8] = b"temporal_prof_traces";

/// Whether the first line that means something is a header of the form.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    header(Lines::new(beginning(bytes)).next()).is_some()
}

/// Whether the file is a profile without a header: a name, then numbers.
pub(super) fn accepts_without_header(bytes: &[u8]) -> bool {
    let mut lines = Lines::new(beginning(bytes));
    let is_name = lines.next().is_some_and(|line| lines::number(line).is_none() && !line.starts_with(b":"));
    is_name && lines.take(3).filter(|line| lines::number(line).is_some()).count() == 3
}

/// As much as is looked at to tell what the file is.
fn beginning(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(64 << 10)]
}

/// The keyword of a header line.
fn header(line: Option<&[u8]>) -> Option<&'static [u8]> {
    let word = line?.strip_prefix(b":")?;
    HEADERS.into_iter().find(|header| header.eq_ignore_ascii_case(word))
}

/// The traces of the profile, or the counts of one that has none.
///
/// # Errors
/// Unknown headers, and files of which neither a trace nor a function can be read.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut lines = Lines::new(input.bytes);
    let mut counts_entries = true;
    let mut stored = Stored::default();
    while let Some(line) = lines.peek().filter(|line| line.starts_with(b":")) {
        let at = lines.offset();
        match header(Some(line)) {
            Some(TRACES) => {
                lines.next();
                stored.read(&mut lines);
                if stored.damage.is_some() {
                    break;
                }
                continue;
            }
            Some(b"ir" | b"csir" | b"not_entry_first") => counts_entries = false,
            Some(b"entry_first") => counts_entries = true,
            Some(_) => {}
            None => {
                let message = format!("an unknown header \"{}\"", line.escape_ascii());
                return Err(Error::malformed(at, message).with_hint(
                    "merge it as text again with llvm-profdata 22 or older: llvm-profdata merge --text",
                ));
            }
        }
        lines.next();
    }
    let records = match stored.damage {
        // After a broken list of traces, the start of the functions is unknown.
        Some(_) => records::Records::default(),
        None => records::read(&mut lines, counts_entries),
    };
    if stored.traces.iter().any(|trace| !trace.events.is_empty()) {
        Ok(stored.ordered(&records))
    } else {
        counted(stored, records, counts_entries)
    }
}

/// The block of traces.
#[derive(Default)]
struct Stored {
    stream_size: u64,
    traces: Vec<Trace>,
    /// Names in each trace, repetitions included.
    lengths: Vec<usize>,
    repeated: u64,
    damage: Option<Error>,
}

impl Stored {
    fn read(&mut self, lines: &mut Lines<'_>) {
        if let Err(error) = self.try_read(lines) {
            let complete = self.traces.len();
            let message = format!("the traces are damaged after the first {complete}: {}", error.message);
            let at = error.offset.unwrap_or_default();
            self.damage = Some(Error::malformed(at, message));
        }
    }

    fn try_read(&mut self, lines: &mut Lines<'_>) -> Result<()> {
        let count = lines.number("the number of traces")?;
        self.stream_size = lines.number("the number of runs")?;
        // A trace takes two lines: a count beyond the file ends at the file's end, and no memory is reserved for it.
        for run in 1..=count {
            let weight = lines.number("a trace's weight")?;
            let at = lines.offset();
            let line = lines.next().ok_or_else(|| {
                Error::malformed(at, format!("{count} traces are announced, trace {run} is missing"))
            })?;
            self.push(weight, line);
        }
        Ok(())
    }

    fn push(&mut self, weight: u64, line: &[u8]) {
        let names = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
        let mut seen = HashSet::new();
        let mut length = 0;
        let mut events = Vec::new();
        for name in names {
            length += 1;
            if seen.insert(name) {
                events.push(Event::at(Location::Name(Name::from(name))));
            }
        }
        self.repeated += (length - events.len()) as u64;
        self.lengths.push(length);
        self.traces.push(llvm_merged::trace(self.traces.len() + 1, weight, events));
    }

    fn ordered(self, records: &records::Records<'_>) -> Reading {
        let traced: HashSet<&[u8]> =
            self.traces.iter().flat_map(|trace| &trace.events).filter_map(Event::symbol).collect();
        let only_counted = records.functions.iter();
        let only_counted =
            only_counted.filter(|function| function.ran && !traced.contains(function.name)).count() as u64;
        let mut notes: Vec<Note> = self.damage.map(Note::from).into_iter().collect();
        notes.extend(records.damage.clone());
        notes.extend(llvm_merged::limits(&self.lengths, self.stream_size));
        notes.extend(llvm_merged::only_counted(only_counted));
        if self.repeated > 0 {
            let message = format!(
                "{} events repeat a function of their trace; the first of each is kept",
                self.repeated
            );
            notes.push(Note::new(message));
        }
        Reading { traces: self.traces, notes }
    }
}

fn counted(stored: Stored, records: records::Records<'_>, counts_entries: bool) -> Result<Reading> {
    let is_damaged = stored.damage.is_some();
    if records.functions.is_empty() {
        if let Some(damage) = stored.damage {
            return Err(damage);
        }
        if let Some(Note { offset: Some(offset), message, .. }) = records.damage {
            return Err(Error::malformed(offset, message));
        }
    }
    let mut reading =
        Reading::of(llvm_merged::counts(records.functions.iter().map(records::Function::counted).collect()));
    reading.notes.extend(records.damage);
    reading.notes.extend(stored.damage.map(Note::from));
    if !is_damaged {
        reading.notes.push(llvm_merged::without_traces(stored.stream_size));
    }
    if !counts_entries {
        reading.notes.push(llvm_merged::counts_of_blocks());
    }
    Ok(reading)
}
