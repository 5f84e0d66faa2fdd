//! What weakens a verdict of `reorder gate`: limits that apply to no figure, runs of which little is known, a baseline
//! written by another version.

use crate::cli::scenarios_input::Starts;
use crate::gate::{Baseline, Check, Explanation, Limits, Remark, Verdict};
use reorder_report::table::{counted, grouped};

/// Figures without a verdict and limits without a figure; `is_whole` says that no scenario or model was left out on request.
pub(super) fn remark_on_limits(remarks: &mut Vec<Remark>, limits: &Limits, checks: &[Check], is_whole: bool) {
    let used = checks.iter().filter_map(|check| check.limit.as_ref());
    let unused = limits.unused(used);
    let mut add = |cause: String, next: &str| remarks.push(Remark { cause, next: Some(next.to_owned()) });
    if is_whole && !unused.is_empty() {
        add(
            format!("no figure has the name of these limits: {}", unused.join(", ")),
            "--all lists the figures; a longer key may have taken their place",
        );
    }
    let new = checks.iter().filter(|check| check.verdict == Verdict::New).count();
    let has_baseline = checks.iter().any(|check| check.baseline.is_some());
    if new > 0 && has_baseline {
        add(
            format!("not in the baseline and not judged: {}", counted(new as u64, "figure")),
            "write it again: --update-baseline",
        );
    }
    let is_judged = |check: &Check| !matches!(check.verdict, Verdict::New | Verdict::Unlimited);
    if !checks.iter().any(is_judged) {
        add(
            "no figure was judged".to_owned(),
            "give a baseline, or limits without a sign below [gate.limits] in reorder.toml",
        );
    }
}

/// That explanations do not add up to figures that count basic blocks.
pub(super) fn whole_functions(explanations: &[Explanation], starts: &Starts) -> Option<Remark> {
    let has_blocks = starts.traces.traces.iter().any(|trace| !trace.blocks.is_empty());
    let cause = "page faults count only the executed basic blocks, but the explanations compare whole functions, so they do not add up to the figures";
    (has_blocks && !explanations.is_empty()).then(|| Remark { cause: cause.to_owned(), next: None })
}

/// If a smaller share of the events is found, faults say little about the runs.
const MIN_FOUND_PERCENT: u64 = 90;

/// Facts about the traces and the baseline that weaken the verdicts.
pub(super) fn remark(remarks: &mut Vec<Remark>, then: Option<&Baseline>, now: &Baseline, starts: &Starts) {
    let mut add = |cause: String, next: &str| remarks.push(Remark { cause, next: Some(next.to_owned()) });
    let coverage = &starts.traces.coverage;
    if coverage.resolved() * 100 < coverage.events * MIN_FOUND_PERCENT {
        add(
            format!(
                "only {} of {} of the traces were found in the image",
                grouped(coverage.resolved()),
                counted(coverage.events, "event")
            ),
            "record the scenarios again with this build",
        );
    }
    let other_build = starts.traces.traces.iter().filter(|trace| trace.is_of_other_build).count();
    if other_build > 0 {
        add(
            format!(
                "of another build, without functions that this build adds to startup: {}",
                counted(other_build as u64, "recording")
            ),
            "record the scenarios with this build: reorder record",
        );
    }
    if let Some(then) = then.filter(|then| then.reorder != now.reorder) {
        add(
            format!("the baseline was written by reorder {}, this is {}", then.reorder, now.reorder),
            "if sizes changed for no other reason, write it again: --update-baseline",
        );
    }
    let unnamed = now.startup.functions.iter().filter(|one| one.name.starts_with("function@")).count();
    if unnamed * 2 > now.startup.functions.len() {
        add(
            "most functions have no name, so changes cannot be attributed to functions".to_owned(),
            "gate the program before it is stripped",
        );
    }
}
