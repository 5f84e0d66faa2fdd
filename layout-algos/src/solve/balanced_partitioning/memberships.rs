//! Which functions belong to which prefixes of which traces.
//!
//! Prefixes of one trace are nested, so one number per (function, trace) says everything: the shortest prefix
//! the function is in. All longer ones contain it as well.

use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, Rows, TraceView, Traces};

/// Weights are scaled down to at most this, so that sums of gains fit 64 bits: closeness below 2²³, at most
/// 2⁶ prefixes and 2²⁶ traces of weight 2⁸ stay below 2⁶³.
const MAX_WEIGHT: u64 = 1 << 8;

/// A prefix of a trace: trace number × prefixes per trace + number of the prefix, the shortest being 0.
pub(in crate::solve) type Slot = u32;

/// The memberships of all traced functions.
pub(in crate::solve) struct Memberships {
    /// Traced functions, those that some trace needs early first; ties in link order.
    pub(in crate::solve) functions: Vec<FunctionId>,
    /// By position in `functions`: one slot for each trace the function occurs in, the shortest prefix it is in.
    pub(in crate::solve) slots: Rows<Slot>,
    /// By trace: weight, at most [`MAX_WEIGHT`].
    pub(in crate::solve) weights: Vec<i64>,
    /// Prefixes of each trace.
    pub(in crate::solve) prefixes: u32,
}

impl Memberships {
    /// Cuts each trace into `prefixes` parts of equally many bytes; prefix n ends with part n.
    pub(in crate::solve) fn of(problem: &LayoutProblem, prefixes: u32) -> Self {
        let functions = in_temporal_order(problem);
        let mut positions = vec![0u32; problem.function_count()];
        for (position, function) in functions.iter().enumerate() {
            positions[function.index()] = position as u32;
        }
        let totals: Vec<u64> = problem.traces().iter().map(|trace| bytes(trace, problem)).collect();
        let positions = &positions;
        let pairs = || {
            problem.traces().iter().zip(&totals).flat_map(move |(trace, &total)| {
                with_bytes_before(trace, problem).map(move |(function, before)| {
                    let prefix = u128::from(before) * u128::from(prefixes) / u128::from(total.max(1));
                    // Functions of size 0 at the very end would begin a part of their own.
                    let prefix = (prefix as u32).min(prefixes - 1);
                    (positions[function.index()] as usize, trace.id.0 * prefixes + prefix)
                })
            })
        };
        // A problem has fewer than 2³² events.
        let slots = Rows::grouped(functions.len(), pairs).unwrap_or_default();
        Self { functions, slots, weights: scaled_weights(problem.traces()), prefixes }
    }

    /// Number of slots of all traces.
    pub(in crate::solve) fn slot_count(&self) -> usize {
        self.weights.len() * self.prefixes as usize
    }
}

/// Traced functions by the fewest bytes of a trace that ran before them.
fn in_temporal_order(problem: &LayoutProblem) -> Vec<FunctionId> {
    let mut earliest = vec![u64::MAX; problem.function_count()];
    for trace in problem.traces().iter() {
        for (function, before) in with_bytes_before(trace, problem) {
            let earliest = &mut earliest[function.index()];
            *earliest = before.min(*earliest);
        }
    }
    let mut functions: Vec<FunctionId> = problem
        .traced()
        .into_iter()
        .enumerate()
        .filter_map(|(index, is_traced)| is_traced.then_some(FunctionId(index as u32)))
        .collect();
    functions.sort_unstable_by_key(|function| (earliest[function.index()], *function));
    functions
}

fn with_bytes_before<'a>(
    trace: TraceView<'a>,
    problem: &'a LayoutProblem,
) -> impl Iterator<Item = (FunctionId, u64)> + 'a {
    trace.functions.iter().scan(0u64, |bytes, &function| {
        let before = *bytes;
        *bytes = bytes.saturating_add(problem.size(function));
        Some((function, before))
    })
}

fn bytes(trace: TraceView<'_>, problem: &LayoutProblem) -> u64 {
    trace.functions.iter().fold(0, |bytes, &function| bytes.saturating_add(problem.size(function)))
}

fn scaled_weights(traces: &Traces) -> Vec<i64> {
    let heaviest = traces.iter().map(|trace| trace.weight).max().unwrap_or(1);
    let divisor = heaviest.div_ceil(MAX_WEIGHT);
    traces.iter().map(|trace| (trace.weight / divisor).max(1) as i64).collect()
}
