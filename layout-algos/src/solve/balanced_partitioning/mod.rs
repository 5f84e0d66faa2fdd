//! Balanced partitioning over temporal prefixes.
//!
//! Functions that occur in the same prefixes of the same traces should share pages. Each trace contributes nested
//! prefixes of evenly spaced lengths in bytes. The functions are split in half recursively. At each split,
//! functions are exchanged between the halves as long as that brings the functions of the prefixes closer together;
//! the leaves, which are smaller than a page, keep their temporal order.
//!
//! After: Hoag, Lee, Mestre, Pupyrev, "Optimizing Function Layout for Mobile Applications" (LCTES 2023), and
//! Dhulipala et al., "Compressing Graphs and Indexes with Recursive Graph Bisection" (KDD 2016). It differs in
//! the gain of an exchange (see [`gain`]), in prefixes by bytes, and in integer arithmetic throughout, which
//! makes the result the same on every system.

pub(super) mod bisection;
pub(super) mod gain;
pub(super) mod memberships;

use super::Orderer;
use crate::control::Control;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use bisection::Bisection;
use gain::ClosenessTable;
use memberships::Memberships;

/// Parts of at most this many bytes are not split: their order within a page changes no fault.
const LEAF_BYTES: u64 = 2048;

/// The most prefixes a trace can be cut into.
pub const MAX_PREFIXES: u32 = 64;

/// Recursive bisection of the traced functions; the others follow in link order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancedPartitioning {
    /// Chooses which exchanges are skipped to escape oscillation.
    pub seed: u64,
    /// Nested prefixes of each trace, 1 to [`MAX_PREFIXES`]. With one, it only
    /// matters which functions a trace runs, which gives the fewest faults in total. With more, functions that run at the
    /// same time are placed together, so that faults come later.
    pub prefixes: u32,
}

impl Default for BalancedPartitioning {
    fn default() -> Self {
        Self { seed: 0, prefixes: 4 }
    }
}

impl BalancedPartitioning {
    /// The traced functions in their order.
    #[must_use]
    pub fn order_traced(&self, problem: &LayoutProblem) -> Vec<FunctionId> {
        self.order_traced_watched(problem, &Control::default())
    }

    /// The same; when cancelled, what is not split yet stays as it is.
    #[must_use]
    pub fn order_traced_watched(&self, problem: &LayoutProblem, control: &Control<'_>) -> Vec<FunctionId> {
        let memberships = Memberships::of(problem, self.prefixes.clamp(1, MAX_PREFIXES));
        let closeness = ClosenessTable::up_to(memberships.functions.len() + 1);
        let sizes = memberships.functions.iter().map(|&function| problem.padded_size(function)).collect();
        let order = Bisection::new(self.seed, sizes, &memberships, &closeness, control).run(LEAF_BYTES);
        order.into_iter().map(|position| memberships.functions[position as usize]).collect()
    }
}

impl Orderer for BalancedPartitioning {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        FunctionOrder::with_rest(self.order_traced(problem), problem.function_count() as u32)
    }
}

#[cfg(test)]
mod tests;
