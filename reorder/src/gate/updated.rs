//! What a new baseline gives up against the old one.
//!
//! In: checks of an image whose figures become the baseline. Out: notes about figures that vanish or become worse, and the
//! checks without verdicts: figures that the team accepts now are not judged by the old baseline.

use super::check::{Check, Verdict};
use super::report::Remark;
use reorder_report::table::counted;

/// Figures that a note names.
const SHOWN: usize = 12;

/// Figures of the old baseline that the new one does not have, or has worse.
#[must_use]
pub fn given_up(checks: &[Check]) -> Vec<Remark> {
    let dropped = checks.iter().filter(|check| check.verdict == Verdict::Gone);
    let dropped = dropped.map(|check| format!("{} ({})", check.title(), check.shown(check.baseline)));
    let worse = checks.iter().filter(|check| is_worse(check)).map(|check| {
        format!("{} ({} -> {})", check.title(), check.shown(check.baseline), check.shown(check.current))
    });
    let dropped = remark(
        dropped.collect(),
        "no longer in the baseline",
        "if a scenario is missing, record it and update again",
    );
    let worse = remark(
        worse.collect(),
        "accepted that are worse than in the old baseline",
        "if that is not intended, restore the old baseline",
    );
    dropped.into_iter().chain(worse).collect()
}

/// Removes the verdicts.
pub(crate) fn unjudged(checks: &mut [Check]) {
    for check in checks {
        check.verdict = Verdict::Unlimited;
    }
}

pub(super) fn is_worse(check: &Check) -> bool {
    match (check.baseline, check.current) {
        (Some(baseline), Some(current)) if check.key.metric.higher_is_better() => current < baseline,
        (Some(baseline), Some(current)) => current > baseline,
        _ => false,
    }
}

fn remark(figures: Vec<String>, what: &str, next: &str) -> Option<Remark> {
    let count = figures.len();
    let more = count.checked_sub(SHOWN).filter(|more| *more > 0);
    let more = more.map_or_else(String::new, |more| format!("; and {more} more"));
    let shown = figures.into_iter().take(SHOWN).collect::<Vec<_>>().join("; ");
    let cause = format!("{} {what}: {shown}{more}", counted(count as u64, "figure"));
    (count > 0).then(|| Remark { cause, next: Some(next.to_owned()) })
}
