//! What no layout can cost less, for all starts together.
//!
//! **Cost.** A page that the function at position i of a trace's n functions is the first to touch costs the start
//! v = w · ((1 − e) + e · (n − i) / n), w being the weight of the trace and e the objective's share of the mean of the
//! fault curve: it counts once in the total, and in n − i of the n points of the curve. So with v(t, f) for the
//! function f in the trace t, 0 if t does not run f, a page costs Σ_t max over the functions f on it of v(t, f).
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
//! traces are merged greedily, where that raises the bound most, within a budget; whatever comes out is proven.
//!
//! **Bytes.** See [`Occupancy`].
//!
//! **Read-around.** Windows of different starts lie differently, so there are no pages that several starts share and
//! only single traces are bounded: each fault makes at most one window present, and the faults before the function
//! number k have made present all bytes of the functions before it.
//!
//! Numbers are in floating point: a bound may exceed the exact one by rounding, at most 10⁻⁹ of it.

use std::collections::BTreeMap;

use super::FaultModel;
use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, TraceView};

/// Events that may be looked at to find a good partition: some seconds.
const MOST_EVENTS: usize = 1 << 25;

/// Pairs of traces that are considered at first.
const MOST_PAIRS: usize = 1 << 14;

/// Bytes that functions keep others from using.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occupancy {
    /// The bytes of the functions. Proven for every layout.
    Raw,
    /// Proven for every layout in which each function starts at a multiple of its alignment. Let a be a power of two
    /// up to the page size. Of the functions with alignment a or more, no two share one of the aligned blocks of a
    /// bytes, and a page with such a block is touched if the block's function is. So those functions need as many
    /// bytes as their sizes rounded up to a. The bound takes the best a for each set of functions; less aligned ones
    /// count only for smaller a, because they may lie in the padding of the others.
    Aligned,
    /// Sizes rounded up to each function's own alignment. The same as `Aligned`, hence proven, if all alignments are
    /// equal and no larger than a page; otherwise what is reached in practice by layouts that do not fill padding, but
    /// not proven: a function of little alignment fits into the padding behind one of much.
    Padded,
}

/// Least cost of all starts of a problem by its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBounds {
    /// Sum of what each start alone costs at least.
    pub per_trace: f64,
    /// The best that was found for all starts together; at least `per_trace`.
    pub joint: f64,
}

/// The bounds of `problem` under its objective, sizes counted as `occupancy` says.
///
/// Time is O(events · log events) for the bound of each trace, and within the budget for the partition.
#[must_use]
pub fn lower_bounds(problem: &LayoutProblem, occupancy: Occupancy) -> LowerBounds {
    let layers = Layers { problem, occupancy, page: problem.objective().model.bytes_per_fault().max(1) };
    let blocks: Vec<Block> =
        problem.traces().iter().map(|trace| layers.block(costs(problem, trace))).collect();
    let per_trace = blocks.iter().map(|block| block.bound).sum();
    let joint = match problem.objective().model {
        FaultModel::ReadAround { .. } => per_trace,
        _ => layers.merge_greedily(blocks).max(per_trace),
    };
    LowerBounds { per_trace, joint }
}

/// What a page costs that each function of a trace is the first to touch, ascending by function.
fn costs(problem: &LayoutProblem, trace: TraceView<'_>) -> Vec<(FunctionId, f64)> {
    let early = f64::from(problem.objective().early_percent) / 100.0;
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
        let reach = (MOST_PAIRS / blocks.len().max(1)).max(1);
        let mut budget = MOST_EVENTS;
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

/// Bytes of a growing set of functions.
#[derive(Default)]
struct Occupied {
    /// By binary logarithm of a block size: bytes of the functions aligned to it, sizes rounded up to it.
    by_alignment: [u64; 32],
}

impl Occupied {
    fn add(&mut self, problem: &LayoutProblem, function: FunctionId, occupancy: Occupancy, page: u64) {
        let size = problem.size(function);
        let alignment = u64::from(problem.alignment(function)).min(page);
        let finest = match occupancy {
            Occupancy::Aligned => alignment.ilog2(),
            Occupancy::Raw | Occupancy::Padded => 0,
        };
        let size = if occupancy == Occupancy::Padded { size.next_multiple_of(alignment) } else { size };
        for (exponent, bytes) in self.by_alignment.iter_mut().enumerate().take(finest as usize + 1) {
            *bytes = bytes.saturating_add(size.next_multiple_of(1 << exponent));
        }
    }

    fn bytes(&self) -> u64 {
        self.by_alignment.into_iter().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;
    use crate::score::Objective;

    fn bounds(
        sizes: &[u64],
        alignments: &[u32],
        traces: &[(u64, &[u32])],
        early_percent: u32,
    ) -> [LowerBounds; 3] {
        let traces: Vec<Trace> = traces
            .iter()
            .map(|&(weight, functions)| Trace {
                weight,
                functions: functions.iter().map(|&index| FunctionId(index)).collect(),
            })
            .collect();
        let objective = Objective { model: FaultModel::Pages { size: 128 }, early_percent };
        let problem = LayoutProblem::new(sizes.to_vec(), &traces)
            .and_then(|problem| problem.with_alignments(alignments.to_vec()))
            .and_then(|problem| problem.with_objective(objective))
            .unwrap();
        [Occupancy::Raw, Occupancy::Aligned, Occupancy::Padded].map(|way| lower_bounds(&problem, way))
    }

    #[test]
    fn two_starts_cannot_both_have_their_own_way() {
        // Either start fits a page, but not both the common half and the two own ones.
        let [raw, ..] = bounds(&[64, 64, 64], &[1; 3], &[(1, &[0, 1]), (1, &[0, 2])], 0);
        assert_eq!(raw, LowerBounds { per_trace: 2.0, joint: 3.0 });
        let [raw, ..] = bounds(&[64, 64, 64], &[1; 3], &[(5, &[0, 1]), (3, &[0, 2])], 0);
        assert_eq!(raw, LowerBounds { per_trace: 8.0, joint: 11.0 });
        // Starts without anything in common are best bounded apart.
        let [raw, ..] = bounds(&[64, 64], &[1; 2], &[(1, &[0]), (1, &[1])], 0);
        assert_eq!(raw, LowerBounds { per_trace: 2.0, joint: 2.0 });
    }

    #[test]
    fn prefixes_bound_the_curve() {
        // After each third: 1, 2 and 2 pages.
        let [raw, ..] = bounds(&[100, 100, 56], &[1; 3], &[(3, &[2, 0, 1])], 100);
        assert!((raw.per_trace - 5.0).abs() < 1e-9 && raw.joint >= raw.per_trace);
    }

    #[test]
    fn only_equal_alignments_prove_the_padding() {
        let trace: [(u64, &[u32]); 1] = [(1, &[0, 1, 2])];
        let totals =
            |alignments: &[u32]| bounds(&[65, 33, 30], alignments, &trace, 0).map(|bound| bound.joint);
        assert_eq!(totals(&[1, 1, 1]), [1.0, 1.0, 1.0]);
        assert_eq!(totals(&[16, 16, 16]), [1.0, 2.0, 2.0]);
        // The last function may lie behind the first: 65 + 30 + 33 bytes.
        assert_eq!(totals(&[64, 16, 1]), [1.0, 1.0, 2.0]);
    }
}
