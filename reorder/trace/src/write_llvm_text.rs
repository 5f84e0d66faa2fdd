//! Traces to LLVM's text profile, which `llvm-profdata` merges and lld orders by.
//!
//! In: traces. Out: the text of a profile, and notes on what it cannot hold: events without a name, names that the
//! form has no way to spell, traces without an order. `llvm-profdata merge` drops the names of functions that have
//! no record, so each gets one with a counter of 1; the profile is meant for orders, not for `-fprofile-use`.

use std::collections::HashMap;

use super::formats::llvm_merged::{DEFAULT_MAX_TRACE, DEFAULT_RESERVOIR};
use super::{Event, Evidence, Note, Trace};
use reorder_base::error::{Error, Result};

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlvmText {
    /// The profile.
    pub text: Vec<u8>,
    /// What of the traces is not in it.
    pub notes: Vec<Note>,
    /// Events written.
    pub events: u64,
}

/// The traces as one profile, in the order given, with their weights.
///
/// # Errors
/// Traces without an event that can be written.
pub fn write_llvm_text(traces: &[Trace]) -> Result<LlvmText> {
    let mut writer = Writer::default();
    traces.iter().for_each(|trace| writer.trace(trace));
    if writer.traces == 0 {
        let reasons: Vec<String> = writer.lost.notes().iter().map(Note::to_string).collect();
        let error = Error::usage(format!("no trace can be written for LLVM: {}", reasons.join("; ")));
        return Err(
            error.with_hint("give the image, or traces with names: LLVM's profiles know functions by name")
        );
    }
    Ok(writer.finish())
}

#[derive(Default)]
struct Writer<'traces> {
    /// Lines of the traces.
    lines: Vec<u8>,
    traces: usize,
    longest: usize,
    events: u64,
    /// Names in order of their first occurrence, and how each is spelled.
    names: Vec<&'traces [u8]>,
    is_spelled: HashMap<&'traces [u8], bool>,
    lost: Lost,
}

/// What the profile does not hold.
#[derive(Default)]
struct Lost {
    unordered: u64,
    empty: u64,
    nameless: u64,
    unspelled: u64,
    example: Option<String>,
    /// Of traces that are written, the weakest evidence.
    inexact: Option<Evidence>,
}

impl<'traces> Writer<'traces> {
    fn trace(&mut self, trace: &'traces Trace) {
        if !trace.evidence.is_ordered() {
            self.lost.unordered += 1;
            return;
        }
        let names: Vec<&[u8]> = trace.events.iter().filter_map(|event| self.name(event)).collect();
        if names.is_empty() {
            self.lost.empty += 1;
            return;
        }
        if trace.evidence != Evidence::Exact {
            self.lost.inexact = Some(trace.evidence);
        }
        self.traces += 1;
        self.longest = self.longest.max(names.len());
        self.events += names.len() as u64;
        self.lines.extend(format!("{}\n", trace.whole_weight()).into_bytes());
        self.lines.extend(names.join(b",".as_slice()));
        self.lines.push(b'\n');
    }

    /// The event's name, if the form can spell it; gives it a record.
    fn name(&mut self, event: &'traces Event) -> Option<&'traces [u8]> {
        let Some(name) = event.symbol() else {
            self.lost.nameless += 1;
            return None;
        };
        let is_spelled = *self.is_spelled.entry(name).or_insert_with(|| {
            let is_spelled = can_be_spelled(name);
            if is_spelled {
                self.names.push(name);
            }
            is_spelled
        });
        if !is_spelled {
            self.lost.unspelled += 1;
            self.lost.example.get_or_insert_with(|| name.escape_ascii().to_string());
        }
        is_spelled.then_some(name)
    }

    fn finish(self) -> LlvmText {
        let mut text = format!(":ir\n:temporal_prof_traces\n{0}\n{0}\n", self.traces).into_bytes();
        text.extend(self.lines);
        for name in &self.names {
            text.push(b'\n');
            text.extend(*name);
            text.extend(RECORD);
        }
        let mut notes = self.lost.notes();
        notes.extend(limits(self.traces, self.longest));
        LlvmText { text, notes, events: self.events }
    }
}

/// Hash of the control flow, number of counters, a counter, and an empty bitmap: without it LLVM takes a following
/// name that starts with `$`, as Swift's do, for one.
const RECORD: &[u8] = b"\n1\n1\n1\n$0\n";

/// Whether LLVM reads `name` as a name: it takes lines apart at commas and trims them, skips comments, and takes numbers
/// and what starts with `:` for something else.
fn can_be_spelled(name: &[u8]) -> bool {
    let is_special = |byte: &u8| *byte == b',' || byte.is_ascii_control();
    !name.is_empty()
        && name.trim_ascii() == name
        && !name.iter().any(is_special)
        && !name.starts_with(b"#")
        && !name.starts_with(b":")
        && !name.iter().all(u8::is_ascii_digit)
}

impl Lost {
    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut told = |count: u64, what: String, hint: Option<&str>| {
            let note = Note::new(format!("{count} {what}"));
            if count > 0 {
                notes.push(match hint {
                    Some(hint) => note.with_hint(hint),
                    None => note,
                });
            }
        };
        told(self.unordered, "traces hold counts and no order; they are left out".to_owned(), None);
        told(
            self.nameless,
            "events are known by address or hash only; they are left out".to_owned(),
            Some("give the image, whose symbols name them"),
        );
        let example = self.example.as_deref().unwrap_or_default();
        told(
            self.unspelled,
            format!(
                "events have names that LLVM's text cannot spell, \"{example}\" for one; they are left out"
            ),
            None,
        );
        told(self.empty, "traces have no event that can be written; they are left out".to_owned(), None);
        if let Some(evidence) = self.inexact {
            notes.push(Note::new(format!(
                "some orders are {}: LLVM's profiles cannot say that, and their readers take every order as exact",
                evidence.name()
            )));
        }
        notes
    }
}

/// Functions that `llvm-profdata merge` drops by default.
fn limits(traces: usize, longest: usize) -> Option<Note> {
    let mut flags = Vec::new();
    if traces > DEFAULT_RESERVOIR {
        flags.push(format!("--temporal-profile-trace-reservoir-size={traces}"));
    }
    if longest > DEFAULT_MAX_TRACE {
        flags.push(format!("--temporal-profile-max-trace-length={longest}"));
    }
    (!flags.is_empty()).then(|| {
        let message = format!(
            "llvm-profdata merge keeps {DEFAULT_RESERVOIR} traces and {DEFAULT_MAX_TRACE} functions of each; this profile has {traces} traces of up to {longest}"
        );
        Note::new(message).with_hint(format!("keep all: llvm-profdata merge {}", flags.join(" ")))
    })
}
