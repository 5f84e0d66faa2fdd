//! The cost of a page for holding a function: one number for each trace.
//!
//! A page is as expensive for a trace as its most expensive function, the one that the trace touches first. So a
//! page's cost is a sum over traces of a maximum over functions, and both are plain vector operations.

use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, TraceView};

/// Numbers per row are a multiple of this: the width of a vector register in 16-bit numbers.
pub(super) const LANES: usize = 8;

/// Traces that are considered: more make each step slower than they make the result better. Of more, this many
/// are chosen evenly, heavier ones first. No more than bits in a word.
const MAX_TRACES: usize = 64;

/// The cost of a fault at the very beginning of the heaviest trace.
const MAX_COST: u64 = 1 << 12;

/// Rows of costs, one for each traced function.
pub(super) struct TouchCosts {
    costs: Vec<u16>,
    width: usize,
    /// For each function, the lanes of its row that are not zero: the traces that run it.
    traces: Vec<u64>,
}

impl TouchCosts {
    /// The rows of `functions`, in their order. A fault at share t of a trace's functions costs its weight times
    /// 1 − early · t, where early is the objective's share of the curve's mean.
    pub(super) fn of(problem: &LayoutProblem, functions: &[FunctionId]) -> Self {
        let traces = chosen_traces(problem);
        let width = traces.len().next_multiple_of(LANES);
        let heaviest = traces.iter().map(|trace| trace.weight).max().unwrap_or(1);
        let mut rows = vec![u32::MAX; problem.function_count()];
        for (row, function) in functions.iter().enumerate() {
            rows[function.index()] = row as u32;
        }
        let mut costs = vec![0; width * functions.len()];
        let early = u64::from(problem.objective().early_percent);
        for (lane, trace) in traces.iter().enumerate() {
            let scale =
                (u128::from(MAX_COST) * u128::from(trace.weight) / u128::from(heaviest)).max(1) as u64;
            let length = trace.functions.len() as u64;
            for (position, function) in trace.functions.iter().enumerate() {
                let row = rows[function.index()] as usize;
                let percent = 100 - early * position as u64 / length;
                if let Some(cost) = costs.get_mut(row.saturating_mul(width) + lane) {
                    *cost = (scale * percent).div_ceil(100) as u16;
                }
            }
        }
        let lanes = |row: &[u16]| row.iter().rev().fold(0, |lanes, &cost| lanes << 1 | u64::from(cost != 0));
        let traces = costs.chunks_exact(width.max(1)).map(lanes).collect();
        Self { costs, width, traces }
    }

    /// Numbers in a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Whether the same traces run two functions, by their positions among the functions.
    pub(super) fn have_same_traces(&self, one: u32, other: u32) -> bool {
        self.traces[one as usize] == self.traces[other as usize]
    }

    /// The row of a function, by its position among the functions.
    pub(super) fn row(&self, function: u32) -> &[u16] {
        &self.costs[function as usize * self.width..][..self.width]
    }
}

fn chosen_traces(problem: &LayoutProblem) -> Vec<TraceView<'_>> {
    let mut traces: Vec<TraceView<'_>> =
        problem.traces().iter().filter(|trace| !trace.functions.is_empty()).collect();
    if traces.len() > MAX_TRACES {
        traces.sort_by_key(|trace| std::cmp::Reverse(trace.weight));
        let count = traces.len();
        traces = (0..MAX_TRACES).map(|index| traces[index * count / MAX_TRACES]).collect();
    }
    traces
}
