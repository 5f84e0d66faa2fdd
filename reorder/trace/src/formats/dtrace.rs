//! What DTrace prints by default for probes of the `pid` and `objc` providers.
//!
//! ```text
//! dtrace: script 'start.d' matched 812 probes
//! CPU     ID                    FUNCTION:NAME
//!   0  81234                       main:entry
//!   1  81240                 -[Foo bar:]:entry 1234567890          with a timestamp that the script prints
//! dtrace: 17 drops on CPU 1
//! ```
//!
//! Lines of one processor are in order, those of several only by timestamps. Scripts that print quietly, a name
//! or a time and a name per line, give plain lists.

use std::collections::BTreeSet;

use super::first_seen::FirstSeen;
use super::lines::{lines, some_early_line, split_last};
use crate::{Event, Evidence, Input, Location, Note, Reading, Trace};
use reorder_base::error::{Error, Result};
use reorder_base::numbers::decimal;

/// Whether an early line is DTrace's heading, or a function's entry after two numbers.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    some_early_line(bytes, |line| {
        is_heading(line) || Firing::parse(line).is_some_and(|firing| firing.is_entry)
    })
}

fn is_heading(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    [&b"CPU"[..], b"ID", b"FUNCTION:NAME"].into_iter().all(|wanted| words.next() == Some(wanted))
}

/// One trace: DTrace does not say which image a function is of.
///
/// # Errors
/// No function was entered.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut output = Output::default();
    for (offset, line) in lines(input.bytes) {
        output.add(offset, line);
    }
    output.into_reading()
}

/// A probe that fired.
struct Firing<'line> {
    processor: u64,
    function: &'line [u8],
    is_entry: bool,
    /// A number after the probe.
    time: Option<u64>,
}

impl<'line> Firing<'line> {
    fn parse(line: &'line [u8]) -> Option<Self> {
        let (processor, rest) = leading_number(line.trim_ascii())?;
        let (_, rest) = leading_number(rest)?;
        let entry = split_probe(rest, b":entry");
        let (function, rest) =
            entry.or_else(|| split_probe(rest, b":return")).or_else(|| split_last(rest, b":"))?;
        let time = rest.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()).and_then(decimal);
        (!function.is_empty()).then_some(Self { processor, function, is_entry: entry.is_some(), time })
    }
}

fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    Some((decimal(&text[..end])?, text[end..].trim_ascii_start())).filter(|_| end > 0)
}

/// The function before the name of a probe that ends its word.
fn split_probe<'line>(text: &'line [u8], name: &[u8]) -> Option<(&'line [u8], &'line [u8])> {
    let (function, rest) = split_last(text, name)?;
    (rest.first().is_none_or(u8::is_ascii_whitespace)).then_some((function, rest))
}

#[derive(Default)]
struct Output<'text> {
    entries: Vec<Firing<'text>>,
    others: u64,
    odd: u64,
    first_odd: Option<u64>,
    /// DTrace's own complaints.
    complaints: Vec<Note>,
}

impl<'text> Output<'text> {
    fn add(&mut self, offset: u64, line: &'text [u8]) {
        const MESSAGE: &[u8] = b"dtrace: ";
        if let Some(message) = line.strip_prefix(MESSAGE) {
            if split_last(message, b" drop").is_some() {
                let text = message.escape_ascii();
                self.complaints.push(
                    Note::at(offset, format!("DTrace lost events ({text}): the order has gaps"))
                        .with_hint("enlarge its buffers: dtrace -b 64m"),
                );
            }
        } else if let Some(firing) = Firing::parse(line) {
            if firing.is_entry {
                self.entries.push(firing);
            } else {
                self.others += 1;
            }
        } else if !line.trim_ascii().is_empty() && !is_heading(line) {
            self.odd += 1;
            self.first_odd.get_or_insert(offset);
        }
    }

    fn into_reading(mut self) -> Result<Reading> {
        const PROBES: &str =
            "trace entries: dtrace -n 'pid$target:IMAGE::entry { printf(\"%d\", timestamp) }' -c PROGRAM";
        if self.entries.is_empty() {
            return Err(Error::malformed(
                self.first_odd.unwrap_or(0),
                "output of DTrace without an entry of a function",
            )
            .with_hint(PROBES));
        }
        let mut notes = std::mem::take(&mut self.complaints);
        if self.others > 0 {
            notes.push(Note::new(format!(
                "{} firings of other probes than `entry` were left out",
                self.others
            )));
        }
        if let Some(offset) = self.first_odd {
            notes.push(Note::at(offset, format!("{} lines are not DTrace's and were left out", self.odd)));
        }
        let processors: BTreeSet<u64> = self.entries.iter().map(|entry| entry.processor).collect();
        let has_times = self.entries.iter().all(|entry| entry.time.is_some());
        if has_times {
            self.entries.sort_by_key(|entry| entry.time);
        } else if processors.len() > 1 {
            notes.push(
                Note::new(format!(
                    "{} processors wrote without times: their order is that of the lines",
                    processors.len()
                ))
                .with_hint(PROBES),
            );
        }
        let mut first = FirstSeen::default();
        for entry in &self.entries {
            first.add(Event {
                tick: entry.time.filter(|_| has_times),
                ..Event::at(Location::Name(entry.function.into()))
            });
        }
        let events = first.into_events();
        Ok(Reading {
            traces: vec![Trace { weight: 1, evidence: Evidence::Exact, events, ..Trace::default() }],
            notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        let seed = b"CPU ID FUNCTION:NAME\n 0 12 main:entry 5\n 1 13 -[Foo bar:]:entry 4\ndtrace: 3 drops on CPU 0\n";
        survives("DTrace output", seed);
    }
}
