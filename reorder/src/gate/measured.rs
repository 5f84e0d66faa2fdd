//! Measured figures of two programs as checks, only on request.
//!
//! In: measurements that ran the old and the new program in turn. Out: checks. A limit is exceeded only if the pairs of runs
//! show it with the requested confidence, without any assumption about the distribution of times: chance alone makes a check
//! fail no more often than that. The baseline file is not used, because it may come from another system.

use super::check::{Check, Verdict};
use super::limit::Limits;
use super::metric::{Key, Metric};
use super::report::Remark;
use reorder_run::measure::{Comparison, FigureKind, Measurement, StartKind, Values, sign_test};

/// Figures of each measured scenario that are shown and can have a limit.
const METRICS: [(FigureKind, Metric); 3] = [
    (FigureKind::TextPagesTouched, Metric::PagesTouched),
    (FigureKind::MajorFaults, Metric::MajorFaults),
    (FigureKind::WallMilliseconds, Metric::WallMilliseconds),
];

/// Whether a measured figure of the scenario has a limit.
#[must_use]
pub(crate) fn has_measured_limit(scenario: &str, limits: &Limits) -> bool {
    let limit = |start: &str, metric| limits.find(&Key::of_scenario(metric, start, scenario));
    METRICS.iter().any(|&(_, metric)| ["cold", "warm"].iter().any(|start| limit(start, metric).is_some()))
}

/// One check for each scenario and figure, and what weakens them.
#[must_use]
pub(crate) fn measured_checks(measurements: &[Measurement], limits: &Limits) -> (Vec<Check>, Vec<Remark>) {
    let mut checks = Vec::new();
    let mut remarks: Vec<Remark> = Vec::new();
    for measurement in measurements {
        for (kind, metric) in METRICS {
            let found = measurement.figures.0.iter().find(|figure| figure.kind == kind);
            let Some(Values::Compared(compared)) = found.map(|figure| &figure.values) else { continue };
            let start = if measurement.start == StartKind::Cold { "cold" } else { "warm" };
            let key = Key::of_scenario(metric, start, &measurement.scenario);
            let check = judged(key, compared, measurement.confidence, limits, &mut remarks);
            checks.push(check);
        }
        for warning in &measurement.warnings {
            let cause = format!("{}: {}; {}", measurement.scenario, warning.cause, warning.doubt);
            add(&mut remarks, cause, &warning.next);
        }
    }
    (checks, remarks)
}

fn add(remarks: &mut Vec<Remark>, cause: String, next: &str) {
    let remark = Remark { cause, next: Some(next.to_owned()) };
    if !remarks.contains(&remark) {
        remarks.push(remark);
    }
}

fn judged(
    key: Key,
    compared: &Comparison,
    confidence: f64,
    limits: &Limits,
    remarks: &mut Vec<Remark>,
) -> Check {
    let (old, new) = (compared.old.median, compared.new.median);
    let limit = limits.find(&key);
    let worst_for = |old: f64| limit.as_ref().and_then(|limit| limit.limit.worst(Some(old)));
    let pairs = compared.old.values.iter().zip(&compared.new.values);
    let beyond: Option<Vec<f64>> = pairs.map(|(&old, &new)| Some(new - worst_for(old)?)).collect();
    let verdict = match beyond.map(|beyond| sign_test::is_above_zero(&beyond, confidence)) {
        None => Verdict::Unlimited,
        Some(Some(true)) => Verdict::Fail,
        Some(Some(false)) => Verdict::Pass,
        Some(None) => {
            let needed = sign_test::values_needed(confidence);
            let cause = format!(
                "{key}: so few runs cannot show anything with {:.0} % confidence",
                confidence * 100.0
            );
            add(remarks, cause, &format!("measure with --runs {needed} or more, or with less --confidence"));
            Verdict::Unlimited
        }
    };
    Check {
        unit: key.metric.unit(),
        key,
        baseline: Some(old),
        current: Some(new),
        lower_bound: None,
        worst: worst_for(old),
        limit,
        verdict,
        place: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;
    use reorder_layout::configuration::Document;

    fn verdict(old: &[f64], new: &[f64], toml: &str) -> (Verdict, usize) {
        let limits = Limits::of(&toml::from_str::<Document>(toml).unwrap()).unwrap();
        let compared = Comparison::of(old, new).unwrap();
        let mut remarks = Vec::new();
        let key = Key::of_scenario(Metric::WallMilliseconds, "cold", "start");
        let check = judged(key, &compared, 0.95, &limits, &mut remarks);
        (check.verdict, remarks.len())
    }

    #[test]
    fn only_slower_runs_beyond_noise_fail() {
        let limit = "[gate.limits]\nwall-milliseconds = '+5 %'\n";
        let old = [10.0, 14.0, 11.0, 18.0, 12.0, 10.5, 13.0, 11.0, 15.0];
        let noisy = [14.0, 10.0, 12.0, 16.0, 13.0, 10.0, 14.5, 11.5, 14.0];
        let slower: Vec<f64> = old.iter().map(|value| value * 1.2).collect();
        assert_eq!(verdict(&old, &noisy, limit), (Verdict::Pass, 0));
        assert_eq!(verdict(&old, &slower, limit), (Verdict::Fail, 0));
        assert_eq!(
            verdict(&old, &slower, "[gate.limits]\n'wall-milliseconds.cold' = '+25 %'\n"),
            (Verdict::Pass, 0)
        );
        assert_eq!(verdict(&old, &slower, "[gate.limits]\nwall-milliseconds = 11\n"), (Verdict::Fail, 0));
    }

    #[test]
    fn without_a_limit_times_are_shown_only() {
        assert_eq!(verdict(&[1.0; 9], &[99.0; 9], ""), (Verdict::Unlimited, 0));
    }

    #[test]
    fn few_runs_are_told() {
        let limit = "[gate.limits]\nwall-milliseconds = '+5 %'\n";
        assert_eq!(verdict(&[1.0; 3], &[99.0; 3], limit), (Verdict::Unlimited, 1));
    }
}
