//! Medians and spreads of few, skewed samples.

use serde::Serialize;

use crate::report::table::change;

/// The middle and the spread of one figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Half of the values lie on each side.
    pub median: f64,
    /// The smallest value.
    pub minimum: f64,
    /// The largest value.
    pub maximum: f64,
    /// Median distance of the values from the median: robust against the odd slow run.
    pub deviation: f64,
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
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// One figure of both programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

    /// The change in per cent, and whether it may be mere noise: `-41 %`, `-3 % (noise)`.
    pub fn shown_change(&self) -> String {
        let change = change(self.old.median, self.new.median);
        let differs = (self.old.median - self.new.median).abs() > f64::EPSILON;
        if differs && !self.is_clear { change + " (noise)" } else { change }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
