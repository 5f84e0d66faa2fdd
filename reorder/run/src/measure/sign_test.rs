//! Bounds of a median from few values, without any assumption about their distribution.
//!
//! Each value is above the median with a chance of one half, for any quantity. So the number above is binomial, and
//! bounds are values themselves: those with enough others beyond them to make chance unlikely. Ties count against a
//! finding. The same values give the same bounds: no random numbers are used.

use serde::Serialize;

/// An interval that contains a median with at least the requested confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The interval of the median of the population that `values` are from; `None` when they are too few for `confidence`
/// (a share of 1), see [`values_needed`].
#[must_use]
pub(crate) fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let count = values.len();
    // The largest number of values beyond each end: both tails together may hold 1 - confidence.
    let beyond =
        (0..count.div_ceil(2)).take_while(|&number| 2.0 * tail(count, number) <= 1.0 - confidence).last()?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Interval { low: sorted[beyond], high: sorted[count - 1 - beyond] })
}

/// Whether the median of the population is above zero; `None` when no values of this number could show it.
#[must_use]
pub fn is_above_zero(values: &[f64], confidence: f64) -> Option<bool> {
    let count = values.len();
    if count == 0 || tail(count, 0) > 1.0 - confidence {
        return None;
    }
    let not_above = values.iter().filter(|value| value.is_nan() || **value <= 0.0).count();
    Some(tail(count, not_above) <= 1.0 - confidence)
}

/// The least number of values with which [`is_above_zero`] answers at all.
#[must_use]
pub fn values_needed(confidence: f64) -> usize {
    // A confidence of 1 is impossible; more than 64 values are not practical.
    (1..64).find(|&count| tail(count, 0) <= 1.0 - confidence).unwrap_or(64)
}

/// The least number with which [`median_interval`] answers: an interval has two ends.
#[must_use]
pub(crate) fn values_needed_for_interval(confidence: f64) -> usize {
    values_needed(f64::midpoint(1.0, confidence))
}

/// The chance that at most `most` of `count` tosses of a coin show heads.
fn tail(count: usize, most: usize) -> f64 {
    let most = most.min(count);
    if count <= EXACT_TOSSES {
        let mut sequences = 1.0;
        let mut sum = 0.0;
        for heads in 0..=most {
            sum += sequences;
            sequences = sequences * (count - heads) as f64 / (heads + 1) as f64;
        }
        return sum * 0.5_f64.powi(count as i32);
    }
    // In logarithms: the single chances of many tosses are smaller than any number.
    let mut logarithm = -(count as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for heads in 0..=most {
        sum += logarithm.exp();
        logarithm += ((count - heads) as f64).ln() - ((heads + 1) as f64).ln();
    }
    sum
}

/// Up to here every number of sequences, even times `count`, is a whole number that a float holds exactly. A chance that
/// equals its limit (a quarter, an eighth) must not fall on the wrong side of it by rounding.
const EXACT_TOSSES: usize = 48;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same chance by counting all sequences of tosses.
    fn counted_tail(count: usize, most: usize) -> f64 {
        let all = 1_u32 << count;
        let few = (0..all).filter(|tosses| tosses.count_ones() as usize <= most).count();
        few as f64 / f64::from(all)
    }

    /// Whether a two-sided test of signs accepts `median`: as many values on one side are not unlikely.
    fn is_accepted(values: &[f64], median: f64, confidence: f64) -> bool {
        let below = values.iter().filter(|value| **value < median).count();
        let above = values.iter().filter(|value| **value > median).count();
        let fewer = values.len() - below.max(above);
        2.0 * counted_tail(values.len(), fewer) > 1.0 - confidence
    }

    proptest! {
        #[test]
        fn chances_are_those_of_counting(count in 1_usize..13, most in 0_usize..13) {
            prop_assert!((tail(count, most) - counted_tail(count, most)).abs() < 1e-12);
        }

        #[test]
        fn the_interval_holds_what_the_test_accepts(
            values in prop::collection::vec(-9_i8..9, 1..12), percent in 50_u8..99,
        ) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let confidence = f64::from(percent) / 100.0;
            // Halves, too: the median need not be a value.
            for doubled in -20_i32..=20 {
                let median = f64::from(doubled) / 2.0;
                let inside = median_interval(&values, confidence)
                    .is_none_or(|interval| (interval.low..=interval.high).contains(&median));
                prop_assert_eq!(inside, is_accepted(&values, median, confidence), "{} of {:?}", median, values);
            }
        }

        #[test]
        fn above_zero_is_a_count_of_signs(values in prop::collection::vec(-3_i8..4, 0..12), percent in 50_u8..99) {
            let confidence = f64::from(percent) / 100.0;
            let floats: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let not_above = values.iter().filter(|value| **value <= 0).count();
            let expected = (!values.is_empty() && counted_tail(values.len(), 0) <= 1.0 - confidence)
                .then(|| counted_tail(values.len(), not_above) <= 1.0 - confidence);
            prop_assert_eq!(is_above_zero(&floats, confidence), expected);
        }
    }

    #[test]
    fn few_values_prove_little() {
        assert_eq!((values_needed(0.95), values_needed(0.99), values_needed_for_interval(0.95)), (5, 7, 6));
        assert_eq!(is_above_zero(&[1.0; 4], 0.95), None);
        assert_eq!(is_above_zero(&[1.0; 5], 0.95), Some(true));
        assert_eq!(is_above_zero(&[1.0, 1.0, 1.0, 1.0, -1.0], 0.95), Some(false));
        assert!(tail(5000, 2400) < 0.05, "no underflow");
        // Two values of which both lie on one side: a chance of exactly one half.
        assert_eq!(median_interval(&[1.0, 2.0], 0.5), Some(Interval { low: 1.0, high: 2.0 }));
        for count in 1..=EXACT_TOSSES {
            assert_eq!(tail(count, 0), 0.5_f64.powi(count as i32));
            assert_eq!(tail(count, count), 1.0);
        }
        assert_eq!(median_interval(&[], 0.9), None);
    }
}
