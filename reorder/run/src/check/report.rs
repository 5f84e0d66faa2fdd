//! The report of a run in which original and result did the same.

use serde::Serialize;

use super::run::{End, Observed};
use reorder_report::table::{counted, grouped};
use reorder_system::stops::Ending;

/// A run in which original and result did the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedRun {
    /// As given.
    pub arguments: String,
    /// How both ended: `exit status N` or `signal NAME`.
    pub status: String,
    /// Whether a signal ended both.
    pub is_killed: bool,
    /// Bytes that the original printed.
    pub stdout_bytes: u64,
    /// The same of standard error.
    pub stderr_bytes: u64,
    /// Lines that differ among runs of the original alone, and were not compared.
    pub unstable_lines: u64,
    /// How often the original was run.
    pub original_runs: u64,
    /// Whether both were asked to end, because they do not end by themselves.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub was_asked_to_end: bool,
}

impl CheckedRun {
    pub(super) fn of(shown: &str, original: &Observed, original_runs: u64, unstable_lines: u64) -> Self {
        Self {
            arguments: shown.to_owned(),
            status: match original.end {
                End::Ended(ending) => ending.to_string(),
                other => other.to_string(),
            },
            is_killed: matches!(original.end, End::Ended(Ending::Killed(_))),
            stdout_bytes: original.stdout.len() as u64,
            stderr_bytes: original.stderr.len() as u64,
            unstable_lines,
            original_runs,
            was_asked_to_end: original.was_asked,
        }
    }

    /// One line for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "checked: `{}` {}ends with {} and prints {}, as before",
            self.arguments,
            if self.was_asked_to_end { "is asked to end, " } else { "" },
            self.status,
            counted(self.stdout_bytes + self.stderr_bytes, "byte")
        );
        if self.unstable_lines > 0 {
            let lines = if self.unstable_lines == 1 { "line" } else { "lines" };
            text.push_str(&format!(
                "; {} {lines} differ between runs of the original alone and are not compared",
                grouped(self.unstable_lines)
            ));
        }
        text.push('\n');
        if self.is_killed && !self.was_asked_to_end {
            text.push_str("note: with these arguments a signal ends the original, too\n");
        }
        text
    }
}
