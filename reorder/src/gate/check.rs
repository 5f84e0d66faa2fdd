//! Figures against limits: one line for each, with a verdict.

use schemars::JsonSchema;
use serde::Serialize;

use super::limit::{AppliedLimit, Limit, Limits};
use super::metric::{Figure, Key, Unit};
use super::place::Place;

/// The judgement on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within its limit.
    Pass,
    /// Beyond it.
    Fail,
    /// The baseline does not have it, so a relative limit cannot be applied.
    New,
    /// The baseline has it and the image does not.
    Gone,
    /// It has no limit and is only shown.
    Unlimited,
}

impl Verdict {
    /// Whether it makes the gate fail.
    #[must_use]
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Fail | Self::Gone)
    }

    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Unlimited => "unlimited",
        }
    }
}

/// One figure, then and now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Check {
    /// Which figure.
    #[serde(flatten)]
    pub key: Key,
    /// What the values count.
    pub unit: Unit,
    /// In the baseline.
    pub baseline: Option<f64>,
    /// In this image.
    pub current: Option<f64>,
    /// No layout of whole functions has less.
    pub lower_bound: Option<f64>,
    /// The limit that holds.
    pub limit: Option<AppliedLimit>,
    /// The worst value that is within it.
    pub worst: Option<f64>,
    /// The judgement.
    pub verdict: Verdict,
    /// Where the limit is written, otherwise the line of the figure in the baseline.
    pub place: Option<Place>,
}

impl Check {
    /// Change against the baseline in percent; `None` if the baseline does not have the figure.
    #[must_use]
    pub(crate) fn change_percent(&self) -> Option<f64> {
        let (baseline, current) = (self.baseline?, self.current?);
        (baseline != 0.0).then(|| (current / baseline - 1.0) * 100.0)
    }

    /// Whether the value differs from that in the baseline.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.baseline != self.current
    }
}

/// Values are rounded to thousandths, so half of one does not exceed a limit.
const TOLERANCE: f64 = 0.0005;

/// Judges every figure of `now`, in its order, then those that only `then` has.
#[must_use]
pub(super) fn check(now: &[Figure], then: Option<&[Figure]>, limits: &Limits) -> Vec<Check> {
    let in_baseline = |key: &Key| then.and_then(|then| then.iter().find(|figure| figure.key == *key));
    let mut checks: Vec<Check> =
        now.iter().map(|figure| judged(figure, in_baseline(&figure.key), limits)).collect();
    let is_gone = |figure: &&Figure| !now.iter().any(|own| own.key == figure.key);
    let gone = |figure: &Figure| {
        let limit = limits.find(&figure.key);
        let is_off = limit.as_ref().is_some_and(|limit| limit.limit == Limit::Off);
        Check {
            key: figure.key.clone(),
            unit: figure.key.metric.unit(),
            baseline: Some(figure.value),
            current: None,
            lower_bound: None,
            limit,
            worst: None,
            verdict: if is_off { Verdict::Unlimited } else { Verdict::Gone },
            place: None,
        }
    };
    checks.extend(then.unwrap_or_default().iter().filter(is_gone).map(gone));
    checks
}

/// A figure that no baseline has, because it compares two builds.
pub(crate) fn judged_alone(figure: &Figure, limits: &Limits) -> Check {
    judged(figure, None, limits)
}

fn judged(figure: &Figure, baseline: Option<&Figure>, limits: &Limits) -> Check {
    let key = &figure.key;
    let baseline = baseline.map(|figure| figure.value);
    let limit = limits.find(key);
    let worst = limit.as_ref().and_then(|limit| limit.limit.worst(baseline));
    let verdict = match (&limit, worst) {
        (_, Some(worst)) => {
            let excess =
                if key.metric.higher_is_better() { worst - figure.value } else { figure.value - worst };
            if excess > TOLERANCE { Verdict::Fail } else { Verdict::Pass }
        }
        (Some(limit), None) if limit.limit.is_relative() => Verdict::New,
        _ => Verdict::Unlimited,
    };
    let unit = key.metric.unit();
    let current = Some(figure.value);
    Check {
        key: key.clone(),
        unit,
        baseline,
        current,
        lower_bound: figure.lower_bound,
        limit,
        worst,
        verdict,
        place: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::super::metric::Metric;
    use super::*;
    use reorder_layout::configuration::Document;

    fn verdicts(now: &[(Metric, f64)], then: Option<&[(Metric, f64)]>, toml: &str) -> Vec<(Metric, Verdict)> {
        let figures = |all: &[(Metric, f64)]| -> Vec<Figure> {
            all.iter().map(|&(metric, value)| Figure::new(Key::of_image(metric, ""), value)).collect()
        };
        let limits = Limits::of(&toml::from_str::<Document>(toml).unwrap()).unwrap();
        let then = then.map(figures);
        let checks = check(&figures(now), then.as_deref(), &limits);
        checks.into_iter().map(|check| (check.key.metric, check.verdict)).collect()
    }

    #[test]
    fn every_figure_has_a_verdict() {
        let toml = "[gate.limits]\npinned-functions = 3\n";
        let now = [
            (Metric::Faults, 102.0),
            (Metric::FileBytes, 1010.0),
            (Metric::PinnedFunctions, 4.0),
            (Metric::StartupBytes, 9.0),
        ];
        let then = [(Metric::Faults, 100.0), (Metric::FileBytes, 1000.0), (Metric::TextBytes, 5.0)];
        assert_eq!(
            verdicts(&now, Some(&then), toml),
            [
                (Metric::Faults, Verdict::Fail),
                (Metric::FileBytes, Verdict::Pass),
                (Metric::PinnedFunctions, Verdict::Fail),
                (Metric::StartupBytes, Verdict::Unlimited),
                (Metric::TextBytes, Verdict::Gone),
            ]
        );
        assert_eq!(
            verdicts(&now[..2], None, ""),
            [(Metric::Faults, Verdict::New), (Metric::FileBytes, Verdict::New)]
        );
    }

    #[test]
    fn coverage_may_grow_but_not_fall() {
        let then = [(Metric::TraceCoverage, 95.0)];
        for (now, verdict) in [(99.0, Verdict::Pass), (93.0, Verdict::Pass), (92.9, Verdict::Fail)] {
            assert_eq!(
                verdicts(&[(Metric::TraceCoverage, now)], Some(&then), ""),
                [(Metric::TraceCoverage, verdict)]
            );
        }
    }
}
