//! The summary of a job, or a comment: what failed, why, and all figures folded away.
//!
//! In: the report. Out: GitHub's Markdown. Guarantee: at most [`MAX_BYTES`] bytes, and so at most as many characters however
//! they are counted; omissions are stated where they occur.

use super::markdown_text::{code, words};
use crate::gate::check::{Check, Verdict};
use crate::gate::explanation::Explanation;
use crate::gate::report::{GateReport, Outcome};
use reorder_report::table::{counted, grouped};

/// GitHub accepts comments of up to 65 536 characters; the rest is for text that others put around it.
pub(super) const MAX_BYTES: usize = 64_000;
/// Findings end here, to leave room for the explanations.
const FINDINGS_END: usize = 24_000;
/// Explanations end here, to leave room for the figures.
const REASONS_END: usize = 48_000;
/// Notes end here.
const NOTES_END: usize = 52_000;
/// Reserved for the sentences about omissions, and for the end of a fold.
const RESERVE: usize = 400;
/// Functions listed for one scenario.
const SHOWN_FUNCTIONS: usize = 12;

const HEADER: &str = "| check | baseline | now | change | limit | |\n| :-- | --: | --: | --: | :-- | :-- |\n";

/// The report as Markdown.
pub(super) fn render(report: &GateReport) -> String {
    let mut page = Page(String::new());
    let mark = match report.outcome {
        Outcome::Pass => "✅",
        Outcome::Fail => "❌",
        Outcome::Warn => "⚠️",
        Outcome::Updated => "📝",
    };
    page.0.push_str(&format!("### {mark} reorder gate: {}\n\n", words(&report.summary())));
    let baseline =
        report.baseline.as_ref().map_or_else(String::new, |file| format!(" against {}", code(file)));
    page.0.push_str(&format!("{}{baseline}\n", code(&report.image)));
    let (_, findings) = super::findings(report);
    if !findings.is_empty() {
        page.0.push_str(&format!("\n{HEADER}"));
        page.lines(findings.into_iter().map(row), FINDINGS_END, "findings");
    }
    if let Some(tools) = &report.other_tools {
        page.0.push_str(&format!("\n{}\n", words(&tools.sentence())));
    }
    for (index, explanation) in report.explanations.iter().enumerate() {
        if page.0.len() + RESERVE > REASONS_END {
            let more = report.explanations.len() - index;
            page.0.push_str(&format!("\n*{more} more scenarios changed; the JSON form lists all.*\n"));
            break;
        }
        reason(&mut page, explanation);
    }
    if !report.remarks.is_empty() {
        page.0.push_str("\nNotes:\n\n");
        let notes = report.remarks.iter().map(|remark| {
            let next = remark.next.as_ref().map_or_else(String::new, |next| format!(" → {}", words(next)));
            format!("- {}{next}\n", words(&remark.cause))
        });
        page.lines(notes, NOTES_END, "notes");
    }
    let count = report.checks.len();
    page.0.push_str(&format!("\n<details>\n<summary>All {count} checks</summary>\n\n{HEADER}"));
    page.lines(report.checks.iter().map(row), MAX_BYTES, "checks");
    page.0.push_str("\n</details>\n");
    page.0
}

fn row(check: &Check) -> String {
    let verdict = match check.verdict {
        Verdict::Fail | Verdict::Gone => format!("**{}**", check.verdict.name()),
        verdict => verdict.name().to_owned(),
    };
    let cells = [
        words(&check.title()),
        words(&check.shown(check.baseline)),
        words(&check.shown(check.current)),
        words(&check.shown_change()),
        words(&check.shown_limit()),
        verdict,
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn reason(page: &mut Page, explanation: &Explanation) {
    let Explanation { scenario, model, old_faults, new_faults, functions, .. } = explanation;
    page.0.push_str(&format!(
        "\n**{}**, {}: {} → {} faults of its first recording; functions: {} new, {} gone, {} resized\n\n",
        words(scenario),
        words(model),
        grouped(*old_faults),
        grouped(*new_faults),
        grouped(explanation.added),
        grouped(explanation.removed),
        grouped(explanation.resized),
    ));
    let shown = functions.iter().take(SHOWN_FUNCTIONS);
    let lines = shown.map(|change| format!("- {} {}\n", code(&change.name), words(&change.predicate())));
    let before = page.lines(lines, REASONS_END, "functions");
    let more = functions.len() - SHOWN_FUNCTIONS.min(functions.len());
    if before && more > 0 {
        page.0.push_str(&format!("- and {}\n", counted(more as u64, "more function")));
    }
}

/// The text written so far.
struct Page(String);

impl Page {
    /// Adds lines as long as they end before `end`; states how many are left out, and returns whether none is.
    fn lines(&mut self, lines: impl Iterator<Item = String>, end: usize, what: &str) -> bool {
        let mut lines = lines.peekable();
        while let Some(line) = lines.next_if(|line| self.0.len() + line.len() + RESERVE <= end) {
            self.0.push_str(&line);
        }
        let left_out = lines.count();
        if left_out > 0 {
            self.0.push_str(&format!("\n*{left_out} more {what} do not fit; the JSON form lists all.*\n"));
        }
        left_out == 0
    }
}
