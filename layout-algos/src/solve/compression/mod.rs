//! A layout whose file compresses better, for few additional pages.
//!
//! Takes a finished order; gives one with the same recorded part. After it, functions of similar content are gathered
//! (see [`gathering`]), which shortens what a compressor writes to refer from one to the other, and costs new runs
//! pages where it separates functions that run together. How much is gathered is therefore decided by the page score
//! itself: runs that the order is not allowed to know are laid out with ever less gathering until they cost no more
//! than the budget allows. A second sort by content after the first one by pages, as linkers do it, loses what the
//! first has won.
//!
//! Link order is a good order for compressors, and every order for pages compresses worse than it. Gathering makes
//! the loss smaller; only programs with many copies of similar code compress better than in link order afterwards.

mod gathering;
mod similarity;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::UnseenOrder;
use super::unseen::Fold;
use crate::control::Control;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::score::{Cost, cost};
use gathering::{Strictness, gathered};
use similarity::SimilarPairs;

/// Rearranges the functions after the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionAware {
    /// How much more runs may cost than without gathering, in thousandths: 10 is one per cent. 0 permits only what adds
    /// no cost to recorded runs or left-out ones.
    pub page_budget_permille: u32,
    /// How the functions without traces are ordered: left-out runs are tried with the same order.
    pub unseen: UnseenOrder,
}

/// How much may be gathered, the most first. Long functions and close copies gain most for the pages they cost:
/// anywhere, a long function needs pages of its own.
const LEVELS: [Strictness; 7] = [
    Strictness { least_bytes: 1, least_percent: 30 },
    Strictness { least_bytes: 32, least_percent: 50 },
    Strictness { least_bytes: 64, least_percent: 80 },
    Strictness { least_bytes: 128, least_percent: 80 },
    Strictness { least_bytes: 256, least_percent: 80 },
    Strictness { least_bytes: 512, least_percent: 80 },
    Strictness { least_bytes: 1024, least_percent: 65 },
];

/// Parts of the recorded runs that are left out in turn; few, so that they know little of each other, as new
/// runs do.
const FOLDS: usize = 2;

/// Really new runs execute more code that no trace has than left-out ones do, so gathering costs them more: on most of
/// six programs up to five times as much.
const UNLIKENESS: u64 = 5;

impl CompressionAware {
    /// The order that compresses best among those within the budget, and `order` itself where none is, or where the
    /// problem has no fingerprints. Functions up to the last recorded one of `order` keep their places.
    ///
    /// Time is in proportion to the hashes of all functions, and for each level to the functions and similar pairs.
    #[must_use]
    pub fn improve(
        &self,
        problem: &LayoutProblem,
        order: &FunctionOrder,
        control: &Control<'_>,
    ) -> FunctionOrder {
        let Some(fingerprints) = problem.fingerprints() else { return order.clone() };
        let pairs = SimilarPairs::of(fingerprints);
        let trials = self.trials(problem);
        let recorded = cost(problem, order).0;
        let left_out = sum(trials.iter().map(|trial| trial.cost));
        let budget = u64::from(self.page_budget_permille);
        for strictness in LEVELS {
            if control.is_cancelled() {
                break;
            }
            let candidate = gathered(problem, order, &pairs, strictness);
            let with_it = |trial: &Trial| {
                trial.fold.cost_of_others(&gathered(&trial.fold.known, &trial.order, &pairs, strictness))
            };
            let costs: Vec<Cost> = trials.par_iter().map(with_it).collect();
            if is_within(budget, recorded, cost(problem, &candidate).0)
                && is_within(budget / UNLIKENESS, left_out, sum(costs))
            {
                return candidate;
            }
        }
        order.clone()
    }

    /// The recorded runs in parts, each laid out as if it were all that is known.
    fn trials(&self, problem: &LayoutProblem) -> Vec<Trial> {
        let folds = (0..FOLDS).filter_map(|part| Fold::new(problem, part, FOLDS));
        let trial = |fold: Fold| {
            let order = fold.with_unseen(self.unseen);
            Trial { cost: fold.cost_of_others(&order), order, fold }
        };
        folds.map(trial).collect()
    }
}

/// Runs that are taken for new ones, and the layout that does not know them.
struct Trial {
    fold: Fold,
    order: FunctionOrder,
    cost: Cost,
}

fn sum(costs: impl IntoIterator<Item = Cost>) -> u64 {
    costs.into_iter().fold(0, |sum, cost| sum.saturating_add(cost.0))
}

/// Whether `after` is at most this many thousandths above `before`.
fn is_within(permille: u64, before: u64, after: u64) -> bool {
    u128::from(after) * 1000 <= u128::from(before) * (1000 + u128::from(permille))
}
