//! A layout close to an earlier one, so that updates stay small.
//!
//! Takes a finished order and the functions of an earlier one in their order there; gives an order that keeps as much of the
//! earlier one as the budget allows. Recorded functions stay before all others. From the nearest to the farthest:
//! everything as before; recorded functions as before and then improved, with more changes each time; only the others as
//! before.

use super::LocalSearch;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::score::{Span, cost, positions};

/// Keeps what pages allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FavourPrevious {
    /// How much more recorded runs may cost, in thousandths.
    pub budget_permille: u32,
    /// Seed for random choices.
    pub seed: u64,
}

/// An order that is close to an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FavouredOrder {
    /// The order of all functions.
    pub order: FunctionOrder,
    /// Growth of the cost of recorded runs, in thousandths.
    pub growth_permille: u64,
    /// Pages of the earlier layout that keep most of their functions within a page's length, in thousandths: with the order
    /// as it was given, and as it is now.
    pub kept_permille: [u64; 2],
}

/// Changes for each recorded function by which its earlier order is improved.
const TRIES_PER_FUNCTION: [u64; 4] = [0, 2, 8, 32];

/// A page is kept where at least this many of a hundred of its functions still begin within a page's length.
const KEPT_PERCENT: usize = 80;

/// Bytes of a page when kept ones are counted.
const PAGE: u64 = 4096;

impl FavourPrevious {
    /// The nearest order to `previous`, which names each function at most once, within the budget. Where even the
    /// farthest is not, that is `order`.
    #[must_use]
    pub fn choose(
        &self,
        problem: &LayoutProblem,
        order: &FunctionOrder,
        previous: &[FunctionId],
    ) -> FavouredOrder {
        let is_traced = problem.traced();
        let (front, tail): (Vec<_>, Vec<_>) =
            order.iter().partition(|function: &FunctionId| is_traced[function.index()]);
        let front_before = as_before(&front, previous, problem.function_count());
        let tail_before = as_before(&tail, previous, problem.function_count());
        let searched = |tries_per_function: u64| {
            let search = LocalSearch { seed: self.seed, tries_per_function, ..LocalSearch::default() };
            search.improve(problem, &front_before)
        };
        let fronts = TRIES_PER_FUNCTION.into_iter().map(searched).chain([front.clone()]);
        let before = cost(problem, order).0;
        let count = problem.function_count() as u32;
        let grown = |order: &FunctionOrder| {
            let more = u128::from(cost(problem, order).0.saturating_sub(before));
            u64::try_from((more * 1000).div_ceil(u128::from(before.max(1)))).unwrap_or(u64::MAX)
        };
        let (order_now, growth_permille) = fronts
            .map(|front| {
                FunctionOrder::with_rest(front.into_iter().chain(tail_before.iter().copied()), count)
            })
            .map(|order| (grown(&order), order))
            .find(|(growth, _)| *growth <= u64::from(self.budget_permille))
            .map_or_else(|| (order.clone(), 0), |(growth, order)| (order, growth));
        let kept_permille = [order, &order_now].map(|order| kept_permille(problem, previous, order));
        FavouredOrder { order: order_now, growth_permille, kept_permille }
    }
}

/// `functions` in the order that they have in `previous`. Each that is not there follows the one that it follows in
/// `functions`.
fn as_before(functions: &[FunctionId], previous: &[FunctionId], count: usize) -> Vec<FunctionId> {
    let mut ranks: Vec<Option<usize>> = vec![None; count];
    for (rank, function) in previous.iter().enumerate() {
        ranks[function.index()] = Some(rank + 1);
    }
    let mut last = 0;
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(functions.len());
    for (position, function) in functions.iter().enumerate() {
        let known = ranks[function.index()];
        last = known.unwrap_or(last);
        // A new function comes after the known one with its rank, whichever position that has.
        ranked.push((2 * last + usize::from(known.is_none()), position));
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, position)| functions[position]).collect()
}

/// Of the pages that `previous` fills, in thousandths: those of which most functions begin within a page's length in `order`.
/// Borders of pages do not count: what is inserted before a page shifts them, and a delta does not grow by that.
fn kept_permille(problem: &LayoutProblem, previous: &[FunctionId], order: &FunctionOrder) -> u64 {
    let count = problem.function_count() as u32;
    let old = positions(problem, &FunctionOrder::with_rest(previous.iter().copied(), count));
    let new = positions(problem, order);
    let start = |spans: &[Span], function: &FunctionId| spans[function.index()].start;
    let mut pairs: Vec<(u64, u64)> =
        previous.iter().map(|function| (start(&old, function) / PAGE, start(&new, function))).collect();
    pairs.sort_unstable();
    let mut pages = 0;
    let mut kept = 0;
    for page in pairs.chunk_by(|one, other| one.0 == other.0) {
        let near = |(index, first): (usize, &(u64, u64))| {
            page[index..].iter().take_while(|(_, start)| start - first.1 < PAGE).count()
        };
        let most = page.iter().enumerate().map(near).max().unwrap_or(0);
        pages += 1;
        kept += u64::from(most * 100 >= page.len() * KEPT_PERCENT);
    }
    kept * 1000 / pages.max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::problem::Trace;
    use crate::random::Random;

    const FUNCTIONS: u32 = 80;

    fn ids(range: impl IntoIterator<Item = u32>) -> Vec<FunctionId> {
        range.into_iter().map(FunctionId).collect()
    }

    fn shuffled(seed: u64) -> Vec<FunctionId> {
        let mut functions = ids(0..FUNCTIONS);
        Random::new(seed, &[]).shuffle(&mut functions);
        functions
    }

    proptest! {
        #[test]
        fn recorded_runs_stay_within_the_budget(
            sizes in prop::collection::vec(1u64..3000, FUNCTIONS as usize),
            traces in prop::collection::vec(prop::collection::btree_set(0..FUNCTIONS, 1..20), 1..5),
            seed in any::<u64>(),
            known in 0usize..FUNCTIONS as usize,
            budget_permille in 0u32..200,
        ) {
            let traces: Vec<Trace> =
                traces.iter().map(|trace| Trace::of(1, &trace.iter().copied().collect::<Vec<_>>())).collect();
            let problem = LayoutProblem::new(sizes, &traces).unwrap();
            let is_traced = problem.traced();
            let (front, tail): (Vec<_>, Vec<_>) =
                shuffled(seed).into_iter().partition(|function| is_traced[function.index()]);
            let order = FunctionOrder::of([front.clone(), tail].concat()).unwrap();
            let previous = &shuffled(seed ^ 1)[..known];
            let favoured = FavourPrevious { budget_permille, seed: 0 }.choose(&problem, &order, previous);
            let [before, after] = [&order, &favoured.order].map(|order| cost(&problem, order).0);
            prop_assert!(after * 1000 <= before * u64::from(1000 + budget_permille));
            let functions: Vec<FunctionId> = favoured.order.iter().collect();
            prop_assert!(functions[..front.len()].iter().all(|function| is_traced[function.index()]));
            prop_assert_eq!(functions.iter().collect::<BTreeSet<_>>().len(), FUNCTIONS as usize);
        }
    }

    #[test]
    fn the_same_traces_give_the_same_layout() {
        let problem = LayoutProblem::new(vec![500; 80], &[Trace::of(1, &[3, 1, 2])]).unwrap();
        let previous: Vec<FunctionId> =
            ids([2, 3, 1]).into_iter().chain(ids((4..80).rev())).chain(ids([0])).collect();
        let order = FunctionOrder::with_rest(ids([3, 1, 2]), 80);
        let favour = FavourPrevious { budget_permille: 20, seed: 0 };
        let favoured = favour.choose(&problem, &order, &previous);
        assert_eq!(favoured.order, FunctionOrder::with_rest(previous, 80));
        assert_eq!(favoured.kept_permille[1], 1000);
        assert!(favoured.kept_permille[0] < 1000);
    }

    #[test]
    fn new_functions_stay_with_their_neighbours() {
        let before = as_before(&ids([5, 9, 4, 8, 3]), &ids([3, 4, 5]), 10);
        assert_eq!(before, ids([3, 4, 8, 5, 9]));
        assert_eq!(as_before(&ids([9, 5, 4]), &ids([4, 5]), 10), ids([9, 4, 5]));
    }
}
