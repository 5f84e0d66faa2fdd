//! The functions after the recorded ones, in each order that is tried.

use super::TailOrder;
use super::content::Content;
use super::estimate::BYTES_PER_NOVELTY;
use super::walk::Walk;
use crate::control::Control;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// What stays at the beginning, and what may be arranged after it.
pub(super) struct Tail {
    /// What comes before it, up to the last recorded function.
    before: Vec<FunctionId>,
    /// In the order by pages.
    pub(super) functions: Vec<FunctionId>,
}

impl Tail {
    /// The functions of `order` up to the last one of the recorded runs of `problem` stay before it.
    pub(super) fn of(problem: &LayoutProblem, order: &FunctionOrder) -> Self {
        let is_traced = problem.traced();
        let mut before: Vec<FunctionId> = order.iter().collect();
        let last = before.iter().rposition(|function| is_traced[function.index()]);
        let functions = before.split_off(last.map_or(0, |last| last + 1));
        Self { before, functions }
    }

    /// The functions in `tail_order`, for a compressor that looks back `reach` bytes.
    pub(super) fn arranged(
        &self,
        problem: &LayoutProblem,
        content: &Content,
        tail_order: TailOrder,
        reach: u64,
        control: &Control<'_>,
    ) -> Vec<FunctionId> {
        match tail_order {
            TailOrder::Pages => self.functions.clone(),
            TailOrder::Link => {
                let mut functions = self.functions.clone();
                functions.sort_unstable();
                functions
            }
            TailOrder::Partitioned => {
                let mut functions = self.functions.clone();
                functions.sort_unstable_by_key(|function| content.ranks.get(function.index()));
                functions
            }
            TailOrder::Content(min_shared_bytes) => {
                let min_shared = min_shared_bytes.div_ceil(BYTES_PER_NOVELTY);
                Walk::new(problem, &content.common, &self.before, &self.functions, reach, min_shared)
                    .run(control)
            }
        }
    }

    /// All functions, with those of the tail as `arranged`.
    pub(super) fn whole_order(&self, arranged: &[FunctionId]) -> FunctionOrder {
        let functions = self.before.iter().chain(arranged).copied();
        FunctionOrder::with_rest(functions, (self.before.len() + self.functions.len()) as u32)
    }
}
