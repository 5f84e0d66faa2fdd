//! Local search for models in which a fault reads more than its page.
//!
//! Where windows begin depends on what a startup touched before, so the effect of a change cannot be counted on the
//! changed pages alone: each try replays all startups. That is slow, and worth it, because such models have few faults
//! and each of them is expensive.

use rayon::prelude::*;

use crate::control::Control;
use crate::ids::{FunctionId, TraceId};
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::random::Random;
use crate::score::{FaultModel, Span, positions};

/// Rotates parts of an order as long as that makes the recorded startups cheaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaySearch {
    /// Chooses what is tried.
    pub seed: u64,
    /// Changes tried for each function.
    pub tries_per_function: u64,
    /// Functions replayed in all tries together: bounds the time.
    pub most_replayed: u64,
}

impl Default for ReplaySearch {
    fn default() -> Self {
        Self { seed: 0, tries_per_function: 20, most_replayed: 60_000_000 }
    }
}

/// Below this many events, sharing a replay between threads costs more than it saves.
const MIN_SHARED_EVENTS: usize = 20_000;

impl ReplaySearch {
    /// A better order of `traced`, the functions at the front of the layout, by the exact cost of the problem's
    /// objective; the same order for models without read-around.
    #[must_use]
    pub fn improve(
        &self,
        problem: &LayoutProblem,
        traced: &[FunctionId],
        control: &Control<'_>,
    ) -> Vec<FunctionId> {
        let events = problem.traces().event_count();
        let FaultModel::ReadAround { page, window, before } = problem.objective().model else {
            return traced.to_vec();
        };
        if traced.len() < 2 || events == 0 {
            return traced.to_vec();
        }
        let order = FunctionOrder::with_rest(traced.iter().copied(), problem.function_count() as u32);
        let mut replay = Replay::new(problem, [page, window, before], positions(problem, &order));
        let mut order = traced.to_vec();
        let mut random = Random::new(self.seed, &[]);
        let mut best = replay.cost();
        let tries = self.tries_per_function.saturating_mul(traced.len() as u64);
        for _ in 0..tries.min(self.most_replayed / events as u64) {
            if control.is_cancelled() {
                break;
            }
            let Some((from, middle, to)) = random_cuts(order.len(), &mut random) else { continue };
            let before: Vec<Span> = order[from..to].iter().map(|function| replay.span(*function)).collect();
            order[from..to].rotate_left(middle - from);
            if replay.place(&order[from..to], before[0].start) {
                let cost = replay.cost();
                if cost < best {
                    best = cost;
                    continue;
                }
            }
            order[from..to].rotate_right(middle - from);
            for (function, span) in order[from..to].iter().zip(before) {
                replay.spans[function.index()] = span;
            }
        }
        order
    }
}

/// Two neighbouring parts, from single functions up to a quarter of all.
fn random_cuts(count: usize, random: &mut Random) -> Option<(usize, usize, usize)> {
    let doublings = u64::from((count as u64 / 4).max(2).ilog2());
    let mut length = || {
        let most = 1 << random.below(doublings + 1);
        1 + random.below(most) as usize
    };
    let (first, second) = (length(), length());
    let from = random.below(count as u64) as usize;
    (from + first + second <= count).then_some((from, from + first, from + first + second))
}

/// Startups replayed with functions at changing places.
struct Replay<'problem> {
    problem: &'problem LayoutProblem,
    page: u64,
    /// Pages per window.
    window_pages: u64,
    /// Those of them that lie before the page of the fault.
    pages_before: u64,
    spans: Vec<Span>,
    /// The page that is number 0 in the sets of pages.
    first_page: u64,
    /// Pages up to the last of any traced function, and a window.
    page_count: u64,
}

impl<'problem> Replay<'problem> {
    fn new(problem: &'problem LayoutProblem, [page, window, before]: [u64; 3], spans: Vec<Span>) -> Self {
        let first_page = problem.origin() / page;
        let traced = problem.traces().iter().flat_map(|trace| trace.functions);
        let end = traced.map(|function| spans[function.index()].end).max().unwrap_or(problem.origin());
        let window_pages = (window / page).max(1);
        let page_count = end / page + 1 - first_page + window_pages;
        Self { problem, page, window_pages, pages_before: before / page, spans, first_page, page_count }
    }

    fn span(&self, function: FunctionId) -> Span {
        self.spans[function.index()]
    }

    /// Places functions one after the other. `false` if they need other room than before or meet an obstacle; their
    /// places are then not valid.
    fn place(&mut self, functions: &[FunctionId], start: u64) -> bool {
        let end = functions.iter().map(|function| self.span(*function).end).max().unwrap_or(start);
        let obstacles = self.problem.obstacles();
        let next = obstacles.partition_point(|obstacle| obstacle.end <= start);
        if obstacles.get(next).is_some_and(|obstacle| obstacle.start < end) {
            return false;
        }
        let mut cursor = start;
        for function in functions {
            let start = cursor.next_multiple_of(u64::from(self.problem.alignment(*function)));
            cursor = start + self.problem.size(*function);
            self.spans[function.index()] = Span { start, end: cursor };
        }
        // The functions after it must stay in place.
        cursor == end
    }

    /// The cost of all startups.
    fn cost(&self) -> u64 {
        let traces = self.problem.traces();
        let cost_of = |index: u32| self.cost_of_trace(TraceId(index));
        let indices = 0..traces.len() as u32;
        if traces.event_count() < MIN_SHARED_EVENTS {
            indices.map(cost_of).fold(0, u64::saturating_add)
        } else {
            indices.into_par_iter().map(cost_of).reduce(|| 0, u64::saturating_add)
        }
    }

    fn cost_of_trace(&self, trace: TraceId) -> u64 {
        let trace = self.problem.traces().get(trace);
        let mut present = vec![false; self.page_count as usize];
        let (mut faults, mut area) = (0u64, 0u64);
        for function in trace.functions {
            for page in self.span(*function).pages(self.page) {
                if !present[(page.0 - self.first_page) as usize] {
                    faults += 1;
                    // Where a window ends depends on where it begins in the file, also where that is before the text.
                    let first = page.0.saturating_sub(self.pages_before);
                    let end = first.saturating_add(self.window_pages);
                    let [first, end] = [first, end].map(|page| page.saturating_sub(self.first_page) as usize);
                    let end = end.min(present.len());
                    present[first..end].fill(true);
                }
            }
            area += faults;
        }
        let early = u64::from(self.problem.objective().early_percent);
        let count = trace.functions.len().max(1) as u64;
        ((100 - early) * faults * 10 + early * area * 10 / count).saturating_mul(trace.weight)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::problem::Trace;
    use crate::score::Objective;

    proptest! {
        /// Windows at the front of the text begin before it, and origins need not be multiples of windows.
        #[test]
        fn a_replay_counts_the_faults_of_the_model(
            sizes in prop::collection::vec(0..200_u64, 1..24),
            starts in prop::collection::vec(prop::collection::vec(0..24_u32, 0..24), 1..5),
            origin in 0..2_000_u64,
            before in 0..4_u64,
        ) {
            let count = sizes.len() as u32;
            let of_start = |(index, start): (u64, &Vec<u32>)| {
                let mut functions = Vec::new();
                for function in start.iter().map(|number| FunctionId(number % count)) {
                    if !functions.contains(&function) {
                        functions.push(function);
                    }
                }
                Trace { weight: index + 1, functions }
            };
            let traces: Vec<Trace> = (0..).zip(&starts).map(of_start).collect();
            let [page, window, before] = [32, 128, before * 32];
            let model = FaultModel::ReadAround { page, window, before };
            let problem = LayoutProblem::new(sizes, &traces)
                .unwrap()
                .with_text(origin, Vec::new())
                .unwrap()
                .with_objective(Objective { model, early_percent: 0 })
                .unwrap();
            let spans = positions(&problem, &FunctionOrder::link_order(count));
            let faults = |trace: &Trace| {
                model.faults(trace.functions.iter().map(|function| spans[function.index()])).total()
            };
            let expected: u64 = traces.iter().map(|trace| trace.weight * faults(trace) * 1000).sum();
            prop_assert_eq!(Replay::new(&problem, [page, window, before], spans.clone()).cost(), expected);
        }
    }
}
