//! Lists of functions, one per line, first executed first: order files of `ld.lld`, `ld64` and gold, output of `nm`,
//! addresses that a sanitizer callback printed, columns of counts or times beside names, comma-separated names.
//!
//! [`line`] has the grammar of one line. What a column of numbers means is decided over the whole file: numbers that
//! rise are a clock, numbers that fall are counts and therefore no order. A list of addresses alone may hold return
//! addresses, so they are taken as places inside functions.

mod line;

use line::{Entry, Line};

use super::first_seen::FirstSeen;
use crate::{Event, Evidence, Input, Location, Note, Reading, Trace};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// Whether it can be text: what is binary shows it by a NUL early on.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    !bytes[..bytes.len().min(4096)].contains(&0)
}

/// The list as one trace of no particular image.
///
/// # Errors
/// Not a single line is a symbol or an address: the first one that is not, with its number and offset.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut list = List::default();
    let mut offset = 0u64;
    for (index, line) in input.bytes.split(|&byte| byte == b'\n').enumerate() {
        match line::parse(line) {
            Line::Nothing => {}
            Line::Entries(entries) => {
                list.lines += 1;
                list.entries.extend(entries);
            }
            Line::Odd => list.odd.add(index as u64 + 1, offset, line),
        }
        offset += line.len() as u64 + 1;
    }
    list.into_reading(input)
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    /// Lines that they are from.
    lines: u64,
    odd: OddLines,
}

impl List {
    fn into_reading(mut self, input: &Input<'_>) -> Result<Reading> {
        let lines = self.lines + self.odd.count;
        // A few words of any text look like symbols; a list has little else.
        if let (true, Some((number, offset, _))) = (self.odd.count > self.lines, self.odd.examples.first()) {
            let cause = match self.lines {
                0 => format!("line {number}: neither a symbol nor an address"),
                _ => format!(
                    "line {number}: neither a symbol nor an address, like {} of {lines} lines: this is no list of functions",
                    self.odd.count
                ),
            };
            return Err(Error::malformed(*offset, cause)
                .with_hint("give one symbol, one 0x address or one line of `nm` output per line"));
        }
        let mut notes: Vec<Note> = self.odd.note().into_iter().collect();
        notes.extend(keep_one_architecture(&mut self.entries, input));
        let (evidence, note) = interpret_numbers(&mut self.entries);
        notes.extend(note);
        // A name beside an address would show that the list is a symbol table, which has starts of functions only.
        if self.entries.iter().all(|entry| entry.event.symbol().is_none() && entry.event.size.is_none()) {
            self.entries.iter_mut().for_each(|entry| may_be_inside(&mut entry.event));
        }
        let mut first = FirstSeen::default();
        for entry in self.entries {
            first.add(entry.event);
        }
        let trace = Trace { weight: 1, evidence, events: first.into_events(), ..Trace::default() };
        Ok(Reading { traces: vec![trace], notes })
    }
}

fn may_be_inside(event: &mut Event) {
    if let Location::Image(address) = event.location {
        event.location = Location::Inside(address);
    }
}

/// Lines that were left out.
#[derive(Default)]
struct OddLines {
    count: u64,
    /// Number, offset and beginning of the first few.
    examples: Vec<(u64, u64, String)>,
}

impl OddLines {
    fn add(&mut self, number: u64, offset: u64, line: &[u8]) {
        const SHOWN: usize = 3;
        const WIDTH: usize = 40;
        self.count += 1;
        if self.examples.len() < SHOWN {
            let beginning = line.trim_ascii().get(..WIDTH).unwrap_or(line.trim_ascii());
            self.examples.push((number, offset, beginning.escape_ascii().to_string()));
        }
    }

    fn note(&self) -> Option<Note> {
        let (_, offset, _) = self.examples.first()?;
        let examples: Vec<String> =
            self.examples.iter().map(|(number, _, text)| format!("line {number}: {text}")).collect();
        let (lines, were) = if self.count == 1 { ("line is", "was") } else { ("lines are", "were") };
        let more = if self.count > self.examples.len() as u64 { ", …" } else { "" };
        Some(
            Note::at(
                *offset,
                format!(
                    "{} {lines} neither a symbol nor an address and {were} left out ({}{more})",
                    self.count,
                    examples.join(", ")
                ),
            )
            .with_hint("give one symbol, one 0x address or one line of `nm` output per line"),
        )
    }
}

/// `ld64` skips the lines of other architectures than the one it links for: that of a companion, or the first named.
fn keep_one_architecture(entries: &mut Vec<Entry>, input: &Input<'_>) -> Option<Note> {
    let companion = input.companions.images().find_map(|image| line::architecture_name(&image.object));
    let first = entries.iter().find_map(|entry| entry.architecture)?;
    let wanted = companion.unwrap_or(first);
    let count = entries.len();
    entries.retain(|entry| entry.architecture.is_none_or(|architecture| architecture == wanted));
    let skipped = count - entries.len();
    (skipped > 0).then(|| {
        Note::new(format!("lines for {wanted} are used, {skipped} lines for other architectures are not"))
            .with_hint(Hint::companion("name the image that is to be laid out", "IMAGE"))
    })
}

/// What the column of numbers means, and thereby the order of the list.
fn interpret_numbers(entries: &mut [Entry]) -> (Evidence, Option<Note>) {
    /// Counts of a run are smaller, clocks since boot in nanoseconds or dates are not.
    const MIN_CLOCK: u64 = 1_000_000_000;
    let numbers: Vec<u64> = entries.iter().filter_map(|entry| entry.number).collect();
    if numbers.is_empty() {
        return (Evidence::Listed, None);
    }
    if numbers.is_sorted() {
        entries.iter_mut().for_each(|entry| entry.event.tick = entry.number);
        return (Evidence::Listed, None);
    }
    if numbers.iter().all(|number| *number >= MIN_CLOCK) && numbers.len() == entries.len() {
        entries.iter_mut().for_each(|entry| entry.event.tick = entry.number);
        entries.sort_by_key(|entry| entry.number);
        let note =
            Note::new("the lines are not in the order of the times beside them and were sorted by these");
        return (Evidence::Listed, Some(note));
    }
    entries.iter_mut().for_each(|entry| entry.event.count = entry.number);
    if numbers.is_sorted_by(|first, second| first >= second) {
        let note =
            Note::new("the numbers beside the names fall: they are counts, which give no order of execution")
                .with_hint(Hint::Record { what: "a run", otherwise: None });
        return (Evidence::Counts, Some(note));
    }
    let note =
        Note::new("the numbers beside the names neither rise nor fall; the order of the lines is used");
    (Evidence::Listed, Some(note))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::damage::survives;
    use super::{Input, Reading, Result};
    use crate::Companions;

    fn read_text(text: &str) -> Result<Reading> {
        let companions = Companions::default();
        super::read(&Input { bytes: text.as_bytes(), path: Path::new("list"), companions: &companions })
    }

    #[test]
    fn other_texts_are_no_lists() {
        for text in [
            "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n",
            "/bin/sh\n/bin/dash\n",
            "root:x:0:\nadm:x:4:syslog\n",
            "int main(void) {\n  return\n  first + second + third * 4;\n}\n{ }\n",
        ] {
            let error = read_text(text).map(drop).expect_err(text);
            assert!(error.to_string().contains("line 1") || error.to_string().contains("line 3"), "{error}");
        }
        for text in [
            "src/a.c:local\nnet/http.(*Server).Serve\nstd::fmt::write\n",
            "main\n- - odd words here -\nhelp\n",
        ] {
            assert!(read_text(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn damage_is_told_or_survived() {
        let seeds: [&[u8]; 3] = [
            include_bytes!("../../../../../tests/profiles/lists/orderfile-elf.txt"),
            include_bytes!("../../../../../tests/profiles/lists/orderfile-macho.txt"),
            include_bytes!("../../../../../tests/profiles/lists/cyg-entry-bare.nm.txt"),
        ];
        for seed in seeds {
            survives("plain list", seed);
        }
    }
}
