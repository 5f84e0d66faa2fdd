//! Which functions belong to which prefixes of which traces.
//!
//! Prefixes of one trace are nested, so one number per (function, trace) says everything: the shortest prefix
//! the function is in. All longer ones contain it as well.

use crate::ids::{FunctionId, TraceId};
use crate::problem::{LayoutProblem, TraceView, Traces};

/// Bytes of the shortest prefix: one page of the common size. Order inside it cannot change a fault.
const SHORTEST_PREFIX: u64 = 4096;

/// Weights are scaled down to at most this, so that sums of gains fit 64 bits: closeness below 2²³, at most
/// 2⁶ prefixes and 2²⁶ traces of weight 2⁸ stay below 2⁶³.
const LARGEST_WEIGHT: u64 = 1 << 8;

/// A function's place in one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) trace: TraceId,
    /// The shortest prefix that contains the function, 0 being the trace's shortest.
    pub(super) prefix: u8,
}

/// The memberships of all functions, and what the traces count.
pub(super) struct Memberships {
    /// Where each function's memberships end; they begin where the previous function's end.
    ends: Vec<usize>,
    all: Vec<Membership>,
    /// By trace: weight, at most [`LARGEST_WEIGHT`].
    pub(super) weights: Vec<i64>,
    /// By trace: number of prefixes.
    pub(super) prefix_counts: Vec<u8>,
    /// By function: fewest bytes of a trace that ran before it. `None` outside all traces.
    earliest: Vec<Option<u64>>,
}

impl Memberships {
    pub(super) fn of(problem: &LayoutProblem) -> Self {
        let count = problem.function_count();
        let mut starts = vec![0usize; count + 1];
        for function in problem.traces().iter().flat_map(|trace| trace.functions) {
            starts[function.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut ends = starts;
        let total = ends.pop().unwrap_or(0);
        let mut all = vec![Membership { trace: TraceId(0), prefix: 0 }; total];
        let mut earliest = vec![None; count];
        let mut prefix_counts = Vec::with_capacity(problem.traces().len());
        for (index, trace) in problem.traces().iter().enumerate() {
            let trace_id = TraceId(index as u32);
            let mut prefix = 0;
            for (function, bytes_before) in with_bytes_before(trace, problem) {
                prefix = prefix_at(bytes_before);
                let end = &mut ends[function.index()];
                all[*end] = Membership { trace: trace_id, prefix };
                *end += 1;
                let earliest = &mut earliest[function.index()];
                *earliest = Some(earliest.map_or(bytes_before, |known: u64| known.min(bytes_before)));
            }
            prefix_counts.push(prefix + 1);
        }
        Self { ends, all, weights: scaled_weights(problem.traces()), prefix_counts, earliest }
    }

    /// The traces a function occurs in, by trace.
    pub(super) fn of_function(&self, function: FunctionId) -> &[Membership] {
        let start = function.index().checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.all[start..self.ends[function.index()]]
    }

    /// All functions of any trace, those that some trace needs early first; ties in link order.
    pub(super) fn in_temporal_order(&self) -> Vec<FunctionId> {
        let mut functions: Vec<(u64, FunctionId)> = self
            .earliest
            .iter()
            .enumerate()
            .filter_map(|(index, &earliest)| Some((earliest?, FunctionId(index as u32))))
            .collect();
        functions.sort_unstable();
        functions.into_iter().map(|(_, function)| function).collect()
    }
}

/// The shortest prefix a function is in that starts after this many bytes of its trace: at most 53.
fn prefix_at(bytes_before: u64) -> u8 {
    (bytes_before / SHORTEST_PREFIX).checked_ilog2().map_or(0, |doublings| doublings as u8 + 1)
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

fn scaled_weights(traces: &Traces) -> Vec<i64> {
    let heaviest = traces.iter().map(|trace| trace.weight).max().unwrap_or(1);
    let divisor = heaviest.div_ceil(LARGEST_WEIGHT);
    traces.iter().map(|trace| (trace.weight / divisor).max(1) as i64).collect()
}
