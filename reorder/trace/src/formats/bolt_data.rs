//! BOLT's text profiles (`.fdata`), written by `perf2bolt`, `merge-fdata` and programs that BOLT instrumented.
//!
//! One branch with its frequency per line, offsets in hexadecimal; a place is a symbol (1), a part of a split function
//! (2), memory (3 to 5) or unknown (0), and a blank in a name follows a backslash:
//!
//! ```text
//! boltedcollection                     recorded with an output of BOLT
//! 1 main 2a 1 parse_args/1 0 0 1       from main+0x2a to the start of parse_args: 0 mispredicted, 1 taken
//! 0 [unknown] 0 1 _start 0 0 1
//!
//! no_lbr cpu-clock:                    samples instead of branches
//! 1 phase_one f 4
//! ```
//!
//! A function was entered as often as branches led to its start. BOLT numbers local symbols after a slash.

use super::counts::{Counts, no_order};
use super::lines::lines;
use crate::{Input, Location, Note, Reading};
use reorder_base::error::{Error, Result};

const NO_BRANCHES: &[u8] = b"no_lbr";
const OF_OUTPUT: &[u8] = b"boltedcollection";

/// Whether the first lines are branches, or BOLT's own words.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 16;
    let mut lines = lines(&bytes[..bytes.len().min(16 << 10)]).map(|(_, line)| line.trim_ascii()).peekable();
    let has_word = lines.peek().is_some_and(|line| line.starts_with(NO_BRANCHES) || *line == OF_OUTPUT);
    let mut branches = lines.take(LOOKED_AT).filter(|line| !line.is_empty()).peekable();
    has_word || branches.peek().is_some() && branches.all(|line| Branch::parse(line).is_some())
}

/// One trace of counts.
///
/// # Errors
/// No line can be read.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut profile = Profile::default();
    for (offset, line) in lines(input.bytes) {
        profile.read_line(offset, line.trim_ascii());
    }
    profile.into_reading()
}

#[derive(Default)]
struct Profile {
    /// How often functions were entered.
    entries: Counts,
    /// How often functions were sampled or branched from, for those that were never entered.
    seen: Counts,
    has_samples: bool,
    of_output: bool,
    odd: u64,
    first_odd: Option<u64>,
}

impl Profile {
    fn read_line(&mut self, offset: u64, line: &[u8]) {
        if line.starts_with(NO_BRANCHES) {
            self.has_samples = true;
        } else if line == OF_OUTPUT {
            self.of_output = true;
        } else if let Some((place, count)) = sample(line).filter(|_| self.has_samples) {
            self.seen.add(place.location(), count);
        } else if let Some(branch) = Branch::parse(line) {
            self.add(&branch);
        } else if !line.is_empty() {
            self.odd += 1;
            self.first_odd.get_or_insert(offset);
        }
    }

    fn add(&mut self, branch: &Branch<'_>) {
        if branch.to.is_function() && branch.to.offset == 0 {
            self.entries.add(branch.to.location(), branch.count);
        } else if branch.to.is_function() && branch.to.name != branch.from.name {
            self.seen.add(branch.to.location(), branch.count.max(1));
        }
        // A count of 0 would say that it never ran.
        if branch.from.is_function() {
            self.seen.add(branch.from.location(), branch.count.max(1));
        }
    }

    fn into_reading(self) -> Result<Reading> {
        let mut notes = vec![no_order("a profile of BOLT")];
        if let Some(offset) = self.first_odd {
            if self.entries.is_empty() && self.seen.is_empty() {
                return Err(Error::malformed(offset, "a line that is not a branch of a BOLT profile")
                    .with_hint("make the profile again: perf2bolt -p perf.data -o FILE PROGRAM"));
            }
            notes.push(Note::at(offset, format!("{} lines are not branches and were left out", self.odd)));
        }
        if self.of_output {
            notes.push(Note::new("the profile was taken from a program that BOLT had rewritten"));
        }
        // A function without a recorded entry still ran: the system called it, or it was only sampled.
        Ok(Reading { traces: vec![self.seen.with(self.entries).into_trace()], notes })
    }
}

struct Place<'line> {
    kind: u64,
    name: &'line [u8],
    offset: u64,
}

impl Place<'_> {
    /// Stubs of the procedure linkage table are not functions of the program.
    fn is_function(&self) -> bool {
        matches!(self.kind, 1 | 2) && !self.name.ends_with(b"@PLT")
    }

    fn location(&self) -> Location {
        let bare = self.name.split(|&byte| byte == b'/').next().unwrap_or(self.name);
        let mut name = Vec::with_capacity(bare.len());
        let mut is_escaped = false;
        for &byte in bare {
            is_escaped = byte == b'\\' && !is_escaped;
            if !is_escaped {
                name.push(byte);
            }
        }
        Location::Name(name.into())
    }
}

struct Branch<'line> {
    from: Place<'line>,
    to: Place<'line>,
    count: u64,
}

impl<'line> Branch<'line> {
    fn parse(line: &'line [u8]) -> Option<Self> {
        let mut fields = Fields(line);
        let branch = Self { from: fields.place()?, to: fields.place()?, count: fields.pair()? };
        fields.0.is_empty().then_some(branch)
    }
}

/// A line of a profile without branches.
fn sample(line: &[u8]) -> Option<(Place<'_>, u64)> {
    let mut fields = Fields(line);
    let place = fields.place()?;
    let count = fields.number(10)?;
    (fields.0.is_empty() && place.is_function()).then_some((place, count))
}

/// What is left of a line.
struct Fields<'line>(&'line [u8]);

impl<'line> Fields<'line> {
    /// Up to the next blank without a backslash.
    fn next(&mut self) -> Option<&'line [u8]> {
        let is_end = |index: usize| self.0[index] == b' ' && (index == 0 || self.0[index - 1] != b'\\');
        let end = (0..self.0.len()).find(|&index| is_end(index)).unwrap_or(self.0.len());
        let field = &self.0[..end];
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        (!field.is_empty()).then_some(field)
    }

    /// A number as the standard library reads it: a leading `+` is accepted, unlike in [`reorder_base::numbers`].
    fn number(&mut self, radix: u32) -> Option<u64> {
        u64::from_str_radix(std::str::from_utf8(self.next()?).ok()?, radix).ok()
    }

    fn place(&mut self) -> Option<Place<'line>> {
        let kind = self.number(10).filter(|kind| *kind <= 5)?;
        Some(Place { kind, name: self.next()?, offset: self.number(16)? })
    }

    /// Mispredictions, and how often the branch was taken.
    fn pair(&mut self) -> Option<u64> {
        self.number(10)?;
        self.number(10)
    }
}

#[cfg(test)]
mod tests {
    use super::super::damage::survives;

    #[test]
    fn what_ran_without_being_entered_has_a_count() {
        let text = b"1 main 2a 1 work 0 0 7\n1 work 9 1 main 2f 0 7\n1 start 4 1 main 9 3 0\n0 [unknown] 0 1 late 8 0 2\n";
        let companions = crate::Companions::default();
        let input = super::Input { bytes: text, path: "x.fdata".as_ref(), companions: &companions };
        let reading = super::read(&input).unwrap();
        let counts = reading.traces[0].events.iter();
        let counts: Vec<_> = counts.map(|event| (event.location.to_string(), event.count.unwrap())).collect();
        let expected = [("main", 15), ("work", 7), ("late", 2), ("start", 1)];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn damage_is_told_or_survived() {
        let seeds: [&[u8]; 2] = [
            include_bytes!("../../../../tests/profiles/sampling/bolt-instrumented.fdata"),
            include_bytes!("../../../../tests/profiles/sampling/bolt-no-lbr.fdata"),
        ];
        for seed in seeds {
            survives("BOLT profile", seed);
        }
    }
}
