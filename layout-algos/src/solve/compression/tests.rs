//! The guarantees of gathering: no function lost, no cost above the budget, similar functions next to each other.

use proptest::prelude::*;

use super::*;
use crate::ids::FunctionId;
use crate::problem::{Rows, Trace};
use crate::random::Random;

const FUNCTIONS: u32 = 60;

/// Functions of a few kinds: those of one kind share half of their content or all of it, those of different kinds none.
fn problem(sizes: Vec<u64>, kinds: &[u32], traces: &[Vec<u32>]) -> LayoutProblem {
    let mut fingerprints = Rows::default();
    for (function, kind) in kinds.iter().enumerate() {
        let own = if function % 3 == 0 { function as u32 + 1 } else { 0 };
        let mut row: Vec<u32> =
            (0..16).map(|hash| kind * 1_000_003 + hash * 4099 + hash % 2 * own * 64).collect();
        row.sort_unstable();
        fingerprints.push(row).unwrap();
    }
    let traces: Vec<Trace> = traces.iter().map(|trace| Trace::of(1, trace)).collect();
    LayoutProblem::new(sizes, &traces).unwrap().with_fingerprints(fingerprints).unwrap()
}

fn problems() -> impl Strategy<Value = LayoutProblem> {
    let trace = prop::collection::btree_set(0..FUNCTIONS, 0..20).prop_map(|set| set.into_iter().collect());
    let count = FUNCTIONS as usize;
    let sizes = prop::collection::vec(1u64..3000, count);
    let kinds = prop::collection::vec(0u32..8, count);
    (sizes, kinds, prop::collection::vec(trace, 0..6))
        .prop_map(|(sizes, kinds, traces): (_, _, Vec<Vec<u32>>)| problem(sizes, &kinds, &traces))
}

fn shuffled(seed: u64) -> FunctionOrder {
    let mut functions: Vec<FunctionId> = (0..FUNCTIONS).map(FunctionId).collect();
    Random::new(seed, &[]).shuffle(&mut functions);
    FunctionOrder::of(functions).unwrap()
}

fn improve(problem: &LayoutProblem, order: &FunctionOrder, page_budget_permille: u32) -> FunctionOrder {
    let aware = CompressionAware { page_budget_permille, unseen: UnseenOrder::Link };
    aware.improve(problem, order, &Control::default())
}

/// Neighbours with the same content.
fn likes(problem: &LayoutProblem, order: &FunctionOrder) -> usize {
    let rows = problem.fingerprints().unwrap();
    let functions: Vec<FunctionId> = order.iter().collect();
    functions.windows(2).filter(|pair| rows.row(pair[0].index()) == rows.row(pair[1].index())).count()
}

proptest! {
    #[test]
    fn recorded_traces_stay_within_the_budget(problem in problems(), seed in any::<u64>(), budget in 0u32..30) {
        let order = shuffled(seed);
        let improved = improve(&problem, &order, budget);
        // An independent count: pages by their numbers, one trace after the other.
        let cost = |order: &FunctionOrder| -> u64 {
            let spans = crate::score::positions(&problem, order);
            problem.traces().iter().map(|trace| crate::score::cost_of_trace(problem.objective(), trace, &spans).0).sum()
        };
        prop_assert!(cost(&improved) * 1000 <= cost(&order) * u64::from(1000 + budget));
        let is_traced = problem.traced();
        let last = order.iter().collect::<Vec<_>>().iter().rposition(|function| is_traced[function.index()]);
        let kept = last.map_or(0, |last| last + 1);
        prop_assert_eq!(improved.iter().take(kept).collect::<Vec<_>>(), order.iter().take(kept).collect::<Vec<_>>());
        prop_assert!(FunctionOrder::of(improved.iter().collect()).is_some());
        prop_assert_eq!(improved.len(), order.len());
    }

    #[test]
    fn gathering_loses_no_function_at_any_strictness(problem in problems(), seed in any::<u64>()) {
        let order = shuffled(seed);
        let pairs = SimilarPairs::of(problem.fingerprints().unwrap());
        for strictness in LEVELS {
            let result = gathered(&problem, &order, &pairs, strictness);
            let mut all: Vec<FunctionId> = result.iter().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..FUNCTIONS).map(FunctionId).collect::<Vec<_>>());
        }
    }
}

#[test]
fn equal_content_is_adjacent_where_no_trace_pays() {
    let kinds: Vec<u32> = (0..FUNCTIONS).map(|function| function % 5).collect();
    let problem = problem(vec![500; FUNCTIONS as usize], &kinds, &[]);
    let order = FunctionOrder::link_order(FUNCTIONS);
    assert_eq!(likes(&problem, &order), 0);
    // Eight of the twelve functions of each of the five kinds are equal: at best 35 pairs.
    assert!(likes(&problem, &improve(&problem, &order, 0)) == 35);
}

#[test]
fn held_out_runs_forbid_what_they_pay_for() {
    // Each pair of runs executes sixteen functions that no other run executes, and that are unlike each other, but like
    // those of the other runs: gathered, they would be on sixteen pages instead of two.
    let functions = |start: u32| (start * 16..start * 16 + 16).collect::<Vec<u32>>();
    let traces: Vec<Vec<u32>> = (0..4).map(functions).collect();
    let kinds: Vec<u32> = (0..128).map(|function| function % 16).collect();
    let problem = problem(vec![512; 128], &kinds, &traces);
    let order = FunctionOrder::link_order(128);
    assert_eq!(improve(&problem, &order, 10), order);
    assert_ne!(improve(&problem, &order, u32::MAX), order);
}

#[test]
fn without_fingerprints_nothing_moves() {
    let order = shuffled(1);
    let problem = LayoutProblem::new(vec![16; FUNCTIONS as usize], &[]).unwrap();
    assert_eq!(improve(&problem, &order, 10), order);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let mut random = Random::new(5, &[]);
    let kinds: Vec<u32> = (0..FUNCTIONS).map(|_| random.below(6) as u32).collect();
    let traces = [vec![3, 4, 5], vec![4, 9], vec![5, 3], vec![7]];
    let problem = problem(vec![300; FUNCTIONS as usize], &kinds, &traces);
    let order = FunctionOrder::link_order(FUNCTIONS);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| improve(&problem, &order, u32::MAX))
    };
    let single = run(1);
    assert_eq!(single, run(3));
    assert_ne!(single, order);
}
