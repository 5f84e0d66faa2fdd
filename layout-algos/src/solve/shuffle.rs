//! A random permutation of all functions: the hardest test for code that moves them.

use super::Orderer;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::random::Random;

/// Ignores the traces and permutes everything.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    /// Chooses the permutation.
    pub seed: u64,
}

impl Orderer for Shuffle {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let count = problem.function_count() as u32;
        let mut functions: Vec<FunctionId> = (0..count).map(FunctionId).collect();
        Random::new(self.seed, &[]).shuffle(&mut functions);
        FunctionOrder::with_rest(functions, count)
    }
}
