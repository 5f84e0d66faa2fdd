//! The default strategy.
//!
//! Several strategies order the functions of the traces, each result is improved a little, the best one by exact
//! score is improved further. All other functions follow in the order that is best for held-out
//! runs.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::read_around::centre_windows;
use super::unseen::traced_in_time;
use super::{
    BalancedPartitioning, CrossValidation, LocalSearch, Orderer, ReplaySearch, TraceSets, UnseenOrder,
};
use crate::control::{Control, Phase};
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::score::{Cost, cost};

/// A portfolio with a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto {
    /// Seed for random choices.
    pub seed: u64,
    /// How much work is done.
    pub effort: Effort,
}

/// How much work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// For every link: below a second for a program of 80,000 functions.
    #[default]
    Normal,
    /// For releases: ten times as long.
    Thorough,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoOrder {
    /// The order of all functions.
    pub order: FunctionOrder,
    /// Its cost on the recorded runs.
    pub cost: Cost,
    /// Where the traced functions' order began.
    pub candidate: Candidate,
    /// How the others are ordered.
    pub unseen: UnseenOrder,
}

/// A strategy for the functions of the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Candidate {
    /// Trace after trace.
    FirstSeen,
    /// Sets of traces, chained.
    TraceSets,
    /// Balanced partitioning with this many prefixes.
    Balanced(u32),
}

/// With more events than this in all traces only the strategies that are best on many traces are tried.
const MAX_EVENTS_FOR_ALL: usize = 2_000_000;

/// In larger programs fewer changes are tried: a try costs more there, and ordering itself takes its time.
const SEARCHED_FUNCTIONS: u64 = 10_000;

/// Changes that are tried however large the program is.
const MIN_TRIES: u64 = 250_000;

/// Tries of local search for each candidate, as a share of all.
const CANDIDATE_SHARE: u64 = 8;

impl Default for Auto {
    fn default() -> Self {
        Self { seed: 0, effort: Effort::Normal }
    }
}

impl Orderer for Auto {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        self.choose(problem, &Control::default()).order
    }
}

impl Auto {
    /// An order of all functions and how it came about. When cancelled, the best that was found until then.
    #[must_use]
    pub fn choose(&self, problem: &LayoutProblem, control: &Control<'_>) -> AutoOrder {
        let (unseen, (candidate, traced)) =
            rayon::join(|| self.choose_unseen(problem, control), || self.choose_traced(problem, control));
        let functions = traced.into_iter().chain(unseen.order(problem));
        let order = FunctionOrder::with_rest(functions, problem.function_count() as u32);
        AutoOrder { cost: cost(problem, &order), order, candidate, unseen }
    }

    fn choose_traced(&self, problem: &LayoutProblem, control: &Control<'_>) -> (Candidate, Vec<FunctionId>) {
        let candidates = candidates(problem);
        let total = candidates.len() as u64;
        let search = self.search(problem.function_count());
        let short = LocalSearch {
            tries_per_function: search.tries_per_function / CANDIDATE_SHARE,
            most_tries: search.most_tries / CANDIDATE_SHARE,
            ..search
        };
        control.report(Phase::Candidates, 0, total);
        let done = AtomicU64::new(0);
        let ordered: Vec<(Candidate, Vec<FunctionId>)> = candidates
            .into_par_iter()
            .map(|candidate| {
                let traced = self.order_traced(problem, candidate, control);
                let searched = short.improve_watched(problem, &traced, control);
                let centred = [&traced, &searched].map(|traced| centre_windows(problem, traced));
                control.report(Phase::Candidates, done.fetch_add(1, Ordering::Relaxed) + 1, total);
                (candidate, cheapest(problem, [traced, searched].into_iter().chain(centred)))
            })
            .collect();
        let best = ordered.into_iter().min_by_key(|(_, traced)| cost_at_beginning(problem, traced));
        let Some((candidate, traced)) = best else { return (Candidate::FirstSeen, Vec::new()) };
        control.report(Phase::Search, 0, 1);
        let searched = search.improve_watched(problem, &traced, control);
        let replayed = self.replay().improve(problem, &traced, control);
        control.report(Phase::Search, 1, 1);
        (candidate, cheapest(problem, [traced, searched, replayed]))
    }

    fn order_traced(
        &self,
        problem: &LayoutProblem,
        candidate: Candidate,
        control: &Control<'_>,
    ) -> Vec<FunctionId> {
        match candidate {
            Candidate::FirstSeen => traced_in_time(problem),
            Candidate::TraceSets => TraceSets.order_traced(problem),
            Candidate::Balanced(prefixes) => {
                BalancedPartitioning { seed: self.seed, prefixes }.order_traced_watched(problem, control)
            }
        }
    }

    fn choose_unseen(&self, problem: &LayoutProblem, control: &Control<'_>) -> UnseenOrder {
        let factor = self.effort.factor();
        let default = CrossValidation::default();
        let validation = CrossValidation { most_visits: default.most_visits * factor, ..default };
        control.report(Phase::Validation, 0, 1);
        let validated = validation.compare(problem);
        control.report(Phase::Validation, 1, 1);
        validated.first().map_or(UnseenOrder::Link, |best| best.order)
    }

    fn replay(&self) -> ReplaySearch {
        let default = ReplaySearch::default();
        let factor = self.effort.factor();
        ReplaySearch {
            seed: self.seed,
            tries_per_function: default.tries_per_function * factor,
            most_replayed: default.most_replayed * factor,
        }
    }

    fn search(&self, functions: usize) -> LocalSearch {
        let default = LocalSearch::default();
        let factor = self.effort.factor();
        let share = default.most_tries * SEARCHED_FUNCTIONS / SEARCHED_FUNCTIONS.max(functions as u64);
        LocalSearch {
            seed: self.seed,
            tries_per_function: default.tries_per_function * factor,
            most_tries: share.max(MIN_TRIES) * factor,
        }
    }
}

impl Effort {
    fn factor(self) -> u64 {
        match self {
            Self::Normal => 1,
            Self::Thorough => 10,
        }
    }
}

fn candidates(problem: &LayoutProblem) -> Vec<Candidate> {
    if problem.traces().len() < 2 {
        return vec![Candidate::FirstSeen];
    }
    if problem.traces().event_count() > MAX_EVENTS_FOR_ALL {
        return vec![Candidate::Balanced(4), Candidate::FirstSeen];
    }
    let balanced = [1, 2, 4].map(Candidate::Balanced);
    [Candidate::TraceSets, Candidate::FirstSeen].into_iter().chain(balanced).collect()
}

/// The first of the cheapest orders.
fn cheapest(problem: &LayoutProblem, orders: impl IntoIterator<Item = Vec<FunctionId>>) -> Vec<FunctionId> {
    orders.into_iter().min_by_key(|traced| cost_at_beginning(problem, traced)).unwrap_or_default()
}

/// The cost of the recorded runs with `traced` first; the functions after it do not affect them.
fn cost_at_beginning(problem: &LayoutProblem, traced: &[FunctionId]) -> Cost {
    cost(problem, &FunctionOrder::with_rest(traced.iter().copied(), problem.function_count() as u32))
}
