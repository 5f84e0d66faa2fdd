//! Annotations of GitHub Actions: workflow commands, which the runner reads from stdout and which need no token.
//!
//! In: the report. Out: one line per finding or note. GitHub shows ten of each level for a step, so no more are written: the
//! most important findings, and in the last one how many are left out.

use std::fmt::Write as _;

use super::Severity;
use crate::gate::place::Place;
use crate::gate::report::GateReport;
use reorder_report::visible::visible_start;

/// Annotations of one level that GitHub shows for a step.
const SHOWN: usize = 10;
/// Functions that an annotation names.
const SHOWN_FUNCTIONS: usize = 6;
/// GitHub cuts longer texts at an arbitrary place.
const MAX_TITLE_LENGTH: usize = 200;
const MAX_LINE_LENGTH: usize = 400;

/// The report as workflow commands; empty if there is no finding and no note.
pub(super) fn render(report: &GateReport) -> String {
    let (severity, findings) = super::findings(report);
    let level = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut commands = String::new();
    for (index, check) in findings.iter().take(SHOWN).enumerate() {
        let mut lines = vec![check.sentence()];
        lines.extend(super::because(report, check, SHOWN_FUNCTIONS));
        let more = findings.len().saturating_sub(SHOWN);
        if index + 1 == SHOWN && more > 0 {
            lines.push(format!("{more} more findings are in the log and in the summary"));
        }
        command(
            &mut commands,
            level,
            check.place.as_ref(),
            &format!("reorder gate: {}", check.title()),
            &lines,
        );
    }
    for remark in report.remarks.iter().take(SHOWN) {
        let lines: Vec<String> = std::iter::once(&remark.cause).chain(&remark.next).cloned().collect();
        command(&mut commands, "notice", None, "reorder gate", &lines);
    }
    commands
}

/// Adds `::level title=…,file=…,line=…::message`.
fn command(commands: &mut String, level: &str, place: Option<&Place>, title: &str, lines: &[String]) {
    let mut properties = format!("title={}", property(&visible_start(title, MAX_TITLE_LENGTH)));
    if let Some(Place { file, line }) = place {
        let _ = write!(properties, ",file={},line={line}", property(file));
    }
    let lines: Vec<_> = lines.iter().map(|line| visible_start(line, MAX_LINE_LENGTH)).collect();
    let _ = writeln!(commands, "::{level} {properties}::{}", data(&lines.join("\n")));
}

/// Percent signs and line ends are escaped in messages.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// In properties, their separators are escaped too.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
