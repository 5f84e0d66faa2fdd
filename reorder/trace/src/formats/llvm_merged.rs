//! Shared by both forms of LLVM's merged profiles: the notes on their traces, and the counts of profiles without traces.
//!
//! `llvm-profdata merge` keeps one trace for each raw profile with timestamps, cuts long ones, and keeps a random
//! sample of many. The file does not say so; only the numbers show it.

use std::collections::HashSet;

use super::llvm_raw::advice::REBUILD;
use crate::{Event, Evidence, Location, Name, NameHash, Note, Trace};

/// `--temporal-profile-max-trace-length` unless given.
pub(crate) const DEFAULT_MAX_TRACE: usize = 10_000;

/// `--temporal-profile-trace-reservoir-size` unless given.
pub(crate) const DEFAULT_RESERVOIR: usize = 100;

/// A trace of a merged profile; `run` counts from 1.
pub(super) fn trace(run: usize, weight: u64, events: Vec<Event>) -> Trace {
    let run = u32::try_from(run).unwrap_or(u32::MAX);
    Trace { run, weight, evidence: Evidence::Exact, events, ..Trace::default() }
}

/// What the numbers say about runs and functions that were left out when the profile was merged. `lengths` are those
/// of the traces in the file, before repetitions are dropped.
pub(super) fn limits(lengths: &[usize], stream_size: u64) -> Vec<Note> {
    let mut notes = Vec::new();
    let kept = lengths.len() as u64;
    if kept < stream_size {
        let message = if lengths.len() == DEFAULT_RESERVOIR {
            format!("the profile holds a random sample of {kept} of {stream_size} runs: LLVM's default limit")
        } else {
            format!("the profile holds {kept} of the {stream_size} runs that were merged into it")
        };
        notes.push(Note::new(message).with_hint(format!(
            "keep all: llvm-profdata merge --temporal-profile-trace-reservoir-size={stream_size} *.profraw -o all.profdata; or give the .profraw files themselves"
        )));
    }
    let cut = lengths.iter().filter(|&&length| length == DEFAULT_MAX_TRACE).count();
    if cut > 0 {
        notes.push(
            Note::new(format!(
                "{} of exactly {DEFAULT_MAX_TRACE} functions: LLVM cuts traces there, what ran later is missing",
                traces(cut)
            ))
            .with_hint(
                "keep all: llvm-profdata merge --temporal-profile-max-trace-length=4294967295 *.profraw -o all.profdata; or give the .profraw files themselves",
            ),
        );
    }
    notes
}

fn traces(count: usize) -> String {
    if count == 1 { "1 trace".to_owned() } else { format!("{count} traces") }
}

/// What to say when functions ran that no trace holds.
pub(super) fn only_counted(functions: u64) -> Option<Note> {
    (functions > 0).then(|| {
        Note::new(format!(
            "{functions} functions ran but are in no trace: they were cut off, belong to runs that were not kept, or come from profiles without timestamps"
        ))
    })
}

/// What to say about a profile whose format could hold traces, and that has none.
pub(super) fn no_timestamps() -> Note {
    Note::new("this profile has no timestamps: it counts executions and holds no order")
        .with_hint(format!("{REBUILD}, and merge again"))
}

/// What to say about a profile without a trace that was merged from `stream_size` runs with timestamps.
pub(super) fn without_traces(stream_size: u64) -> Note {
    if stream_size == 0 {
        return no_timestamps();
    }
    let message = format!(
        "the profile was merged from {stream_size} runs with timestamps and keeps none of them: it holds no order"
    );
    Note::new(message).with_hint(format!(
        "keep all: llvm-profdata merge --temporal-profile-trace-reservoir-size={stream_size} *.profraw -o all.profdata"
    ))
}

/// What to say when no counter is known to be the entry's.
pub(super) fn counts_of_blocks() -> Note {
    Note::new(
        "counts are those of each function's most frequent block: the profile does not say which one is the entry",
    )
}

/// A function and how often it ran.
pub(super) struct Counted<'data> {
    /// The count, or the best bound for it that the profile gives.
    pub(super) count: u64,
    /// The name's hash, for equal counts.
    pub(super) hash: u64,
    /// As spelled in the profile.
    pub(super) name: &'data [u8],
}

/// Functions that ran, the most frequent first.
pub(super) fn counts(mut functions: Vec<Counted<'_>>) -> Trace {
    functions.retain(|function| function.count > 0);
    // Stable: what is equal in both stays in file order.
    functions.sort_by_key(|function| (std::cmp::Reverse(function.count), function.hash));
    let mut seen = HashSet::with_capacity(functions.len());
    let location = |function: &Counted<'_>| match function.name {
        [] => Location::NameHash(NameHash::Md5(function.hash)),
        name => Location::Name(Name::from(name)),
    };
    let key = |function: &Counted<'_>| function.name.is_empty().then_some(function.hash);
    functions.retain(|function| seen.insert((function.name, key(function))));
    let event =
        |function: &Counted<'_>| Event { count: Some(function.count), ..Event::at(location(function)) };
    let events = functions.iter().map(event).collect();
    Trace { weight: 1, evidence: Evidence::Counts, events, ..Trace::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_without_a_name_stay_hashes() {
        let function = |hash, name| Counted { count: 1, hash, name };
        let trace = counts(vec![function(1, b""), function(2, b""), function(3, b"a"), function(4, b"a")]);
        let locations: Vec<Location> = trace.events.into_iter().map(|event| event.location).collect();
        let hash = |hash| Location::NameHash(NameHash::Md5(hash));
        assert_eq!(locations, [hash(1), hash(2), Location::Name("a".into())]);
    }
}
