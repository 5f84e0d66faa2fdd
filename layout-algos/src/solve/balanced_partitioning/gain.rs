//! What it is worth to move a function next to others.
//!
//! A prefix with L functions in the left half and R in the right has the closeness h(L) + h(R), h(x) =
//! x·log₂(x + 1): large when its functions are together. Moving one function from left to right changes it by
//! about h'(R) − h'(L). Taking the derivative on both sides, instead of the exact difference, makes the gain of
//! a move the negative of the gain of the opposite move. So exchanging two functions with the same memberships
//! gains exactly zero; with exact differences it looks profitable, because h is convex, and such
//! exchanges would only destroy the temporal order.

use crate::solve::logarithm::{LOG2_E, log2};

/// h'(x) for all counts that can occur, fixed-point.
pub(in crate::solve) struct ClosenessTable {
    values: Vec<i64>,
}

impl ClosenessTable {
    /// For counts up to `most`.
    pub(in crate::solve) fn up_to(most: usize) -> Self {
        // h'(x) = log₂(x + 1) + x / ((x + 1) · ln 2)
        let derivative = |count: u64| log2(count + 1) + LOG2_E * count / (count + 1);
        Self { values: (0..=most as u64).map(|count| derivative(count) as i64).collect() }
    }

    /// What one more function is worth where `count` functions of the same prefix are.
    pub(in crate::solve) fn at(&self, count: u32) -> i64 {
        self.values[count as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closeness_grows_with_company() {
        let table = ClosenessTable::up_to(1000);
        assert!((0..1000).all(|count| table.at(count) < table.at(count + 1)));
        assert_eq!(table.at(0), 0);
    }
}
