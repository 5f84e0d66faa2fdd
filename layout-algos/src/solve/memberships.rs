//! Which traces run a function.

use crate::ids::{FunctionId, TraceId};
use crate::problem::{LayoutProblem, Rows};

/// The traces of each function, ascending, with the traces' weights scaled to small numbers.
pub(super) struct TracesOfFunctions {
    rows: Rows<u32>,
    weights: Vec<u64>,
}

/// Weights are scaled down to at most this: sums over 2³² traces and products with 2²⁴ then fit 64 bits.
const MAX_WEIGHT: u64 = 1 << 8;

impl TracesOfFunctions {
    pub(super) fn of(problem: &LayoutProblem) -> Self {
        let events = || {
            problem
                .traces()
                .iter()
                .flat_map(|trace| trace.functions.iter().map(move |function| (function.index(), trace.id.0)))
        };
        // A problem has no more events than rows can hold.
        let rows = Rows::grouped(problem.function_count(), events).unwrap_or_default();
        let heaviest = problem.traces().iter().map(|trace| trace.weight).max().unwrap_or(1);
        let divisor = heaviest.div_ceil(MAX_WEIGHT);
        let weights = problem.traces().iter().map(|trace| (trace.weight / divisor).max(1)).collect();
        Self { rows, weights }
    }

    /// The numbers of the traces that run `function`, ascending.
    pub(super) fn of_function(&self, function: FunctionId) -> &[u32] {
        self.rows.row(function.index())
    }

    /// The scaled weight of a trace: 1..=256.
    pub(super) fn weight(&self, trace: TraceId) -> u64 {
        self.weights[trace.index()]
    }

    /// Weight of the traces that run `function`.
    pub(super) fn weight_of(&self, function: FunctionId) -> u64 {
        self.of_function(function).iter().map(|&trace| self.weight(TraceId(trace))).sum()
    }

    /// Weight of the traces that run both. O(shorter · log longer).
    pub(super) fn common_weight(&self, one: FunctionId, other: FunctionId) -> u64 {
        let (mut shorter, mut longer) = (self.of_function(one), self.of_function(other));
        if shorter.len() > longer.len() {
            std::mem::swap(&mut shorter, &mut longer);
        }
        let is_common = |trace: &&u32| longer.binary_search(trace).is_ok();
        shorter.iter().filter(is_common).map(|&trace| self.weight(TraceId(trace))).sum()
    }
}
