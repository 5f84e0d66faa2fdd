//! The gate: is an image as good as the team said it must be?
//!
//! ```text
//! image, scenarios ──> figures, startup ──┬──> checks ──> explanations ──> GateReport ──> text, JSON, Markdown, …
//! reorder.toml ──> limits ────────────────┤
//! baseline file ──> Baseline ─────────────┘
//! ```
//!
//! Guarantees: every figure is computed from the files alone, so the same files give the same verdict on any machine;
//! measured figures are there only if somebody asks for them. What the baseline has and the image has not is a finding:
//! a check does not vanish because its scenario did.

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

pub use baseline::Baseline;
pub use check::{Check, Verdict};
pub use compressed::{Compression, Compressor};
pub use explanation::{ChangeKind, Explanation, FunctionChange};
pub use figures::{Subject, figures};
pub use limit::{AppliedLimit, Limit, Limits};
pub use measured::measured_checks;
pub use metric::{Figure, Key, Metric, Unit};
pub use place::Place;
pub use report::{GateReport, Outcome, Remark};
pub use startup::{Startup, StartupFunction, StartupScenario};

use crate::simulate::MemoryModel;

/// Two builds and what is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'files> {
    /// As it is now.
    pub now: &'files Baseline,
    /// As it was; nothing for the first time.
    pub then: Option<&'files Baseline>,
    /// What is allowed.
    pub limits: &'files Limits,
    /// For explanations.
    pub models: &'files [MemoryModel],
}

/// Judges all figures, and explains every start whose faults changed, by the first model that tells a difference.
#[must_use]
pub fn judge(comparison: &Comparison<'_>) -> (Vec<Check>, Vec<Explanation>) {
    let Comparison { now, then, limits, models } = *comparison;
    let checks = check::check(&now.figures, then.map(|then| then.figures.as_slice()), limits);
    let Some(then) = then else { return (checks, Vec::new()) };
    let is_changed = |scenario: &str, model: &MemoryModel| {
        let key = Key::of_scenario(Metric::Faults, &model.name, scenario);
        checks.iter().any(|check| check.key == key && check.is_changed())
    };
    let explained = |scenario: &StartupScenario| {
        let model = models.iter().find(|model| is_changed(&scenario.name, model)).or(models.first())?;
        explanation::explain(&then.startup, &now.startup, &scenario.name, model)
    };
    let explanations = now.startup.scenarios.iter().filter_map(explained).collect();
    (checks, explanations)
}
