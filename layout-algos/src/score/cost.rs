//! The cost of an order under a problem's objective.

use rayon::prelude::*;

use super::{FaultCurve, Objective, Span, positions};
use crate::ids::TraceId;
use crate::order::FunctionOrder;
use crate::problem::{LayoutProblem, TraceView};

/// Thousandths of a fault, weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u64);

impl Objective {
    /// The cost of a run with this curve: between its faults and their mean over time, by the share of early faults.
    #[must_use]
    pub fn cost_of(self, curve: &FaultCurve) -> Cost {
        let points = curve.after_each().len().max(1) as u128;
        let area: u128 = curve.after_each().iter().map(|&faults| u128::from(faults)).sum();
        let early = u128::from(self.early_percent);
        let thousandths = ((100 - early) * u128::from(curve.total()) * points + early * area) * 10 / points;
        Cost(u64::try_from(thousandths).unwrap_or(u64::MAX))
    }
}

/// The cost of the traces of `problem` in `order`, weights applied. Exact: each run is replayed.
#[must_use]
pub fn cost(problem: &LayoutProblem, order: &FunctionOrder) -> Cost {
    let spans = positions(problem, order);
    let total = (0..problem.traces().len() as u32)
        .into_par_iter()
        .map(|index| {
            let trace = problem.traces().get(TraceId(index));
            cost_of_trace(problem.objective(), trace, &spans).0.saturating_mul(trace.weight)
        })
        .reduce(|| 0, u64::saturating_add);
    Cost(total)
}

/// The cost of one run with its functions at `spans`, without its weight.
#[must_use]
pub fn cost_of_trace(objective: Objective, trace: TraceView<'_>, spans: &[Span]) -> Cost {
    objective.cost_of(&objective.model.faults(trace.functions.iter().map(|function| spans[function.index()])))
}
