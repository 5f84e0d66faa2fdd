//! Recorded runs in compressed rows.

use super::ProblemError;
use super::rows::Rows;
use crate::ids::{FunctionId, TraceId};

/// One recorded run: its functions in the order of their first execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How much this run counts; at least 1.
    pub weight: u64,
    /// Each executed function once, in the order of first execution.
    pub functions: Vec<FunctionId>,
}

impl Trace {
    /// A run that counts `weight` times, its functions by number.
    #[must_use]
    pub fn of(weight: u64, functions: &[u32]) -> Self {
        Self { weight, functions: functions.iter().map(|&index| FunctionId(index)).collect() }
    }
}

/// One recorded run of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceView<'problem> {
    /// Its position in the problem.
    pub id: TraceId,
    /// How much this run counts; at least 1.
    pub weight: u64,
    /// Each executed function once, in the order of first execution.
    pub functions: &'problem [FunctionId],
}

/// All recorded runs of a problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    weights: Vec<u64>,
    functions: Rows<FunctionId>,
}

impl Traces {
    pub(super) fn new(traces: &[Trace], function_count: usize) -> Result<Self, ProblemError> {
        let events = traces.iter().map(|trace| trace.functions.len()).sum();
        let mut functions = Rows::with_capacity(traces.len(), events);
        let mut seen_by = vec![None; function_count];
        for (index, trace) in traces.iter().enumerate() {
            let id = TraceId(u32::try_from(index).map_err(|_| ProblemError::TooLarge)?);
            if trace.weight == 0 {
                return Err(ProblemError::ZeroWeight(id));
            }
            for &function in &trace.functions {
                let seen =
                    seen_by.get_mut(function.index()).ok_or(ProblemError::UnknownFunction(id, function))?;
                if seen.replace(id) == Some(id) {
                    return Err(ProblemError::RepeatedFunction(id, function));
                }
            }
            functions.push(trace.functions.iter().copied()).map_err(|_| ProblemError::TooLarge)?;
        }
        Ok(Self { weights: traces.iter().map(|trace| trace.weight).collect(), functions })
    }

    /// Number of traces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are no traces.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// First executions in all traces together.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.functions.items().len()
    }

    /// One trace.
    #[must_use]
    pub fn get(&self, id: TraceId) -> TraceView<'_> {
        TraceView { id, weight: self.weights[id.index()], functions: self.functions.row(id.index()) }
    }

    /// All traces in the order they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TraceView<'_>> {
        (0..self.weights.len()).map(|index| self.get(TraceId(index as u32)))
    }
}
