//! The order the linker chose: the baseline.

use super::Orderer;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Keeps every function where it is.
#[derive(Clone, Copy, Debug)]
pub struct LinkOrder;

impl Orderer for LinkOrder {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        FunctionOrder::link_order(problem.function_count() as u32)
    }
}
