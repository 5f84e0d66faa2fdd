//! Messages about an order.
//!
//! In: an [`Arrangement`]. Out: sentences with their weight, in a fixed order.

use super::abi::Level;
use super::options::Talk;
use super::order::Arrangement;
use crate::hints::{self, Spelling};

/// How many names that were not found are listed, unless all are.
const EXAMPLES: usize = 3;
/// Fewer events than this share, in percent, are worth a warning.
const FEW_PERCENT: u64 = 50;

/// The messages.
#[must_use]
pub(super) fn sentences(arrangement: &Arrangement, talk: Talk) -> Vec<(Level, String)> {
    let mut said = Vec::new();
    let examples = if talk == Talk::Verbose { usize::MAX } else { EXAMPLES };
    for note in arrangement.notes.iter().take(examples) {
        let hint = note.hint.as_ref().and_then(|hint| hints::text(hint, Spelling::Plugin));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        said.push((Level::Warning, format!("{note}{hint}")));
    }
    let (found, asked, what) = match (&arrangement.coverage, &arrangement.listed) {
        (Some(coverage), _) => (coverage.resolved(), coverage.events, "events"),
        (None, Some(listed)) => (listed.found() as u64, listed.lines as u64, "lines"),
        (None, None) => (0, 0, ""),
    };
    let mut summary = format!(
        "{} of {} functions ordered, {} bytes",
        arrangement.functions, arrangement.known, arrangement.bytes
    );
    if asked > 0 {
        summary.push_str(&format!("; {found} of {asked} {what} found"));
    }
    said.push((Level::Info, summary));
    let missing: Vec<String> = match (&arrangement.coverage, &arrangement.listed) {
        (Some(coverage), _) => coverage.missing.iter().take(examples).map(ToString::to_string).collect(),
        (None, Some(listed)) => listed.examples.iter().take(examples).cloned().collect(),
        (None, None) => Vec::new(),
    };
    if !missing.is_empty() {
        let total = arrangement.coverage.as_ref().map_or(missing.len(), |coverage| coverage.missing.len());
        let more = if missing.len() < total {
            format!(" and {} more", total - missing.len())
        } else {
            String::new()
        };
        said.push((Level::Info, format!("not linked here: {}{more}", missing.join(", "))));
    }
    if found * 100 < asked * FEW_PERCENT {
        said.push((
            Level::Warning,
            format!(
                "only {found} of {asked} {what} are functions that are linked here; compile with -ffunction-sections, \
                 and record this version"
            ),
        ));
    }
    if let Some(coverage) = arrangement.coverage.as_ref().filter(|_| talk == Talk::Verbose) {
        for (image, traces) in &coverage.other_images {
            said.push((Level::Info, format!("{traces} traces of {image} are left out: another image")));
        }
    }
    said
}
