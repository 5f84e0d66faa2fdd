//! Bounds from the pages above each cost.
//!
//! **Cost.** A page that the function at position i of a trace's n functions is the first to touch costs the run
//! v = w · ((1 − e) + e · (n − i) / n), w being the weight of the trace and e the share of the mean of the fault
//! curve: it counts once in the total, and in n − i of the n points of the curve. So with v(t, f) for the function f
//! in the trace t, 0 if t does not run f, a page costs Σ_t max over the functions f on it of v(t, f).
//!
//! **Layers.** Take any set S of traces and let V(f) = Σ_{t ∈ S} v(t, f). A page costs the traces of S at least V(f)
//! for each f on it, as each maximum is at least v(t, f). Hence the pages that cost more than x contain all bytes of
//! the functions with V(f) > x, and there are at least ⌈bytes / P⌉ of them. The cost of all pages is the integral of
//! their number over x ≥ 0, so
//!
//! ```text
//! cost(S) ≥ ∫ ⌈bytes of {f : V(f) > x} / P⌉ dx
//! ```
//!
//! For one trace and e = 0 this is w · ⌈touched bytes / P⌉, for one trace and e = 1 the mean of that over all
//! prefixes. For several traces of weight 1 and e = 0 it is the sum over m of ⌈bytes of functions that at least m
//! traces run / P⌉: the pages that at least m traces touch are no fewer. No splitting of weights is needed.
//!
//! **Partition.** The cost of all traces is the sum over the blocks of any partition of the traces, and so are the
//! bounds. Neither large nor small blocks are always better, since each layer of each block is rounded up. So single
//! traces are merged greedily, where that raises the bound most, within a budget; any result is a proven bound.

use std::collections::BTreeMap;

use super::lower_bounds::{Occupancy, Occupied};
use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, TraceView};

/// Events that may be looked at to find a good partition: some seconds.
const MAX_EVENTS: usize = 1 << 25;

/// Pairs of traces that are considered at first.
const MAX_PAIRS: usize = 1 << 14;

/// The bound of each trace alone, summed, and the best that a partition of the traces gives.
pub(super) fn layer_bounds(problem: &LayoutProblem, occupancy: Occupancy, early: f64) -> (f64, f64) {
    let layers = Layers { problem, occupancy, page: problem.objective().model.bytes_per_fault().max(1) };
    let blocks: Vec<Block> = problem.traces().iter().map(|trace| layers.block(costs(trace, early))).collect();
    let alone = blocks.iter().map(|block| block.bound).sum();
    (alone, layers.merge_greedily(blocks).max(alone))
}

/// What a page costs that each function of a trace is the first to touch, ascending by function.
fn costs(trace: TraceView<'_>, early: f64) -> Vec<(FunctionId, f64)> {
    let count = trace.functions.len();
    let cost = |position: usize| {
        trace.weight as f64 * ((1.0 - early) + early * ((count - position) as f64 / count as f64))
    };
    let mut costs: Vec<(FunctionId, f64)> =
        trace.functions.iter().enumerate().map(|(position, &function)| (function, cost(position))).collect();
    costs.sort_unstable_by_key(|&(function, _)| function);
    costs
}

/// Traces that are bounded together.
struct Block {
    /// Ascending by function: what a page with it costs all traces at least.
    costs: Vec<(FunctionId, f64)>,
    bound: f64,
}

/// Counts bytes layer by layer.
struct Layers<'problem> {
    problem: &'problem LayoutProblem,
    occupancy: Occupancy,
    /// Bytes that one fault makes present.
    page: u64,
}

impl Layers<'_> {
    fn block(&self, costs: Vec<(FunctionId, f64)>) -> Block {
        Block { bound: self.integral(&costs), costs }
    }

    /// The integral over the layers: pages of the functions above each cost, times the width of the layer.
    fn integral(&self, costs: &[(FunctionId, f64)]) -> f64 {
        let mut dearest_first = costs.to_vec();
        dearest_first.sort_unstable_by(|one, other| other.1.total_cmp(&one.1));
        let mut occupied = Occupied::default();
        let mut integral = 0.0;
        for (index, &(function, cost)) in dearest_first.iter().enumerate() {
            occupied.add(self.problem, function, self.occupancy, self.page);
            let next = dearest_first.get(index + 1).map_or(0.0, |&(_, cost)| cost);
            if next < cost {
                integral += (cost - next) * occupied.bytes().div_ceil(self.page) as f64;
            }
        }
        integral
    }

    /// Merges blocks while that raises the sum of their bounds; gives the sum.
    fn merge_greedily(&self, blocks: Vec<Block>) -> f64 {
        let reach = (MAX_PAIRS / blocks.len().max(1)).max(1);
        let mut budget = MAX_EVENTS;
        let mut blocks: Vec<Option<Block>> = blocks.into_iter().map(Some).collect();
        let mut gains = BTreeMap::new();
        for one in 0..blocks.len() {
            for other in one + 1..blocks.len().min(one + 1 + reach) {
                self.value(&blocks, (one, other), &mut gains, &mut budget);
            }
        }
        while let Some((one, other)) = best(&gains) {
            let merged = match (&blocks[one], &blocks[other]) {
                (Some(first), Some(second)) => self.block(sum(&first.costs, &second.costs)),
                _ => break,
            };
            blocks[one] = Some(merged);
            blocks[other] = None;
            let neighbours: Vec<(usize, usize)> = gains
                .keys()
                .copied()
                .filter(|&(first, second)| [one, other].contains(&first) || [one, other].contains(&second))
                .collect();
            for (first, second) in neighbours {
                gains.remove(&(first, second));
                let [first, second] = [first, second].map(|block| if block == other { one } else { block });
                self.value(&blocks, (first.min(second), first.max(second)), &mut gains, &mut budget);
            }
        }
        blocks.iter().flatten().map(|block| block.bound).sum()
    }

    /// Notes what merging two blocks gains, if it gains anything and there is budget to find out.
    fn value(
        &self,
        blocks: &[Option<Block>],
        pair: (usize, usize),
        gains: &mut BTreeMap<(usize, usize), f64>,
        budget: &mut usize,
    ) {
        let (Some(one), Some(other)) = (&blocks[pair.0], &blocks[pair.1]) else { return };
        let events = one.costs.len() + other.costs.len();
        if pair.0 == pair.1 || gains.contains_key(&pair) || *budget < events {
            return;
        }
        *budget -= events;
        let together = self.integral(&sum(&one.costs, &other.costs));
        let gain = together - one.bound - other.bound;
        // Less than that may be rounding.
        if gain > 1e-9 * together {
            gains.insert(pair, gain);
        }
    }
}

/// The pair that gains most, of equal ones the first.
fn best(gains: &BTreeMap<(usize, usize), f64>) -> Option<(usize, usize)> {
    let best = gains.iter().reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(&pair, _)| pair)
}

/// Costs of both, ascending by function.
fn sum(one: &[(FunctionId, f64)], other: &[(FunctionId, f64)]) -> Vec<(FunctionId, f64)> {
    let mut all = [one, other].concat();
    all.sort_by_key(|&(function, _)| function);
    all.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        earlier.1 += if is_same { later.1 } else { 0.0 };
        is_same
    });
    all
}
