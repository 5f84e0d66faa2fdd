//! A line for each value: scenario, kind of start, figure, program, round, value.

use crate::measure::MeasureReport;
use reorder_base::error::{Error, Result};

const TITLES: [&str; 6] = ["scenario", "start", "figure", "program", "round", "value"];

pub(super) fn render(report: &MeasureReport) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Error::usage(format!("cannot express the report as CSV: {error}"));
    writer.write_record(TITLES).map_err(failed)?;
    for measurement in &report.measurements {
        let start = if measurement.cold { "cold" } else { "warm" };
        for figure in &measurement.figures.0 {
            for (program, sample) in figure.samples() {
                for (round, value) in (1..).zip(&sample.values) {
                    let (round, value): (u64, _) = (round, value.to_string());
                    let record = [
                        &measurement.scenario,
                        start,
                        figure.kind.key(),
                        program,
                        &round.to_string(),
                        &value,
                    ];
                    writer.write_record(record).map_err(failed)?;
                }
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| Error::usage(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| Error::usage(error.to_string()))
}
