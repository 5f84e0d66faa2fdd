//! The report as it is.

use crate::cli::shared_args::Format;
use crate::error::Result;
use crate::measure::MeasureReport;

pub(super) fn render(report: &MeasureReport) -> Result<String> {
    crate::report::render(report, Format::Json)
}
