//! Which order of unrecorded functions serves new starts best, told from the recorded ones.

use rayon::prelude::*;

use super::{UnseenOrder, traced_in_time};
use crate::ids::TraceId;
use crate::order::FunctionOrder;
use crate::problem::{LayoutProblem, Trace};
use crate::score::positions;

/// Compares orders by leaving out recorded starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossValidation {
    /// The most starts that are left out, one at a time; evenly spaced if there are more.
    pub most_folds: usize,
    /// The most visits of functions and references in all: bounds the time. Starts are left out, then orders, until
    /// the rest fits.
    pub most_visits: u64,
}

impl Default for CrossValidation {
    fn default() -> Self {
        Self { most_folds: 12, most_visits: 40_000_000 }
    }
}

/// What an order costs the starts that it did not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The order.
    pub order: UnseenOrder,
    /// Weighted faults of the left-out starts, by the problem's objective; 0 where nothing was compared.
    pub cost: u64,
}

/// Used where there are too few starts, or too much code, to compare: across programs the most reliable one.
const USUAL: UnseenOrder = UnseenOrder::References(super::ReferenceWalk {
    parent: super::Parent::DepthFirst,
    roots: super::Roots::Link,
    children: super::Children::Position,
    children_first: false,
});

impl CrossValidation {
    /// The orders that were compared, the best one first. Ties keep the order of [`UnseenOrder::all`], whose first
    /// is the linker's order. Never empty.
    #[must_use]
    pub fn compare(&self, problem: &LayoutProblem) -> Vec<Validated> {
        let usual = vec![Validated { order: USUAL, cost: 0 }];
        let Some(references) = problem.references() else {
            return vec![Validated { order: UnseenOrder::Link, cost: 0 }];
        };
        let step = (references.node_count() + references.reference_count() + problem.function_count()) as u64;
        let runs = self.most_visits / step.max(1);
        let orders = UnseenOrder::all();
        let count = problem.traces().len();
        let folds = count.min(self.most_folds).min((runs / orders.len() as u64) as usize);
        // With fewer left out, their differences are chance.
        if folds < 4.min(count) || count < 3 {
            return usual;
        }
        let left_out: Vec<TraceId> = (0..folds).map(|fold| TraceId((fold * count / folds) as u32)).collect();
        let known: Vec<LayoutProblem> =
            left_out.iter().filter_map(|&trace| without(problem, trace)).collect();
        let pairs: Vec<(usize, usize)> =
            (0..orders.len()).flat_map(|order| (0..known.len()).map(move |fold| (order, fold))).collect();
        let costs: Vec<u64> = pairs
            .par_iter()
            .map(|&(order, fold)| cost_of_unknown(problem, left_out[fold], &known[fold], orders[order]))
            .collect();
        let mut validated: Vec<Validated> = orders
            .into_iter()
            .zip(costs.chunks(known.len().max(1)))
            .map(|(order, costs)| Validated { order, cost: costs.iter().sum() })
            .collect();
        validated.sort_by_key(|validated| validated.cost);
        validated
    }
}

/// The problem without one of its traces.
fn without(problem: &LayoutProblem, left_out: TraceId) -> Option<LayoutProblem> {
    let others: Vec<Trace> = problem
        .traces()
        .iter()
        .filter(|trace| trace.id != left_out)
        .map(|trace| Trace { weight: trace.weight, functions: trace.functions.to_vec() })
        .collect();
    problem.with_traces(&others).ok()
}

/// What a trace costs that `known` does not have, with `order` for the functions outside `known`'s traces.
fn cost_of_unknown(
    problem: &LayoutProblem,
    trace: TraceId,
    known: &LayoutProblem,
    order: UnseenOrder,
) -> u64 {
    let functions = traced_in_time(known).into_iter().chain(order.order(known));
    let order = FunctionOrder::with_rest(functions, known.function_count() as u32);
    let spans = positions(known, &order);
    let trace = problem.traces().get(trace);
    let curve =
        problem.objective().model.faults(trace.functions.iter().map(|function| spans[function.index()]));
    trace.weight.saturating_mul(curve.total())
}
