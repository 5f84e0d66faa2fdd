//! Finds the order of unrecorded functions that is best for new runs, from the recorded ones.

use rayon::prelude::*;

use super::{Children, Parent, ReferenceWalk, Roots, UnseenOrder, traced_in_time};
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::{LayoutProblem, Trace, TraceView};
use crate::score::{Cost, cost_of_trace, positions};

/// Compares orders by their cost for each part of the recorded runs when only the other parts are known.
///
/// Few large parts are a better test than many small ones: really new runs differ from the recorded ones by more than one of
/// these differs from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossValidation {
    /// Parts; at least 2.
    pub folds: usize,
    /// The most visits of functions and references in all: bounds the time. Where it is not enough for all orders,
    /// the most useful ones are compared.
    pub most_visits: u64,
}

impl Default for CrossValidation {
    fn default() -> Self {
        Self { folds: 2, most_visits: 10_000_000 }
    }
}

/// The cost of an order for the runs that it did not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The order.
    pub order: UnseenOrder,
    /// The cost of these runs together; zero where no orders were compared.
    pub cost: Cost,
}

/// Used where there are too few runs, or too much code, to compare: across programs the most reliable one.
const DEFAULT: UnseenOrder = UnseenOrder::References(ReferenceWalk {
    parent: Parent::DepthFirst,
    roots: Roots::Link,
    children: Children::Position,
    children_first: false,
});

/// Fewer orders than this are not worth comparing.
const MIN_ORDERS: usize = 4;

/// Known runs, and others that are taken for new ones.
pub(in crate::solve) struct Fold {
    /// The problem with the known runs alone.
    pub(in crate::solve) known: LayoutProblem,
    others: LayoutProblem,
}

impl CrossValidation {
    /// The orders that were compared, the best one first. Ties keep the order of [`UnseenOrder::all`], whose first
    /// is the linker's order. Never empty.
    #[must_use]
    pub fn compare(&self, problem: &LayoutProblem) -> Vec<Validated> {
        let untested = |order| vec![Validated { order, cost: Cost(0) }];
        let Some(references) = problem.references() else { return untested(UnseenOrder::Link) };
        let folds = self.folds.max(2);
        let step = references.node_count()
            + references.reference_count()
            + problem.function_count()
            + problem.traces().event_count();
        let affordable = self.most_visits / (step.max(1) as u64) / folds as u64;
        let mut orders = UnseenOrder::all();
        orders.truncate(affordable as usize);
        if orders.len() < MIN_ORDERS || problem.traces().len() < 2 * folds {
            return untested(DEFAULT);
        }
        let folds: Vec<Fold> = (0..folds).filter_map(|part| Fold::new(problem, part, folds)).collect();
        let mut validated: Vec<Validated> = orders
            .into_par_iter()
            .map(|order| {
                let costs = folds.iter().map(|fold| fold.cost_of_others(&fold.with_unseen(order)).0);
                Validated { order, cost: Cost(costs.fold(0, u64::saturating_add)) }
            })
            .collect();
        validated.sort_by_key(|validated| validated.cost);
        validated
    }
}

impl Fold {
    /// Every `parts`-th trace from `part` on is taken for a new run.
    pub(in crate::solve) fn new(problem: &LayoutProblem, part: usize, parts: usize) -> Option<Self> {
        let scenarios = scenarios(problem);
        let (others, known): (Vec<_>, Vec<_>) =
            problem.traces().iter().partition(|trace| scenarios[trace.id.index()] % parts == part);
        let with = |traces: Vec<TraceView<'_>>| {
            let owned =
                |trace: TraceView<'_>| Trace { weight: trace.weight, functions: trace.functions.to_vec() };
            problem.with_traces(&traces.into_iter().map(owned).collect::<Vec<_>>()).ok()
        };
        Some(Self { known: with(known)?, others: with(others)? })
    }

    /// The known runs' functions, then those of `unseen`.
    pub(in crate::solve) fn with_unseen(&self, unseen: UnseenOrder) -> FunctionOrder {
        let functions = traced_in_time(&self.known).into_iter().chain(unseen.order(&self.known));
        FunctionOrder::with_rest(functions, self.known.function_count() as u32)
    }

    /// The cost of the other runs with `order`.
    pub(in crate::solve) fn cost_of_others(&self, order: &FunctionOrder) -> Cost {
        self.cost_of_others_among(order, None)
    }

    /// The same for those of their functions that `is_counted`, all where that is `None`.
    pub(in crate::solve) fn cost_of_others_among(
        &self,
        order: &FunctionOrder,
        is_counted: Option<&[bool]>,
    ) -> Cost {
        let spans = positions(&self.known, order);
        let cost = |trace: TraceView<'_>| {
            let counted = trace.functions.iter().copied();
            let counted = counted
                .filter(|function| is_counted.is_none_or(|is_counted| is_counted[function.index()]))
                .collect::<Vec<_>>();
            let counted = TraceView { functions: &counted, ..trace };
            cost_of_trace(self.others.objective(), counted, &spans).0.saturating_mul(trace.weight)
        };
        Cost(self.others.traces().iter().map(cost).fold(0, u64::saturating_add))
    }
}

/// Of 100 functions that one or the other of two recordings of one scenario runs, both run at least this many.
const SAME_SCENARIO_PERCENT: usize = 95;

/// By trace: the number of its scenario. Neighbouring traces that run nearly the same functions are recordings of one
/// scenario: in different parts each would reveal the other, and no run would be new.
fn scenarios(problem: &LayoutProblem) -> Vec<usize> {
    let mut last_trace = vec![None; problem.function_count()];
    let mut scenarios: Vec<usize> = Vec::with_capacity(problem.traces().len());
    let mut previous: Option<TraceView<'_>> = None;
    for trace in problem.traces().iter() {
        let number = match (previous, scenarios.last()) {
            (Some(previous), Some(&number)) => {
                let is_shared = |function: &&FunctionId| last_trace[function.index()] == Some(previous.id);
                let shared = trace.functions.iter().filter(is_shared).count();
                let either = trace.functions.len() + previous.functions.len() - shared;
                number + usize::from(shared * 100 < either * SAME_SCENARIO_PERCENT)
            }
            _ => 0,
        };
        scenarios.push(number);
        for function in trace.functions {
            last_trace[function.index()] = Some(trace.id);
        }
        previous = Some(trace);
    }
    scenarios
}
