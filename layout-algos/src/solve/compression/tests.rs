//! The guarantees of an order that compresses: no function lost, recorded runs untouched, new ones within the budget,
//! similar functions next to each other, no estimate that gets worse.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::estimate::novelty;
use super::walk::Walk;
use super::*;
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

fn aware(budget_permille: u32, reach: u64) -> CompressionAware {
    CompressionAware { budget_permille, reach, unseen: UnseenOrder::Link }
}

fn choose(problem: &LayoutProblem, order: &FunctionOrder, budget_permille: u32) -> CompressedOrder {
    aware(budget_permille, 4096).choose(problem, order, &[], &Control::default())
}

/// Hashes that are not in reach, counted function by function as slowly as the definition says it.
fn novelty_by_definition(problem: &LayoutProblem, functions: &[FunctionId], reach: u64) -> u64 {
    let rows = problem.fingerprints().unwrap();
    let mut ends = Vec::new();
    let mut position = 0;
    let mut novel = 0;
    for (index, &function) in functions.iter().enumerate() {
        for hash in rows.row(function.index()) {
            let is_near = |earlier: usize| {
                let end: u64 = ends[earlier];
                end + reach >= position && rows.row(functions[earlier].index()).contains(hash)
            };
            novel += u64::from(!(0..index).any(is_near));
        }
        position += problem.size(function);
        ends.push(position);
    }
    novel
}

/// The order of `tail` after `front`, each step found by comparing all functions with all that are in reach.
fn walk_by_definition(
    problem: &LayoutProblem,
    front: &[FunctionId],
    tail: &[FunctionId],
    reach: u64,
    min_shared: u32,
) -> Vec<FunctionId> {
    let rows = problem.fingerprints().unwrap();
    let shared = |one: FunctionId, other: FunctionId| {
        let other = rows.row(other.index());
        rows.row(one.index()).iter().filter(|hash| other.contains(hash)).count() as u64
    };
    let share =
        |function: FunctionId, shared: u64| (shared << 20) / (rows.row(function.index()).len() as u64 + 8);
    let mut placed: Vec<(FunctionId, u64)> = Vec::new();
    let mut end = 0;
    let mut put = |function: FunctionId, placed: &mut Vec<(FunctionId, u64)>| {
        end += problem.size(function);
        placed.push((function, end));
    };
    front.iter().for_each(|&function| put(function, &mut placed));
    let mut left = tail.to_vec();
    let mut order = Vec::new();
    while let Some(&next) = left.first() {
        let last = placed.last().map_or(0, |&(_, end)| end);
        let in_reach: Vec<_> = placed.iter().filter(|&&(_, end)| end + reach >= last).collect();
        let offer = |function: FunctionId, least: u64| {
            let offers = in_reach.iter().map(|&&(other, end)| (shared(function, other), end));
            offers
                .filter(|&(shared, _)| shared >= least)
                .map(|(shared, end)| (share(function, shared), end))
                .max()
        };
        let own = offer(next, 0).map_or(0, |(share, _)| share);
        let mut best: Option<((u64, u64), FunctionId)> = None;
        for &function in &left {
            let offered = offer(function, u64::from(min_shared));
            if let Some(offered) = offered
                && best.is_none_or(|(before, _)| offered > before)
            {
                best = Some((offered, function));
            }
        }
        let chosen = best.filter(|&((share, _), _)| share > own).map_or(next, |(_, function)| function);
        left.retain(|&function| function != chosen);
        put(chosen, &mut placed);
        order.push(chosen);
    }
    order
}

proptest! {
    #[test]
    fn recorded_functions_stay_and_none_is_lost(problem in problems(), seed in any::<u64>(), budget in 0u32..300) {
        let order = shuffled(seed);
        let chosen = choose(&problem, &order, budget);
        let is_traced = problem.traced();
        let last = order.iter().collect::<Vec<_>>().iter().rposition(|function| is_traced[function.index()]);
        let kept = last.map_or(0, |last| last + 1);
        let front = |order: &FunctionOrder| order.iter().take(kept).collect::<Vec<_>>();
        prop_assert_eq!(front(&chosen.order), front(&order));
        let all: BTreeSet<FunctionId> = chosen.order.iter().collect();
        prop_assert_eq!((all.len(), chosen.order.len()), (FUNCTIONS as usize, FUNCTIONS as usize));
        prop_assert!(chosen.chosen.growth_permille <= u64::from(budget));
        prop_assert!(chosen.chosen.compressed_bytes <= 0);
    }

    #[test]
    fn every_tail_order_is_a_permutation(problem in problems(), seed in any::<u64>(), reach in 1u64..20_000) {
        let tail = Tail::of(&problem, &shuffled(seed));
        let common = CommonContent::new(&problem).unwrap();
        let ranks = content_ranks(&problem, &Control::default()).unwrap();
        let content = Content { common, ranks };
        let expected: BTreeSet<FunctionId> = tail.functions.iter().copied().collect();
        for tail_order in tail_orders(u64::MAX) {
            let arranged = tail.arranged(&problem, &content, tail_order, reach, &Control::default());
            prop_assert_eq!(arranged.len(), tail.functions.len());
            prop_assert_eq!(&arranged.into_iter().collect::<BTreeSet<_>>(), &expected);
        }
    }

    #[test]
    fn the_walk_is_what_its_definition_says(
        problem in problems(), seed in any::<u64>(), reach in 0u64..40_000, min_shared in 1u32..12, front in 0usize..20,
    ) {
        let functions: Vec<FunctionId> = shuffled(seed).iter().collect();
        let (front, tail) = functions.split_at(front);
        let content = CommonContent::new(&problem).unwrap();
        let walk = Walk::new(&problem, &content, front, tail, reach, min_shared);
        let expected = walk_by_definition(&problem, front, tail, reach.min(32 << 10), min_shared);
        prop_assert_eq!(walk.run(&Control::default()), expected);
    }

    #[test]
    fn novelty_is_what_its_definition_says(problem in problems(), seed in any::<u64>(), reach in 0u64..30_000) {
        let functions: Vec<FunctionId> = shuffled(seed).iter().collect();
        prop_assert_eq!(novelty(&problem, &functions, reach), novelty_by_definition(&problem, &functions, reach));
    }
}

/// Neighbours with the same content.
fn likes(problem: &LayoutProblem, order: &FunctionOrder) -> usize {
    let rows = problem.fingerprints().unwrap();
    let functions: Vec<FunctionId> = order.iter().collect();
    functions.windows(2).filter(|pair| rows.row(pair[0].index()) == rows.row(pair[1].index())).count()
}

#[test]
fn equal_content_is_adjacent_where_no_trace_pays() {
    let kinds: Vec<u32> = (0..FUNCTIONS).map(|function| function % 5).collect();
    let problem = problem(vec![500; FUNCTIONS as usize], &kinds, &[]);
    let order = FunctionOrder::link_order(FUNCTIONS);
    assert_eq!(likes(&problem, &order), 0);
    let aware = aware(0, 1);
    let compressed = aware.choose(&problem, &order, &[], &Control::default());
    // Eight of the twelve functions of each of the five kinds are equal: 35 pairs, and none is separated.
    assert_eq!(likes(&problem, &compressed.order), 35);
    assert!(compressed.chosen.compressed_bytes < 0);
}

#[test]
fn functions_of_one_kind_are_brought_together_by_content_alone() {
    let kinds: Vec<u32> = (0..FUNCTIONS).map(|function| function % 5).collect();
    let problem = problem(vec![2000; FUNCTIONS as usize], &kinds, &[]);
    let ranks = content_ranks(&problem, &Control::default()).unwrap();
    let mut functions: Vec<u32> = (0..FUNCTIONS).collect();
    functions.sort_unstable_by_key(|&function| ranks[function as usize]);
    // Parts of eight functions stay as they are, so each may have two kinds: in link order every pair differs.
    let pairs = functions.windows(2);
    let differing = pairs.filter(|pair| kinds[pair[0] as usize] != kinds[pair[1] as usize]).count();
    assert!(differing < 40, "{functions:?}");
    let novel = |functions: &[u32]| {
        let functions: Vec<FunctionId> = functions.iter().copied().map(FunctionId).collect();
        novelty(&problem, &functions, 8 << 10)
    };
    let linked: Vec<u32> = (0..FUNCTIONS).collect();
    assert!(novel(&functions) * 4 < novel(&linked) * 3, "{} after {}", novel(&functions), novel(&linked));
}

#[test]
fn held_out_runs_forbid_what_they_pay_for() {
    // Each run executes sixteen functions that no other run executes, and that are unlike each other, but like those of the
    // other runs: by content they would be on sixteen pages instead of two.
    let functions = |start: u32| (start * 16..start * 16 + 16).collect::<Vec<u32>>();
    let traces: Vec<Vec<u32>> = (0..4).map(functions).collect();
    let kinds: Vec<u32> = (0..128).map(|function| function % 16).collect();
    let problem = problem(vec![512; 128], &kinds, &traces);
    let order = FunctionOrder::link_order(128);
    // Any pull costs pages here, and there is no other order by pages.
    assert_eq!(choose(&problem, &order, 10).chosen.tail_order, TailOrder::Pages);
    assert_eq!(choose(&problem, &order, 10_000).chosen.tail_order, TailOrder::Content(3));
}

#[test]
fn the_curve_says_what_each_budget_gives() {
    let functions = |start: u32| (start * 8..start * 8 + 8).collect::<Vec<u32>>();
    let traces: Vec<Vec<u32>> = (0..4).map(functions).collect();
    let kinds: Vec<u32> = (0..128).map(|function| function % 8).collect();
    let problem = problem(vec![700; 128], &kinds, &traces);
    let order = FunctionOrder::link_order(128);
    let budgets = [0, 10, 50, 200, 9000];
    let compressed = aware(50, 4096).choose(&problem, &order, &budgets, &Control::default());
    assert_eq!(compressed.curve.iter().map(|(budget, _)| *budget).collect::<Vec<_>>(), budgets);
    for (budget, trade) in &compressed.curve {
        assert_eq!(*trade, choose(&problem, &order, *budget).chosen, "{budget}");
    }
    assert_eq!(compressed.chosen, compressed.curve[2].1);
    assert!(compressed.curve[4].1.compressed_bytes < compressed.curve[0].1.compressed_bytes);
}

#[test]
fn without_fingerprints_nothing_moves() {
    let order = shuffled(1);
    let problem = LayoutProblem::new(vec![16; FUNCTIONS as usize], &[]).unwrap();
    assert_eq!(choose(&problem, &order, 10).order, order);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let count = 3000;
    let mut random = Random::new(5, &[]);
    let kinds: Vec<u32> = (0..count).map(|_| random.below(60) as u32).collect();
    let traces = [vec![3, 4, 5], vec![4, 9], vec![5, 3], vec![7]];
    let problem = problem(vec![300; count], &kinds, &traces);
    let order = FunctionOrder::link_order(count as u32);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| choose(&problem, &order, 100_000))
    };
    let single = run(1);
    assert_eq!(single, run(3));
    assert_ne!(single.order, order);
}

/// A walk over all of `problem` in link order.
fn walked(problem: &LayoutProblem, control: &Control<'_>) -> Vec<FunctionId> {
    let functions: Vec<FunctionId> = (0..problem.function_count() as u32).map(FunctionId).collect();
    let content = CommonContent::new(problem).unwrap();
    Walk::new(problem, &content, &[], &functions, 32 << 10, 1).run(control)
}

#[test]
fn hashes_of_very_many_functions_do_not_count() {
    let rows = |holders: u32| {
        let mut rows = Rows::default();
        for function in 0..200u32 {
            let common = function % 2 == 0 && function / 2 < holders;
            rows.push([if common { 1 } else { 1000 + function }]).unwrap();
        }
        LayoutProblem::new(vec![64; 200], &[]).unwrap().with_fingerprints(rows).unwrap()
    };
    let in_link_order: Vec<FunctionId> = (0..200).map(FunctionId).collect();
    assert_eq!(walked(&rows(65), &Control::default()), in_link_order);
    let first: Vec<u32> =
        walked(&rows(64), &Control::default()).iter().take(64).map(|function| function.0).collect();
    assert_eq!(first, (0..64).map(|function| 2 * function).collect::<Vec<_>>());
}

#[test]
fn a_cancelled_walk_pulls_nothing() {
    let kinds: Vec<u32> = (0..FUNCTIONS).map(|function| function % 5).collect();
    let problem = problem(vec![500; FUNCTIONS as usize], &kinds, &[]);
    let cancelled = AtomicBool::new(true);
    let in_link_order: Vec<FunctionId> = (0..FUNCTIONS).map(FunctionId).collect();
    assert_eq!(
        walked(&problem, &Control { cancelled: Some(&cancelled), ..Control::default() }),
        in_link_order
    );
    assert_ne!(walked(&problem, &Control::default()), in_link_order);
}

#[test]
fn the_estimate_counts_functions_without_their_neighbours() {
    let problem = problem(vec![500; FUNCTIONS as usize], &(0..FUNCTIONS).collect::<Vec<_>>(), &[]);
    let in_link_order: Vec<FunctionId> = (0..FUNCTIONS).map(FunctionId).collect();
    let backwards: Vec<FunctionId> = in_link_order.iter().rev().copied().collect();
    let difference = estimate(&problem, &backwards, 1 << 20) - estimate(&problem, &in_link_order, 1 << 20);
    assert_eq!(difference, u64::from(FUNCTIONS - 1) * 12 / 10);
}
