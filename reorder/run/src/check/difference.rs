//! A message about what a result does that its original does not.

use std::fmt;

use super::run::End;

/// The first difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) original: End,
    pub(super) result: End,
    /// The first line that differs, if one does.
    pub(super) line: Option<(Stream, LineDifference)>,
    /// The last line that the result printed on standard error: why it gave up, perhaps.
    pub(super) last_words: Vec<u8>,
}

/// Where a line was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Error,
}

/// Lines with their ends, where there are ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineDifference {
    /// From 1.
    pub(super) number: usize,
    /// The first differing byte of what the result printed.
    pub(super) offset: u64,
    pub(super) original: Vec<u8>,
    pub(super) result: Vec<u8>,
}

impl Difference {
    /// Whether the result died of a fault, or never ends, and the original does not end so.
    pub(super) fn is_failure(&self) -> bool {
        let is_fault = matches!(self.result, End::Ended(ending) if ending.is_fault());
        (is_fault || self.result == End::TooLate) && self.original != self.result
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { original, result, line, last_words } = self;
        let verb = if self.is_failure() { "fails" } else { "does something else" };
        write!(formatter, "the moved program {verb}")?;
        match original == result {
            true => write!(formatter, "; it {result}, as the original does")?,
            false => write!(formatter, ": it {result}, the original {original}")?,
        }
        if let Some((stream, line)) = line {
            let stream = match stream {
                Stream::Output => "standard output",
                Stream::Error => "standard error",
            };
            write!(
                formatter,
                "; line {} of its {stream} differs, first at byte {}: {} instead of {}",
                line.number,
                line.offset,
                Shown(&line.result),
                Shown(&line.original)
            )?;
        } else if original != result && !last_words.is_empty() {
            write!(formatter, "; the last line of its standard error: {}", Shown(last_words))?;
        }
        Ok(())
    }
}

/// The beginning of a line, in quotation marks; bytes that are no text are spelled out.
struct Shown<'line>(&'line [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SHOWN: usize = 120;
        let Self(line) = *self;
        match line {
            [] => formatter.write_str("nothing"),
            line if line.len() <= MAX_SHOWN => write!(formatter, "\"{}\"", line.escape_ascii()),
            line => write!(formatter, "\"{}\"…", line[..MAX_SHOWN].escape_ascii()),
        }
    }
}
