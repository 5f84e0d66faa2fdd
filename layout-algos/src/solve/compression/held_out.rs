//! What new runs pay for another order of the functions that no trace ran.
//!
//! Takes the problem and the order by pages; gives the growth of a new run's cost. Recorded runs are held out in turn and
//! taken for new ones. The growth is measured on the part of their cost that functions outside the known traces cause, and
//! then scaled: really new runs execute more such code than held-out ones do.

use rayon::prelude::*;

use super::tail::Tail;
use crate::ids::FunctionId;
use crate::problem::LayoutProblem;
use crate::score::Cost;
use crate::solve::unseen::{Fold, UnseenOrder};

/// Parts of the recorded runs that are held out in turn.
const FOLDS: usize = 4;

/// The least share of a new run's cost, in thousandths, that functions outside all traces cause. Runs of other kinds than
/// the recorded ones had 200 and 260 on two large programs; held-out runs had as few as 50.
const MIN_SHARE_PERMILLE: u64 = 250;

/// The recorded runs in parts, each taken for new runs where only the others are known.
pub(super) struct HeldOut {
    trials: Vec<Trial>,
}

struct Trial {
    fold: Fold,
    /// The functions outside the known runs, in the order by pages.
    tail: Tail,
    cost: Cost,
    /// The cost of the part of the held-out runs that is known.
    known_cost: Cost,
}

impl HeldOut {
    pub(super) fn new(problem: &LayoutProblem, unseen: UnseenOrder) -> Self {
        let trials = (0..FOLDS).into_par_iter().filter_map(|part| {
            let fold = Fold::new(problem, part, FOLDS)?;
            let is_known = fold.known.traced();
            let order = fold.with_unseen(unseen);
            let tail = Tail::of(&fold.known, &order);
            let cost = fold.cost_of_others(&order);
            let known_cost = fold.cost_of_others_among(&order, Some(&is_known));
            Some(Trial { fold, tail, cost, known_cost })
        });
        Self { trials: trials.collect() }
    }

    /// Thousandths by which a new run's cost grows if the functions outside all traces are `arranged`. 0 where no run can
    /// be left out.
    pub(super) fn growth_permille(&self, arranged: impl Fn(&Tail) -> Vec<FunctionId> + Sync) -> u64 {
        let cost_with = |trial: &Trial| {
            let order = trial.tail.whole_order(&arranged(&trial.tail));
            trial.fold.cost_of_others(&order).0
        };
        let after = self.trials.par_iter().map(cost_with).reduce(|| 0, u64::saturating_add);
        let sum = |cost: fn(&Trial) -> Cost| self.trials.iter().map(|trial| u128::from(cost(trial).0)).sum();
        let before: u128 = sum(|trial| trial.cost);
        let known: u128 = sum(|trial| trial.known_cost);
        let of_tail = before.saturating_sub(known).max(1);
        let share = (of_tail * 1000 / before.max(1)).max(u128::from(MIN_SHARE_PERMILLE));
        let more = u128::from(after).saturating_sub(before);
        u64::try_from(more * share / of_tail).unwrap_or(u64::MAX)
    }
}
