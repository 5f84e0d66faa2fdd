//! The report as it is.

use crate::measure::MeasureReport;
use reorder_base::error::Result;
use reorder_report::{Format, Width};

pub(super) fn render(report: &MeasureReport) -> Result<String> {
    reorder_report::render(report, Format::Json, Width::UNLIMITED)
}
