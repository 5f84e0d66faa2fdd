//! What a layout has to serve: functions with sizes, and traces of which functions ran first.

use std::fmt;

use crate::ids::{FunctionId, TraceId};

/// One recorded start: its functions in the order of their first execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How much this start counts; at least 1.
    pub weight: u64,
    /// Each executed function once, in the order of first execution.
    pub functions: Vec<FunctionId>,
}

/// Functions and traces whose indices fit together.
#[derive(Clone, Debug)]
pub struct LayoutProblem {
    sizes: Vec<u64>,
    traces: Vec<Trace>,
}

/// Why sizes and traces make no problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemError {
    /// More functions or traces than 32-bit indices can tell apart.
    TooLarge,
    /// A trace names a function that does not exist.
    UnknownFunction(TraceId, FunctionId),
    /// A trace names a function twice.
    RepeatedFunction(TraceId, FunctionId),
    /// A trace has weight 0.
    ZeroWeight(TraceId),
}

impl LayoutProblem {
    /// Functions of the given `sizes` (bytes, in link order) and their `traces`.
    ///
    /// # Errors
    /// Traces that name unknown functions or one function twice, or that weigh nothing.
    pub fn new(sizes: Vec<u64>, traces: Vec<Trace>) -> Result<Self, ProblemError> {
        if u32::try_from(sizes.len()).is_err() || u32::try_from(traces.len()).is_err() {
            return Err(ProblemError::TooLarge);
        }
        let mut seen_by = vec![None; sizes.len()];
        for (index, trace) in traces.iter().enumerate() {
            let id = TraceId(index as u32);
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
        }
        Ok(Self { sizes, traces })
    }

    /// Number of functions.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes of each function, in link order.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Bytes of one function.
    #[must_use]
    pub fn size(&self, function: FunctionId) -> u64 {
        self.sizes[function.index()]
    }

    /// The traces in the order they were given.
    #[must_use]
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// Which functions occur in any trace.
    #[must_use]
    pub fn traced(&self) -> Vec<bool> {
        let mut traced = vec![false; self.sizes.len()];
        for function in self.traces.iter().flat_map(|trace| &trace.functions) {
            traced[function.index()] = true;
        }
        traced
    }
}

impl fmt::Display for ProblemError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(formatter, "more than {} functions or traces", u32::MAX),
            Self::UnknownFunction(trace, function) => {
                write!(formatter, "trace {} names function {}, which does not exist", trace.0, function.0)
            }
            Self::RepeatedFunction(trace, function) => {
                write!(formatter, "trace {} names function {} twice", trace.0, function.0)
            }
            Self::ZeroWeight(trace) => write!(formatter, "trace {} has weight 0", trace.0),
        }
    }
}

impl std::error::Error for ProblemError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(functions: &[u32], weight: u64) -> Result<LayoutProblem, ProblemError> {
        let functions = functions.iter().map(|&index| FunctionId(index)).collect();
        LayoutProblem::new(
            vec![16, 32],
            vec![Trace { weight: 1, functions: vec![] }, Trace { weight, functions }],
        )
    }

    #[test]
    fn inconsistent_traces_are_rejected() {
        assert!(build(&[1, 0], 1).is_ok());
        assert_eq!(build(&[2], 1).unwrap_err(), ProblemError::UnknownFunction(TraceId(1), FunctionId(2)));
        assert_eq!(build(&[1, 1], 1).unwrap_err(), ProblemError::RepeatedFunction(TraceId(1), FunctionId(1)));
        assert_eq!(build(&[0], 0).unwrap_err(), ProblemError::ZeroWeight(TraceId(1)));
    }

    #[test]
    fn several_traces_may_share_functions() {
        let trace = Trace { weight: 1, functions: vec![FunctionId(1)] };
        let problem = LayoutProblem::new(vec![16, 32], vec![trace.clone(), trace]).unwrap();
        assert_eq!(problem.traced(), [false, true]);
    }
}
