//! One file for each form of a [`GateReport`]; all of them say the same.

use clap::ValueEnum;

use super::report::GateReport;
use crate::cli::shared_args::Format;
use crate::error::Result;
use crate::report;

/// The forms that a report is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// For people
    Text,
    /// For programs: everything, limits and verdicts included
    Json,
}

impl ExportFormat {
    /// The report in this form.
    ///
    /// # Errors
    /// When it cannot be expressed, which is a mistake in the model.
    pub fn render(self, report: &GateReport) -> Result<String> {
        match self {
            Self::Text => report::render(report, Format::Text),
            Self::Json => report::render(report, Format::Json),
        }
    }
}
