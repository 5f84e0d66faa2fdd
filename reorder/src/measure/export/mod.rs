//! Measurements for other programs, one file a form: all of them hold every figure, JSON and CSV also every run.

mod csv;
mod json;
mod markdown;

use std::path::Path;

use super::MeasureReport;
use crate::error::{Error, Result};

/// A form of export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportForm {
    /// As with `--format json`.
    Json,
    /// Tables for people.
    Markdown,
    /// A line for each value of each run.
    Csv,
}

impl ExportForm {
    /// The form that a file of this name is expected to have.
    ///
    /// # Errors
    /// Other endings than `.json`, `.md`, `.markdown` and `.csv`.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => Ok(Self::Json),
            Some("md" | "markdown") => Ok(Self::Markdown),
            Some("csv") => Ok(Self::Csv),
            _ => {
                Err(Error::usage("the ending does not tell the form of the export").in_file(path).with_hint(
                    "end it in .json, .md or .csv, or use --export-json, --export-markdown or --export-csv",
                ))
            }
        }
    }

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
