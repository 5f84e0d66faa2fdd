//! Local search on the exact page score.
//!
//! Functions change places as long as that makes the recorded startups cheaper under the problem's objective, counted
//! on the pages of the true addresses. Three kinds of change leave everything else where it is: two functions of
//! equal size, two runs of equal size, and two neighbouring runs past each other. Only strict improvements are kept:
//! steps that merely do not cost anything would scatter what the objective does not see, such as locality
//! on larger pages.

mod arrangement;
mod search;
#[cfg(test)]
mod tests;
mod touch_costs;

use rayon::prelude::*;

use crate::control::Control;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::random::Random;
use crate::score::{FaultModel, cost, positions};
use arrangement::{Arrangement, Placed};
use search::Search;
use touch_costs::TouchCosts;

/// Functions that are searched as one: a try costs more when the arrangement leaves the processor's caches.
const PART_FUNCTIONS: usize = 6000;

/// Improves an order of the traced functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSearch {
    /// Chooses what is tried.
    pub seed: u64,
    /// Changes tried for each function.
    pub tries_per_function: u64,
    /// Changes tried in all: bounds the time.
    pub most_tries: u64,
}

impl Default for LocalSearch {
    fn default() -> Self {
        Self { seed: 0, tries_per_function: 1000, most_tries: 1_500_000 }
    }
}

impl LocalSearch {
    /// A better order of `traced`, the functions at the front of the layout: its cost is never larger.
    #[must_use]
    pub fn improve(&self, problem: &LayoutProblem, traced: &[FunctionId]) -> Vec<FunctionId> {
        self.improve_watched(problem, traced, &Control::default())
    }

    /// The same; when cancelled, with the improvements until then.
    #[must_use]
    pub fn improve_watched(
        &self,
        problem: &LayoutProblem,
        traced: &[FunctionId],
        control: &Control<'_>,
    ) -> Vec<FunctionId> {
        let costs = TouchCosts::of(problem, traced);
        if costs.width() == 0 || traced.len() < 2 {
            return traced.to_vec();
        }
        let model = problem.objective().model;
        let page_shift = model.bytes_per_fault().ilog2();
        let tries = self.tries_per_function.saturating_mul(traced.len() as u64).min(self.most_tries);
        let mut placed = place(problem, traced);
        // Functions where two parts meet are not moved; the second round moves them, because its borders are elsewhere.
        let rounds = if placed.len() > PART_FUNCTIONS { 2 } else { 1 };
        for round in 0..rounds {
            let first_border = PART_FUNCTIONS * (round + 1) / rounds;
            let parts = split(placed, first_border);
            let is_whole = parts.len() == 1;
            let tries = tries / (rounds * parts.len()) as u64;
            let improved: Vec<Vec<Placed>> = parts
                .into_par_iter()
                .enumerate()
                .map(|(number, part)| {
                    let random = Random::new(self.seed, &[round as u64, number as u64]);
                    improve_part(&costs, page_shift, part, is_whole, random, tries, control)
                })
                .collect();
            placed = improved.into_iter().flatten().collect();
        }
        let improved: Vec<FunctionId> = placed.iter().map(|placed| traced[placed.row as usize]).collect();
        // Padding by mixed alignments, windows that begin anywhere, and traces that are not looked at: the exact cost
        // decides.
        let exact = |traced: &[FunctionId]| {
            let count = problem.function_count() as u32;
            cost(problem, &FunctionOrder::with_rest(traced.iter().copied(), count))
        };
        if exact(&improved) > exact(traced) { traced.to_vec() } else { improved }
    }
}

/// The functions `traced` as they are placed before all others; addresses from the first page on.
fn place(problem: &LayoutProblem, traced: &[FunctionId]) -> Vec<Placed> {
    let order = FunctionOrder::with_rest(traced.iter().copied(), problem.function_count() as u32);
    let spans = positions(problem, &order);
    let page = match problem.objective().model {
        // Windows begin at any page.
        FaultModel::ReadAround { page, .. } => page,
        model => model.bytes_per_fault(),
    };
    let base = problem.origin() & !(page - 1);
    let place = |(row, &function): (usize, &FunctionId)| Placed {
        row: row as u32,
        size: problem.size(function),
        padded: problem.padded_size(function).max(1),
        start: spans[function.index()].start - base,
    };
    traced.iter().enumerate().map(place).collect()
}

/// Parts of [`PART_FUNCTIONS`], the first of them up to `first_border`.
fn split(placed: Vec<Placed>, first_border: usize) -> Vec<Vec<Placed>> {
    let (first, rest) = placed.split_at(first_border.min(placed.len()));
    std::iter::once(first).chain(rest.chunks(PART_FUNCTIONS)).map(<[Placed]>::to_vec).collect()
}

/// Searches one part. Unless it is the whole, functions on its first and its last page, which other parts may touch
/// as well, stay where they are.
fn improve_part(
    costs: &TouchCosts,
    page_shift: u32,
    mut part: Vec<Placed>,
    is_whole: bool,
    random: Random,
    tries: u64,
    control: &Control<'_>,
) -> Vec<Placed> {
    let Some(first) = part.first() else { return part };
    let base = first.start >> page_shift << page_shift;
    for placed in &mut part {
        placed.start -= base;
    }
    let mut arrangement = Arrangement::new(costs, page_shift, part);
    let movable = if is_whole { 0..arrangement.placed().len() } else { arrangement.inner() };
    Search::new(&mut arrangement, movable, 1 << page_shift, random).run(tries, control);
    let mut part = arrangement.into_placed();
    for placed in &mut part {
        placed.start += base;
    }
    part
}
