//! Fault curves at a fixed number of points, so that traces of different lengths can be added up.

use layout_algos::score::FaultCurve;
use serde::Serialize;

/// Distance of two points in per cent of the functions that ran.
pub(super) const STEP_PERCENT: u64 = 5;

/// The faults until some share of a trace's functions had run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurvePoint {
    /// Share of the functions that had run.
    pub functions_percent: u64,
    /// The time of that point in the recorded run; `None` in sums of several traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<u64>,
    /// Faults so far in the image.
    pub faults: u64,
    /// Faults so far in the new image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_faults: Option<u64>,
}

/// Points of one trace's curves; `nanoseconds` is parallel to its functions, or empty.
pub(super) fn points(old: &FaultCurve, new: Option<&FaultCurve>, nanoseconds: &[u64]) -> Vec<CurvePoint> {
    let time_at = |percent: u64| {
        let count = (nanoseconds.len() as u64 * percent).div_ceil(100);
        nanoseconds.get(usize::try_from(count.checked_sub(1)?).ok()?).copied()
    };
    percents()
        .map(|percent| CurvePoint {
            functions_percent: percent,
            nanoseconds: time_at(percent),
            faults: old.at_percent(percent),
            new_faults: new.map(|new| new.at_percent(percent)),
        })
        .collect()
}

/// The weighted sum of curves, point by point.
pub(super) fn sum<'a>(curves: impl Iterator<Item = (u64, &'a [CurvePoint])>) -> Vec<CurvePoint> {
    let mut total: Vec<CurvePoint> = Vec::new();
    for (weight, curve) in curves {
        if total.is_empty() {
            let nothing = |point: &CurvePoint| CurvePoint {
                nanoseconds: None,
                faults: 0,
                new_faults: point.new_faults.map(|_| 0),
                ..*point
            };
            total = curve.iter().map(nothing).collect();
        }
        for (total, point) in total.iter_mut().zip(curve) {
            total.faults = total.faults.saturating_add(point.faults.saturating_mul(weight));
            total.new_faults = total
                .new_faults
                .zip(point.new_faults)
                .map(|(total, new)| total.saturating_add(new.saturating_mul(weight)));
        }
    }
    total
}

fn percents() -> impl Iterator<Item = u64> {
    (1..=100 / STEP_PERCENT).map(|step| step * STEP_PERCENT)
}
