//! Measurements for other programs, one file a form: all of them hold every figure, JSON and CSV also every run.

mod csv;
mod json;
mod markdown;

use clap::ValueEnum;

use super::MeasureReport;
use reorder_base::error::Result;

/// A form of export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportForm {
    /// As with `--format json`.
    Json,
    /// Tables for people.
    Markdown,
    /// A line for each value of each run.
    Csv,
}

impl ExportForm {
    /// The report in this form.
    ///
    /// # Errors
    /// Reports that the form cannot express, which is a mistake in the model.
    pub fn render(self, report: &MeasureReport) -> Result<String> {
        match self {
            Self::Json => json::render(report),
            Self::Markdown => Ok(markdown::render(report)),
            Self::Csv => csv::render(report),
        }
    }
}
