//! One file for each form of a [`GateReport`]; all forms have the same content.
//!
//! In: the report. Out: a text. Guarantees: no form contains a time or anything else that is not in the report, so the same
//! report gives the same bytes; names may contain any characters and never become markup, commands or broken syntax.

mod github;
mod junit;
mod markdown;
mod markdown_text;
mod sarif;
mod sarif_log;

use clap::ValueEnum;

use super::check::Check;
use super::report::{GateReport, Outcome};
use reorder_base::error::Result;
use reorder_report::table::counted;
use reorder_report::{self, Format, Width};

/// The forms that a report is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// For people
    Text,
    /// For programs: everything, limits and verdicts included
    Json,
    /// For the summary of a job and for comments: at most 64 KB
    Markdown,
    /// Annotations of GitHub Actions, which reads them from stdout
    Github,
    /// For code scanning: SARIF 2.1.0
    Sarif,
    /// For lists of tests: JUnit XML
    Junit,
}

impl ExportFormat {
    /// The report in this form.
    ///
    /// # Errors
    /// When it cannot be expressed, which is a defect of the model.
    pub fn render(self, report: &GateReport) -> Result<String> {
        match self {
            Self::Text => reorder_report::render(report, Format::Text, Width::UNLIMITED),
            Self::Json => reorder_report::render(report, Format::Json, Width::UNLIMITED),
            Self::Markdown => Ok(markdown::render(report)),
            Self::Github => Ok(github::render(report)),
            Self::Sarif => sarif::render(report),
            Self::Junit => junit::render(report),
        }
    }
}

/// How serious the findings of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// They fail the run.
    Error,
    /// `--warn-only` keeps them from failing the run.
    Warning,
}

/// The findings, most important first: in the order of the metrics, missing figures before those furthest beyond their
/// limits, otherwise as in the report. Empty when the baseline was written, because then nothing is judged.
fn findings(report: &GateReport) -> (Severity, Vec<&Check>) {
    let severity = match report.outcome {
        Outcome::Updated => return (Severity::Warning, Vec::new()),
        Outcome::Warn => Severity::Warning,
        Outcome::Pass | Outcome::Fail => Severity::Error,
    };
    let mut findings: Vec<&Check> = report.findings().collect();
    findings.sort_by(|one, other| {
        let metrics = one.key.metric.cmp(&other.key.metric);
        metrics.then_with(|| excess(other).total_cmp(&excess(one)))
    });
    (severity, findings)
}

/// How far a value is beyond its limit, as a share of the limit.
fn excess(check: &Check) -> f64 {
    match (check.current, check.worst) {
        (Some(current), Some(worst)) if worst != 0.0 => ((current - worst) / worst).abs(),
        _ => f64::INFINITY,
    }
}

/// Other tools than those of the baseline, then the functions that cause a finding, a sentence for each of at most `most`,
/// then the number of those left out.
fn because(report: &GateReport, check: &Check, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = report.other_tools.iter().map(|tools| tools.sentence()).collect();
    let Some(explanation) = report.explanation_of(check) else { return lines };
    lines.extend(explanation.functions.iter().take(most).map(|change| change.sentence()));
    let more = explanation.functions.len().saturating_sub(most);
    if more > 0 {
        lines.push(format!("and {}", counted(more as u64, "more function")));
    }
    lines
}
