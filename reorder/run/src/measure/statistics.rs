//! Medians and spreads of few, skewed samples, and the confidence of a difference.

use serde::Serialize;

use super::sign_test::{self, Interval};
use reorder_report::table::change;

/// The middle and the spread of one figure over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Half of the values lie on each side.
    pub median: f64,
    /// The smallest value.
    pub minimum: f64,
    /// The largest value.
    pub maximum: f64,
    /// Median distance of the values from the median: robust against the odd slow run.
    pub deviation: f64,
    /// All values, in the order of the rounds.
    pub values: Vec<f64>,
}

impl Sample {
    /// Summary of `values`; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let middle = median(values.to_vec())?;
        let distances = values.iter().map(|value| (value - middle).abs()).collect();
        Some(Self {
            median: middle,
            minimum: values.iter().copied().fold(f64::INFINITY, f64::min),
            maximum: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            deviation: median(distances)?,
            values: values.to_vec(),
        })
    }

    /// Values too far from the median for the spread of the others: ten deviations, or without any deviation half of the
    /// median.
    pub(crate) fn outliers(&self) -> usize {
        let far = if self.deviation > 0.0 { 10.0 * self.deviation } else { self.median.abs() / 2.0 };
        self.values.iter().filter(|value| (**value - self.median).abs() > far).count()
    }
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// With fewer runs no interval has 95 % confidence ([`super::sign_test::values_needed_for_interval`]).
const MIN_RUNS: usize = 6;

/// One figure of both programs. A round runs both, one after the other, so rounds are pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The program as it was.
    pub old: Sample,
    /// The program with the new layout.
    pub new: Sample,
    /// New median over old median; absent when the old one is zero.
    pub ratio: Option<f64>,
    /// Whether the medians differ by more than their spreads explain.
    pub is_clear: bool,
}

impl Comparison {
    /// Compares two series; `None` when either is empty.
    pub fn of(old: &[f64], new: &[f64]) -> Option<Self> {
        let (old, new) = (Sample::of(old)?, Sample::of(new)?);
        let ratio = (old.median > 0.0).then(|| new.median / old.median);
        // Twice the summed deviations is about 2.7 standard deviations of a normal distribution for each side.
        let is_clear = (old.median - new.median).abs() > 2.0 * (old.deviation + new.deviation);
        Some(Self { old, new, ratio, is_clear })
    }

    /// The interval of the median change of a pair, in per cent; `None` with too few rounds, or if an old value is zero.
    #[must_use]
    pub fn change_interval_percent(&self, confidence: f64) -> Option<Interval> {
        let changes: Option<Vec<f64>> =
            self.pairs().map(|(old, new)| (old > 0.0).then(|| (new / old - 1.0) * 100.0)).collect();
        sign_test::median_interval(&changes?, confidence)
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.old.values.iter().copied().zip(self.new.values.iter().copied())
    }

    /// Whether the runs are too few to say anything about values that vary from run to run.
    fn is_of_few_runs(&self) -> bool {
        let varies = |sample: &Sample| sample.values.len() < 2 || sample.minimum < sample.maximum;
        let is_few = |sample: &Sample| sample.values.len() < MIN_RUNS && varies(sample);
        is_few(&self.old) || is_few(&self.new)
    }

    /// The change in per cent, and whether it may be mere noise, or is of too few runs to tell: `-41 %`, `-3 % (noise)`,
    /// `+24 % (few runs)`.
    pub fn shown_change(&self) -> String {
        let change = change(self.old.median, self.new.median);
        match self.differs() {
            true if !self.is_clear => change + " (noise)",
            true if self.is_of_few_runs() => change + " (few runs)",
            _ => change,
        }
    }

    /// Whether the medians are not the same.
    pub fn differs(&self) -> bool {
        (self.old.median - self.new.median).abs() > f64::EPSILON
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_change_from_few_runs_is_marked_unless_nothing_varies() {
        let shown = |old: &[f64], new: &[f64]| Comparison::of(old, new).unwrap().shown_change();
        assert_eq!(shown(&[10.0, 10.1, 10.0], &[12.4, 12.5, 12.4]), "+24 % (few runs)");
        assert_eq!(shown(&[10.0], &[12.4]), "+24 % (few runs)");
        assert_eq!(shown(&[196.0; 3], &[64.0; 3]), "-67 %");
        assert_eq!(shown(&[10.0, 10.1, 10.0, 10.0, 10.1, 10.0], &[12.4; 6]), "+24 %");
        assert_eq!(shown(&[10.0, 11.0, 12.0], &[11.5, 13.0, 12.0]), "+9 % (noise)");
    }

    proptest! {
        #[test]
        fn half_of_the_values_lie_on_each_side(values in prop::collection::vec(-1e6..1e6_f64, 1..40)) {
            let sample = Sample::of(&values).expect("there are values");
            let below = values.iter().filter(|value| **value < sample.median).count();
            let above = values.iter().filter(|value| **value > sample.median).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
            prop_assert!(values.iter().all(|value| (sample.minimum..=sample.maximum).contains(value)));
            let near = values.iter().filter(|value| (**value - sample.median).abs() <= sample.deviation).count();
            prop_assert!(2 * near >= values.len());
        }

        #[test]
        fn an_end_of_an_interval_is_a_bound(
            pairs in prop::collection::vec((1_u8..50, 1_u8..50), 5..12), percent in -50_i8..100,
        ) {
            let (old, new): (Vec<f64>, Vec<f64>) =
                pairs.into_iter().map(|(old, new)| (f64::from(old), f64::from(new))).unzip();
            let comparison = Comparison::of(&old, &new).expect("values");
            let percent = f64::from(percent);
            let beyond: Vec<f64> =
                comparison.pairs().map(|(old, new)| (new - old) * 100.0 - old * percent).collect();
            let is_worse = sign_test::is_above_zero(&beyond, 0.9).expect("enough rounds");
            let interval = comparison.change_interval_percent(0.8).expect("enough rounds");
            // One end of the interval for 80 % is a bound for 90 %.
            prop_assert_eq!(is_worse, interval.low > percent + 1e-9, "{:?}", interval);
        }
    }

    #[test]
    fn noise_is_not_a_gain() {
        let noisy = Comparison::of(&[10.0, 14.0, 18.0], &[9.0, 13.0, 17.0]).expect("values");
        assert!(!noisy.is_clear);
        assert_eq!(noisy.shown_change(), "-7 % (noise)");
        let clear = Comparison::of(&[10.0, 10.1, 10.2], &[7.0, 7.1, 7.2]).expect("values");
        assert!(clear.is_clear);
        assert_eq!(Comparison::of(&[0.0], &[1.0]).expect("values").ratio, None);
        assert_eq!(Comparison::of(&[], &[1.0]), None);
    }

    #[test]
    fn an_interval_needs_old_values_above_zero() {
        assert_eq!(Comparison::of(&[0.0; 9], &[1.0; 9]).expect("values").change_interval_percent(0.95), None);
    }

    #[test]
    fn outliers_are_far_from_the_rest() {
        let sample = Sample::of(&[10.0, 10.2, 9.9, 10.1, 31.0]).expect("values");
        assert_eq!(sample.outliers(), 1);
        assert_eq!(Sample::of(&[4.0, 4.0, 4.0, 5.0]).expect("values").outliers(), 0);
    }
}
