//! Every change against a fresh count, and the search against its promises.

use proptest::prelude::*;

use super::arrangement::Shift;
use super::*;
use crate::problem::Trace;
use crate::score::Objective;

fn problem(sizes: Vec<u64>, traces: &[Vec<u32>], early_percent: u32, page: u64) -> LayoutProblem {
    let traces: Vec<Trace> = traces.iter().map(|trace| Trace::of(1, trace)).collect();
    LayoutProblem::new(sizes, &traces)
        .unwrap()
        .with_objective(Objective { model: FaultModel::Pages { size: page }, early_percent })
        .unwrap()
        .with_text(1000, Vec::new())
        .unwrap()
}

fn traced(problem: &LayoutProblem) -> Vec<FunctionId> {
    let is_traced = problem.traced().into_iter().enumerate();
    is_traced.filter(|(_, is_traced)| *is_traced).map(|(index, _)| FunctionId(index as u32)).collect()
}

/// Pages touched by all traces together.
fn pages(problem: &LayoutProblem, order: &[FunctionId]) -> u64 {
    let order = FunctionOrder::with_rest(order.iter().copied(), problem.function_count() as u32);
    let spans = positions(problem, &order);
    let touched = |functions: &[FunctionId]| {
        let spans = functions.iter().map(|function| spans[function.index()]);
        problem.objective().model.faults(spans).total()
    };
    problem.traces().iter().map(|trace| touched(trace.functions)).sum()
}

/// Up to five startups of up to 80 functions, each in its own order.
fn problems() -> impl Strategy<Value = LayoutProblem> {
    let sizes = prop::collection::vec(1u64..1500, 80);
    let trace = prop::collection::vec((0u32..80, any::<u32>()), 1..60).prop_map(|mut timed| {
        timed.sort_by_key(|&(function, time)| (function, time));
        timed.dedup_by_key(|(function, _)| *function);
        timed.sort_by_key(|&(_, time)| time);
        timed.into_iter().map(|(function, _)| function).collect::<Vec<u32>>()
    });
    (sizes, prop::collection::vec(trace, 1..6), 0u32..=100)
        .prop_map(|(sizes, traces, early)| problem(sizes, &traces, early, 4096))
}

proptest! {
    #[test]
    fn changes_cost_what_a_fresh_count_says(
        problem in problems(),
        changes in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 1..30),
    ) {
        let functions = traced(&problem);
        let costs = TouchCosts::of(&problem, &functions);
        let cost = |placed: &[Placed]| Arrangement::new(&costs, 12, placed.to_vec()).cost();
        let mut arrangement = Arrangement::new(&costs, 12, place(&problem, &functions));
        let mut scratch = Vec::new();
        for (one, other, third) in changes {
            let before = cost(arrangement.placed());
            let mut cuts = [one, other, third].map(|cut| cut as usize % functions.len());
            cuts.sort_unstable();
            let placed = arrangement.placed();
            let (first, second) = (cuts[0]..cuts[1], cuts[1]..cuts[2]);
            let gain = if !first.is_empty() && !second.is_empty() {
                let bytes = |run: &std::ops::Range<usize>| (placed[run.end - 1].end() - placed[run.start].start) as i64;
                let shifts =
                    [Shift { by: bytes(&second), run: first.clone() }, Shift { by: -bytes(&first), run: second }];
                let gain = arrangement.shift_gain(&shifts, &mut scratch);
                arrangement.shift(&shifts);
                gain
            } else if placed[cuts[0]].padded == placed[cuts[2]].padded {
                let gain = arrangement.exchange_gain(cuts[0], cuts[2]);
                arrangement.exchange(cuts[0], cuts[2]);
                gain
            } else {
                0
            };
            prop_assert_eq!(before as i64 - gain, cost(arrangement.placed()) as i64);
            prop_assert_eq!(arrangement.cost(), cost(arrangement.placed()));
        }
        let dense = arrangement.placed().windows(2).all(|pair| pair[0].end() <= pair[1].start);
        prop_assert!(dense);
    }

    #[test]
    fn faults_never_become_more(problem in problems(), seed in any::<u64>()) {
        // Without a share for early faults the cost of an arrangement is the number of faults.
        let problem = problem
            .with_objective(Objective { early_percent: 0, model: FaultModel::Pages { size: 4096 } })
            .unwrap();
        let functions = traced(&problem);
        let search = LocalSearch { seed, tries_per_function: 50, most_tries: 4000 };
        let improved = search.improve(&problem, &functions);
        let mut sorted = improved.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, functions.clone());
        prop_assert!(pages(&problem, &improved) <= pages(&problem, &functions));
    }
}

#[test]
fn what_runs_together_comes_together() {
    // Two startups, alternating functions of half a page: sixteen pages each, eight if they are parted.
    let traces = [(0..32).step_by(2).collect(), (1..32).step_by(2).collect()];
    let problem = problem(vec![2048; 32], &traces, 0, 4096).with_text(0, Vec::new()).unwrap();
    let functions = traced(&problem);
    assert_eq!(pages(&problem, &functions), 32);
    assert_eq!(pages(&problem, &LocalSearch::default().improve(&problem, &functions)), 16);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let mut random = Random::new(1, &[]);
    let count = 3 * PART_FUNCTIONS as u32;
    let sizes = (0..count).map(|_| 16 + random.below(600)).collect();
    let traces: Vec<Vec<u32>> =
        (0..4).map(|_| (0..count).filter(|_| random.below(2) == 0).collect()).collect();
    let problem = problem(sizes, &traces, 25, 4096);
    let functions = traced(&problem);
    let search = LocalSearch { most_tries: 60_000, ..LocalSearch::default() };
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| search.improve(&problem, &functions))
    };
    let single = run(1);
    assert_eq!(single, run(3));
    assert!(pages(&problem, &single) < pages(&problem, &functions));
}
