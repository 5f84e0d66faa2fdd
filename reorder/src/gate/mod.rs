//! The gate: is an image as good as the team requires?
//!
//! ```text
//! image, scenarios ──> figures, startup ──┬──> checks ──> explanations ──> GateReport ──> text, JSON, Markdown, …
//! reorder.toml ──> limits ────────────────┤
//! baseline file ──> Baseline ─────────────┘
//! ```
//!
//! Guarantees: every figure is computed from the files alone, so the same files give the same verdict on any system;
//! measured figures exist only on request. A figure that the baseline has and the image does not is a finding: removing a
//! scenario does not remove its checks.

pub mod baseline;
mod check;
pub mod compressed;
mod explanation;
mod figures;
mod limit;
mod measured;
mod metric;
pub mod place;
pub mod render;
mod report;
mod startup;
mod tools;
mod updated;

pub use baseline::Baseline;
pub(crate) use check::judged_alone;
pub use check::{Check, Verdict};
#[cfg(test)]
pub(crate) use compressed::tests::own_program;
pub use compressed::{Compression, Compressor};
pub use explanation::{ChangeKind, Explanation, FunctionChange};
pub use figures::{Subject, figures};
pub use limit::{AppliedLimit, Limit, Limits};
pub(crate) use measured::{has_measured_limit, measured_checks};
pub use metric::{Figure, Key, Metric, Unit};
pub use place::Place;
pub use report::{GateReport, Outcome, Remark};
pub use startup::{Startup, StartupFunction, StartupScenario};
pub use tools::{OtherTools, tools};
pub use updated::given_up;
pub(crate) use updated::unjudged;

use reorder_base::error::{Error, Result};
use reorder_layout::memory::MemoryModel;

/// Two builds and what is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'files> {
    /// As it is now.
    pub now: &'files Baseline,
    /// As it was; `None` the first time.
    pub then: Option<&'files Baseline>,
    /// What is allowed.
    pub limits: &'files Limits,
    /// For explanations.
    pub models: &'files [MemoryModel],
}

/// Judges all figures, and explains every scenario whose faults changed, by the first memory model that shows a difference.
///
/// Sums over all scenarios include only those that both builds have, so that a new scenario does not count as growth.
///
/// # Errors
/// Memory models that have other numbers than in the baseline.
pub fn judge(comparison: &Comparison<'_>) -> Result<(Vec<Check>, Vec<Explanation>)> {
    let Comparison { now, then, limits, models } = *comparison;
    let Some(then) = then else {
        return Ok((check::check(&now.figures, None, limits), Vec::new()));
    };
    for (name, numbers) in &now.models {
        if let Some(before) = then.models.get(name).filter(|before| *before != numbers) {
            let cause =
                format!("the model {name} differs from that in the baseline: {numbers}, not {before}");
            return Err(Error::usage(cause)
                .with_hint("give it another name, or write the baseline again: --update-baseline"));
        }
    }
    let is_common =
        |name: &str| now.startup.scenario(name).is_some() && then.startup.scenario(name).is_some();
    let (new_figures, old_figures) =
        (with_sums(&now.figures, &is_common), with_sums(&then.figures, &is_common));
    let checks = check::check(&new_figures, Some(&old_figures), limits);
    let is_changed = |scenario: &str, model: &MemoryModel| {
        let key = Key::of_scenario(Metric::Faults, &model.name, scenario);
        checks.iter().any(|check| check.key == key && check.is_changed())
    };
    let explained = |scenario: &StartupScenario| {
        let model = models.iter().find(|model| is_changed(&scenario.name, model)).or(models.first())?;
        explanation::explain(&then.startup, &now.startup, &scenario.name, model)
    };
    let explanations = now.startup.scenarios.iter().filter_map(explained).collect();
    Ok((checks, explanations))
}

/// The figures with sums of faults only over scenarios for which `is_common` holds; unchanged if it holds for all.
fn with_sums(figures: &[Figure], is_common: &impl Fn(&str) -> bool) -> Vec<Figure> {
    let is_left_out =
        |figure: &Figure| figure.key.scenario.as_deref().is_some_and(|scenario| !is_common(scenario));
    let mut summed = figures.to_vec();
    if !figures.iter().any(is_left_out) {
        return summed;
    }
    for sum in summed.iter_mut().filter(|one| one.key.metric == Metric::Faults && one.key.scenario.is_none())
    {
        let parts = || {
            let is_part = |one: &&Figure| one.key.metric == Metric::Faults && one.key.part == sum.key.part;
            let starts = figures.iter().filter(is_part);
            starts.filter(|one| one.key.scenario.as_deref().is_some_and(is_common))
        };
        let bound = parts().map(|one| one.lower_bound.unwrap_or(0.0)).sum();
        *sum = Figure::new(sum.key.clone(), parts().map(|one| one.value).sum()).with_bound(bound);
    }
    summed
}

impl Baseline {
    /// The part for these scenarios and models; an empty list selects all. Sums over all scenarios are left out if scenarios
    /// are.
    #[must_use]
    pub fn restricted(mut self, scenarios: &[String], models: &[String]) -> Self {
        let is_wanted = |key: &Key| {
            let has_scenario = match &key.scenario {
                Some(scenario) => scenarios.is_empty() || scenarios.contains(scenario),
                None => {
                    scenarios.is_empty() || !matches!(key.metric, Metric::Faults | Metric::CompressedCode)
                }
            };
            has_scenario && (key.metric != Metric::Faults || models.is_empty() || models.contains(&key.part))
        };
        self.figures.retain(|figure| is_wanted(&figure.key));
        self.startup.scenarios.retain(|one| scenarios.is_empty() || scenarios.contains(&one.name));
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;
    use reorder_layout::memory::default_for_elf;

    /// An image whose scenarios have these faults each, and their sum.
    fn image(starts: &[(&str, f64)]) -> Baseline {
        let faults = |scenario: Option<&str>, value| {
            let key = Key {
                metric: Metric::Faults,
                part: "linux-4k".to_owned(),
                scenario: scenario.map(str::to_owned),
            };
            Figure::new(key, value).with_bound(value / 2.0)
        };
        let mut figures: Vec<Figure> =
            starts.iter().map(|&(name, value)| faults(Some(name), value)).collect();
        figures.push(faults(None, starts.iter().map(|(_, value)| value).sum()));
        let scenario =
            |(name, _): &(&str, f64)| StartupScenario { name: (*name).to_owned(), order: Vec::new() };
        Baseline {
            models: [("linux-4k".to_owned(), "pages of 4096".to_owned())].into(),
            figures,
            startup: Startup { functions: Vec::new(), scenarios: starts.iter().map(scenario).collect() },
            ..Baseline::default()
        }
    }

    fn verdicts(now: &Baseline, then: &Baseline) -> Vec<(Option<String>, Option<f64>, Verdict)> {
        let (limits, models) = (Limits::default(), default_for_elf());
        let (checks, _) =
            judge(&Comparison { now, then: Some(then), limits: &limits, models: &models }).unwrap();
        checks.into_iter().map(|check| (check.key.scenario, check.current, check.verdict)).collect()
    }

    #[test]
    fn a_new_scenario_is_no_growth_of_the_others() {
        let (then, now) = (image(&[("a", 10.0)]), image(&[("a", 10.0), ("b", 90.0)]));
        let named = |name: &str| Some(name.to_owned());
        let expected = [
            (named("a"), Some(10.0), Verdict::Pass),
            (named("b"), Some(90.0), Verdict::New),
            (None, Some(10.0), Verdict::Pass),
        ];
        assert_eq!(verdicts(&now, &then), expected);
        let gone = verdicts(&then, &now);
        assert_eq!(gone[1], (None, Some(10.0), Verdict::Pass), "the sum is over what both have");
        assert_eq!(gone[2], (named("b"), None, Verdict::Gone));
    }

    #[test]
    fn what_was_not_asked_for_is_not_gone() {
        let all = image(&[("a", 10.0), ("b", 90.0)]);
        let wanted = ["a".to_owned()];
        let (now, then) = (image(&[("a", 10.0)]).restricted(&wanted, &[]), all.restricted(&wanted, &[]));
        assert_eq!(verdicts(&now, &then), [(Some("a".to_owned()), Some(10.0), Verdict::Pass)]);

        // The code of a tier is that of all scenarios.
        let mut all = image(&[("a", 10.0)]);
        let key = Key::of_image(Metric::CompressedCode, "recorded.gzip");
        all.figures.push(Figure::new(key.clone(), 5.0));
        assert!(all.clone().restricted(&[], &[]).figures.iter().any(|figure| figure.key == key));
        assert!(all.restricted(&wanted, &[]).figures.iter().all(|figure| figure.key != key));
    }

    #[test]
    fn a_name_stands_for_one_model() {
        let then = image(&[("a", 10.0)]);
        let mut now = then.clone();
        now.models.insert("linux-4k".to_owned(), "pages of 65536".to_owned());
        let (limits, models) = (Limits::default(), default_for_elf());
        let error = judge(&Comparison { now: &now, then: Some(&then), limits: &limits, models: &models })
            .unwrap_err();
        assert!(error.to_string().contains("linux-4k") && error.hint.is_some(), "{error}");
    }
}
