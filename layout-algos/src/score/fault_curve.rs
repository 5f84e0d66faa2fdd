//! Faults over the course of a run.

/// The number of faults after each function that ran for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCurve {
    after_each: Vec<u64>,
}

impl FaultCurve {
    /// `after_each[n]` faults happened until the function number n had run.
    #[must_use]
    pub(super) fn new(after_each: Vec<u64>) -> Self {
        Self { after_each }
    }

    /// Faults of the whole run.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.after_each.last().copied().unwrap_or(0)
    }

    /// Faults after each function.
    #[must_use]
    pub fn after_each(&self) -> &[u64] {
        &self.after_each
    }

    /// The curve after its first `count` points, whose faults count in all others.
    #[must_use]
    pub fn after_first(mut self, count: usize) -> Self {
        self.after_each.drain(..count.min(self.after_each.len()));
        self
    }

    /// Faults after `percent` of the functions, their number rounded up.
    #[must_use]
    pub fn at_percent(&self, percent: u64) -> u64 {
        let count = (self.after_each.len() as u64 * percent.min(100)).div_ceil(100);
        count.checked_sub(1).map_or(0, |last| self.after_each[last as usize])
    }

    /// Mean of all points: the area under the curve per function. Falls when the same faults come later.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.after_each.is_empty() {
            return 0.0;
        }
        let area: u128 = self.after_each.iter().map(|&faults| u128::from(faults)).sum();
        area as f64 / self.after_each.len() as f64
    }
}
