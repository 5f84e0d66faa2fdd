//! Balanced partitioning over temporal prefixes.
//!
//! Functions that occur in the same prefixes of the same traces should share pages. Each trace contributes
//! prefixes whose bytes double, so that early functions are bound together more tightly than late ones. The
//! functions are split in halves recursively, each time exchanging functions between the halves while that lets
//! the prefixes' functions stand closer together; the leaves, smaller than a page, keep their temporal order.
//!
//! After: Hoag, Lee, Mestre, Pupyrev, "Optimizing Function Layout for Mobile Applications" (LCTES 2023), and
//! Dhulipala et al., "Compressing Graphs and Indexes with Recursive Graph Bisection" (KDD 2016). It differs in
//! the gain of an exchange (see [`gain`]), in prefixes by bytes, and in integer arithmetic throughout, which
//! makes the result the same on every machine.

mod bisection;
mod gain;
mod prefixes;

use super::Orderer;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use bisection::Bisection;
use gain::ClosenessTable;
use prefixes::Memberships;

/// Recursive bisection of the traced functions; the others follow in link order.
#[derive(Clone, Copy, Debug)]
pub struct BalancedPartitioning {
    /// Chooses which exchanges are skipped to escape oscillation.
    pub seed: u64,
}

impl Orderer for BalancedPartitioning {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let memberships = Memberships::of(problem);
        let mut functions = memberships.in_temporal_order();
        let closeness = ClosenessTable::up_to(functions.len() + 1);
        Bisection::new(self.seed, problem.sizes(), &memberships, &closeness).run(&mut functions);
        FunctionOrder::with_rest(functions, problem.function_count() as u32)
    }
}

#[cfg(test)]
mod tests;
