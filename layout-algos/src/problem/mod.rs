//! The layout problem: functions with sizes, traces of which functions ran first, and further facts.
//!
//! Sizes and traces make a problem; each further fact is added by a `with_` function, which checks that it fits.

mod references;
mod rows;
mod traces;

use std::fmt;

use crate::ids::{FunctionId, TraceId};
use crate::score::{Objective, Span};

pub use references::{NodeId, Reference, ReferenceGraph, ReferenceKind};
pub use rows::{Rows, TooManyItems};
pub use traces::{Trace, TraceView, Traces};

/// Alignment of functions unless it is given: what compilers choose on x86-64.
pub const DEFAULT_ALIGNMENT: u32 = 16;

/// Functions, traces and further facts whose indices fit together.
#[derive(Clone, Debug)]
pub struct LayoutProblem {
    sizes: Vec<u64>,
    alignments: Vec<u32>,
    traces: Traces,
    references: Option<ReferenceGraph>,
    fingerprints: Option<Rows<u32>>,
    origin: u64,
    obstacles: Vec<Span>,
    objective: Objective,
}

/// Why facts are inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemError {
    /// More functions, traces or events than 32-bit indices can tell apart, or bytes than 62-bit addresses.
    TooLarge,
    /// A trace names a function that does not exist.
    UnknownFunction(TraceId, FunctionId),
    /// A trace names a function twice.
    RepeatedFunction(TraceId, FunctionId),
    /// A trace has weight 0.
    ZeroWeight(TraceId),
    /// Alignments, references or fingerprints of another number of functions.
    OtherFunctions,
    /// An alignment that is not a power of two.
    Alignment(FunctionId),
    /// Obstacles that overlap, are empty or do not ascend.
    Obstacles,
    /// Fingerprints of a function that do not ascend.
    Fingerprints(FunctionId),
    /// A page size or window that is not a power of two, or a share above 100 per cent.
    Objective,
}

impl LayoutProblem {
    /// Functions of the given `sizes` (bytes, in link order) and their `traces`.
    ///
    /// # Errors
    /// Traces that name unknown functions or one function twice, or that have weight 0.
    pub fn new(sizes: Vec<u64>, traces: &[Trace]) -> Result<Self, ProblemError> {
        if u32::try_from(sizes.len()).is_err() {
            return Err(ProblemError::TooLarge);
        }
        let traces = Traces::new(traces, sizes.len())?;
        Self {
            alignments: vec![DEFAULT_ALIGNMENT; sizes.len()],
            sizes,
            traces,
            references: None,
            fingerprints: None,
            origin: 0,
            obstacles: Vec::new(),
            objective: Objective::default(),
        }
        .addressable()
    }

    /// The problem with the alignment of each function, in bytes.
    ///
    /// # Errors
    /// Another number of functions, or alignments that are not powers of two.
    pub fn with_alignments(mut self, alignments: Vec<u32>) -> Result<Self, ProblemError> {
        if alignments.len() != self.sizes.len() {
            return Err(ProblemError::OtherFunctions);
        }
        if let Some(index) = alignments.iter().position(|alignment| !alignment.is_power_of_two()) {
            return Err(ProblemError::Alignment(FunctionId(index as u32)));
        }
        self.alignments = alignments;
        self.addressable()
    }

    /// The problem with the references from the image's code and data.
    ///
    /// # Errors
    /// Another number of functions.
    pub fn with_references(mut self, references: ReferenceGraph) -> Result<Self, ProblemError> {
        if references.function_count() != self.sizes.len() {
            return Err(ProblemError::OtherFunctions);
        }
        self.references = Some(references);
        Ok(self)
    }

    /// The problem with hashes of each function's content, ascending: functions with many equal hashes compress well
    /// together.
    ///
    /// # Errors
    /// Another number of functions, hashes that do not ascend.
    pub fn with_fingerprints(mut self, fingerprints: Rows<u32>) -> Result<Self, ProblemError> {
        if fingerprints.len() != self.sizes.len() {
            return Err(ProblemError::OtherFunctions);
        }
        let is_ascending = |row: &[u32]| row.is_sorted_by(|one, other| one < other);
        if let Some(index) = fingerprints.iter().position(|row| !is_ascending(row)) {
            return Err(ProblemError::Fingerprints(FunctionId(index as u32)));
        }
        self.fingerprints = Some(fingerprints);
        Ok(self)
    }

    /// The problem with functions placed from address `origin` on, around `obstacles`, which ascend.
    ///
    /// # Errors
    /// Obstacles that are empty, overlap or do not ascend.
    pub fn with_text(mut self, origin: u64, obstacles: Vec<Span>) -> Result<Self, ProblemError> {
        let mut free_from = 0;
        for obstacle in &obstacles {
            if obstacle.start < free_from || obstacle.end <= obstacle.start {
                return Err(ProblemError::Obstacles);
            }
            free_from = obstacle.end;
        }
        self.origin = origin;
        self.obstacles = obstacles;
        self.addressable()
    }

    /// The problem, if no order of its functions needs more than 62-bit addresses: sums of addresses do not overflow then.
    fn addressable(self) -> Result<Self, ProblemError> {
        let padded = self.sizes.iter().zip(&self.alignments);
        let bytes: u128 = padded.map(|(&size, &alignment)| u128::from(size) + u128::from(alignment)).sum();
        let first = self.obstacles.last().map_or(self.origin, |last| last.end.max(self.origin));
        // What follows the last obstacle is contiguous, so this is an upper bound of all ends.
        if u128::from(first) + bytes < 1 << 62 { Ok(self) } else { Err(ProblemError::TooLarge) }
    }

    /// The problem with an objective.
    ///
    /// # Errors
    /// Sizes that are not powers of two, shares above 100 per cent.
    pub fn with_objective(mut self, objective: Objective) -> Result<Self, ProblemError> {
        if !objective.is_valid() {
            return Err(ProblemError::Objective);
        }
        self.objective = objective;
        Ok(self)
    }

    /// The same functions and facts with other traces.
    ///
    /// # Errors
    /// As for [`LayoutProblem::new`].
    pub fn with_traces(&self, traces: &[Trace]) -> Result<Self, ProblemError> {
        let traces = Traces::new(traces, self.sizes.len())?;
        Ok(Self { traces, ..self.clone() })
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

    /// Alignment of one function in bytes.
    #[must_use]
    pub fn alignment(&self, function: FunctionId) -> u32 {
        self.alignments[function.index()]
    }

    /// Bytes of one function with the padding to its own alignment after it.
    #[must_use]
    pub fn padded_size(&self, function: FunctionId) -> u64 {
        self.size(function).saturating_add(u64::from(self.alignment(function)) - 1)
            & !(u64::from(self.alignment(function)) - 1)
    }

    /// The traces in the order they were given.
    #[must_use]
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Which functions occur in any trace.
    #[must_use]
    pub fn traced(&self) -> Vec<bool> {
        let mut traced = vec![false; self.sizes.len()];
        for function in self.traces.iter().flat_map(|trace| trace.functions) {
            traced[function.index()] = true;
        }
        traced
    }

    /// The references from code and data, if they are known.
    #[must_use]
    pub fn references(&self) -> Option<&ReferenceGraph> {
        self.references.as_ref()
    }

    /// Hashes of each function's content, if they are known.
    #[must_use]
    pub fn fingerprints(&self) -> Option<&Rows<u32>> {
        self.fingerprints.as_ref()
    }

    /// The first address for functions.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// The ranges that functions cannot be placed on, ascending.
    #[must_use]
    pub fn obstacles(&self) -> &[Span] {
        &self.obstacles
    }

    /// The objective.
    #[must_use]
    pub fn objective(&self) -> Objective {
        self.objective
    }
}

impl fmt::Display for ProblemError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => formatter.write_str(
                "more functions, traces or events than 32-bit numbers, or bytes than 62-bit addresses",
            ),
            Self::UnknownFunction(trace, function) => {
                write!(formatter, "trace {} names function {}, which does not exist", trace.0, function.0)
            }
            Self::RepeatedFunction(trace, function) => {
                write!(formatter, "trace {} names function {} twice", trace.0, function.0)
            }
            Self::ZeroWeight(trace) => write!(formatter, "trace {} has weight 0", trace.0),
            Self::OtherFunctions => formatter.write_str("facts about another number of functions"),
            Self::Alignment(function) => {
                write!(formatter, "the alignment of function {} is not a power of two", function.0)
            }
            Self::Fingerprints(function) => {
                write!(formatter, "the fingerprints of function {} do not ascend", function.0)
            }
            Self::Obstacles => formatter.write_str("obstacles overlap, are empty or do not ascend"),
            Self::Objective => {
                formatter.write_str("sizes must be powers of two and shares at most 100 per cent")
            }
        }
    }
}

impl std::error::Error for ProblemError {}

#[cfg(test)]
mod tests;
