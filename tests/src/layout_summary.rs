//! Layouts compared with a baseline, over many programs or folds of one.
//!
//! The figure is the geometric mean of the ratios, each report counting the same regardless of its faults, with the
//! interval that holds the true mean with 95 % if the logarithms of the ratios are normally distributed.

use reorder_report::Width;
use reorder_report::table::Table;

use crate::layout_report::{LayoutReport, Row};

/// Quantiles 0.975 of Student's distribution for 1, 2, … degrees of freedom; beyond, the normal one.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
];

/// The figures to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Faults,
    Area,
}

/// A mean ratio, in per cent above or below one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    mean: f64,
    /// Half of the interval's width; `None` with a single report.
    within: Option<f64>,
    worst: f64,
}

/// One table per set: for each layout that every report has, its faults and area against those of `baseline`.
///
/// # Errors
/// No reports, or one without the baseline.
pub fn summary(reports: &[LayoutReport], baseline: &str) -> Result<String, String> {
    let first = reports.first().ok_or("no reports")?;
    let bases: Vec<&Row> = reports
        .iter()
        .map(|report| row(report, baseline).ok_or_else(|| format!("{} has no {baseline}", report.program)))
        .collect::<Result<_, _>>()?;
    let common: Vec<(&str, Vec<&Row>)> = first
        .rows
        .iter()
        .filter_map(|candidate| {
            let rows = reports.iter().map(|report| row(report, &candidate.label)).collect::<Option<_>>()?;
            Some((candidate.label.as_str(), rows))
        })
        .collect();
    let mut text =
        format!("{} reports, per cent against {baseline}: mean ± interval, worst\n", reports.len());
    for (set, set_score) in first.rows[0].sets.iter().enumerate() {
        for (figure, name) in [(Figure::Faults, "faults"), (Figure::Area, "area")] {
            let models = set_score.models.iter().map(|score| score.model.clone());
            let mut table = Table::new(std::iter::once(format!("{}, {name}", set_score.set)).chain(models));
            for (label, rows) in &common {
                let cells = (0..set_score.models.len()).map(|model| {
                    let ratios = rows.iter().zip(&bases).map(|(row, base)| {
                        let value = |row: &Row| figure.of(row, set, model);
                        value(row) / value(base)
                    });
                    change(&ratios.collect::<Vec<_>>()).text()
                });
                table.row(std::iter::once((*label).to_owned()).chain(cells));
            }
            text.push('\n');
            text.push_str(&table.render(Width::UNLIMITED));
        }
    }
    Ok(text)
}

fn row<'report>(report: &'report LayoutReport, label: &str) -> Option<&'report Row> {
    report.rows.iter().find(|row| row.label == label)
}

impl Figure {
    fn of(self, row: &Row, set: usize, model: usize) -> f64 {
        let score = &row.sets[set].models[model];
        match self {
            Self::Faults => score.faults as f64,
            Self::Area => score.area,
        }
    }
}

fn change(ratios: &[f64]) -> Change {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let count = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    let per_cent = |logarithm: f64| (logarithm.exp() - 1.0) * 100.0;
    Change {
        mean: per_cent(mean),
        within: logarithms.len().checked_sub(2).map(|index| {
            let quantile = STUDENT.get(index).copied().unwrap_or(1.96);
            100.0 * quantile * (squares / (count - 1.0) / count).sqrt()
        }),
        worst: per_cent(logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    }
}

impl Change {
    fn text(self) -> String {
        let within = self.within.map_or_else(String::new, |within| format!(" ±{within:.1}"));
        format!("{:+.1}{within}, {:+.1}", self.mean, self.worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_averaged_by_their_logarithms() {
        let change = change(&[0.5, 2.0, 1.0]);
        assert!(change.mean.abs() < 1e-9);
        assert!((change.worst - 100.0).abs() < 1e-9);
        // Standard deviation ln 2, three values, two degrees of freedom.
        let expected = 100.0 * 4.303 * 2f64.ln() / 3f64.sqrt();
        assert!((change.within.unwrap() - expected).abs() < 1e-9);
    }

    #[test]
    fn one_report_has_no_interval() {
        assert_eq!(change(&[0.9]).text(), "-10.0, -10.0");
    }
}
