//! Where functions that no trace ran are placed.
//!
//! They do not matter for the recorded runs, but for all others. Which of them a new run will execute cannot be
//! predicted well enough to place those first; but functions that new runs run *together* can be kept
//! together. The best way differs between programs, so it is chosen by cross-validation: each recorded run
//! in turn is taken for a new one, and the order that is best for these is used.

mod cross_validation;
mod reference_walk;
#[cfg(test)]
mod tests;

use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, TraceView};

pub(super) use cross_validation::Fold;
pub use cross_validation::{CrossValidation, Validated};
pub use reference_walk::{Children, Parent, ReferenceWalk, Roots};

/// An order of the functions that no trace ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnseenOrder {
    /// As the linker placed them.
    Link,
    /// By a walk over the references from the traced functions; what it does not reach as the linker placed it.
    References(ReferenceWalk),
}

impl UnseenOrder {
    /// All orders that are worth comparing, the most useful ones first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Link];
        for children_first in [false, true] {
            for roots in [Roots::Link, Roots::Time] {
                for parent in [Parent::DepthFirst, Parent::Specific] {
                    for children in [Children::Position, Children::Link] {
                        all.push(Self::References(ReferenceWalk { parent, roots, children, children_first }));
                    }
                }
            }
        }
        all
    }

    /// The functions outside all traces of `problem`, in this order. Without references the linker's order is the
    /// only one.
    #[must_use]
    pub fn order(self, problem: &LayoutProblem) -> Vec<FunctionId> {
        let reached = match (self, problem.references()) {
            (Self::References(walk), Some(references)) => walk.order(references, &traced_in_time(problem)),
            _ => Vec::new(),
        };
        let mut is_placed = problem.traced();
        for function in &reached {
            is_placed[function.index()] = true;
        }
        let rest = is_placed.iter().enumerate().filter(|(_, is_placed)| !**is_placed);
        reached.iter().copied().chain(rest.map(|(index, _)| FunctionId(index as u32))).collect()
    }
}

/// The functions of all traces, each once: those of the heaviest trace in the order of time, then what each further
/// trace adds.
#[must_use]
pub(crate) fn traced_in_time(problem: &LayoutProblem) -> Vec<FunctionId> {
    let mut traces: Vec<TraceView<'_>> = problem.traces().iter().collect();
    traces.sort_by_key(|trace| std::cmp::Reverse(trace.weight));
    let mut is_seen = vec![false; problem.function_count()];
    let functions = traces.iter().flat_map(|trace| trace.functions);
    functions.copied().filter(|function| !std::mem::replace(&mut is_seen[function.index()], true)).collect()
}
