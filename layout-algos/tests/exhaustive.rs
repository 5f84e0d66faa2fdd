//! All layouts of few functions: what strategies cost, and what bounds promise, against the true optimum.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

use std::collections::BTreeSet;

use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::{LayoutProblem, NodeId, Reference, ReferenceGraph, ReferenceKind, Rows, Trace};
use layout_algos::score::{self, FaultModel, Objective, Occupancy, Span, lower_bounds, positions};
use layout_algos::solve::{
    Auto, AverageTimeStamp, BalancedPartitioning, CacheDirected, CallChainClustering, FirstSeen, LinkOrder,
    LldPartitioning, LlvmProfdata, Orderer, PettisHansen, Shuffle, TraceSets,
};
use proptest::prelude::*;

/// Small pages, so that few functions fill several.
const MODELS: [FaultModel; 5] = [
    FaultModel::Pages { size: 64 },
    FaultModel::Pages { size: 256 },
    FaultModel::FaultAround { block: 128 },
    FaultModel::ReadAround { page: 32, window: 128, before: 64 },
    FaultModel::ReadAround { page: 32, window: 128, before: 0 },
];

fn orderers() -> Vec<(&'static str, Box<dyn Orderer>)> {
    vec![
        ("auto", Box::new(Auto::default())),
        ("average time stamp", Box::new(AverageTimeStamp)),
        ("balanced", Box::new(BalancedPartitioning { seed: 1, ..BalancedPartitioning::default() })),
        ("cache-directed", Box::new(CacheDirected)),
        ("call-chain clustering", Box::new(CallChainClustering)),
        ("first seen", Box::new(FirstSeen)),
        ("link", Box::new(LinkOrder)),
        ("lld", Box::new(LldPartitioning::default())),
        ("llvm-profdata", Box::new(LlvmProfdata::default())),
        ("Pettis-Hansen", Box::new(PettisHansen)),
        ("shuffle", Box::new(Shuffle { seed: 1 })),
        ("trace sets", Box::new(TraceSets)),
    ]
}

/// Cost by the library's models and positions, without rounding.
fn cost(problem: &LayoutProblem, order: &FunctionOrder) -> f64 {
    let spans = positions(problem, order);
    let objective = problem.objective();
    let early = f64::from(objective.early_percent) / 100.0;
    let cost = |weight: u64, functions: &[FunctionId]| {
        let curve = objective.model.faults(functions.iter().map(|function| spans[function.index()]));
        weight as f64 * ((1.0 - early) * curve.total() as f64 + early * curve.mean())
    };
    problem.traces().iter().map(|trace| cost(trace.weight, trace.functions)).sum()
}

/// The same, one address at a time.
fn slow_cost(problem: &LayoutProblem, order: &FunctionOrder) -> f64 {
    let spans = slow_positions(problem, order);
    let early = f64::from(problem.objective().early_percent) / 100.0;
    let (unit, before, length) = match problem.objective().model {
        FaultModel::Pages { size } | FaultModel::FaultAround { block: size } => (size, 0, 1),
        FaultModel::ReadAround { page, window, before } => (page, before / page, window / page),
    };
    let mut cost = 0.0;
    for trace in problem.traces().iter() {
        let mut present = BTreeSet::new();
        let (mut faults, mut points) = (0u64, Vec::new());
        for function in trace.functions {
            for byte in spans[function.index()].start..spans[function.index()].end {
                if !present.contains(&(byte / unit)) {
                    faults += 1;
                    let first = (byte / unit).saturating_sub(before);
                    present.extend(first..first + length);
                }
            }
            points.push(faults);
        }
        let mean = points.iter().sum::<u64>() as f64 / points.len().max(1) as f64;
        cost += trace.weight as f64 * ((1.0 - early) * faults as f64 + early * mean);
    }
    cost
}

/// Each function at the first address after the last one where it is aligned and meets no obstacle.
fn slow_positions(problem: &LayoutProblem, order: &FunctionOrder) -> Vec<Span> {
    let mut spans = vec![Span { start: 0, end: 0 }; problem.function_count()];
    let mut cursor = problem.origin();
    for function in order.iter() {
        let alignment = u64::from(problem.alignment(function));
        let is_free = |start: &u64| {
            let end = start + problem.size(function);
            let meets = |span: &Span| span.start < end && *start < span.end;
            start.is_multiple_of(alignment) && !problem.obstacles().iter().any(meets)
        };
        let start = (cursor..).find(is_free).unwrap();
        cursor = start + problem.size(function);
        spans[function.index()] = Span { start, end: cursor };
    }
    spans
}

/// Calls `visit` with every order of `items` (Heap's algorithm).
fn permutations(items: &mut [FunctionId], unfixed: usize, visit: &mut impl FnMut(&[FunctionId])) {
    if unfixed <= 1 {
        visit(items);
        return;
    }
    for index in 0..unfixed {
        permutations(items, unfixed - 1, visit);
        items.swap(if unfixed.is_multiple_of(2) { index } else { 0 }, unfixed - 1);
    }
}

fn optimum(problem: &LayoutProblem) -> f64 {
    let mut least = f64::INFINITY;
    let mut functions: Vec<FunctionId> = (0..problem.function_count() as u32).map(FunctionId).collect();
    let count = functions.len();
    permutations(&mut functions, count, &mut |functions| {
        least = least.min(cost(problem, &FunctionOrder::of(functions.to_vec()).unwrap()));
    });
    least
}

/// Problems of up to `most` functions and `most_traces` traces: sizes with zeros, even and uneven alignments, weights,
/// calls, an obstacle.
fn problems(most: usize, most_traces: usize) -> impl Strategy<Value = LayoutProblem> {
    let functions = prop::collection::vec((0u64..200, 0u32..6), 1..=most);
    let traces =
        prop::collection::vec((1u64..4, prop::collection::vec(any::<u32>(), 0..most)), 0..=most_traces);
    let calls = prop::option::of(prop::collection::vec(prop::collection::vec(any::<u32>(), 0..3), most));
    let text = (0u64..300, prop::option::of((0u64..500, 1u64..100)));
    (functions, any::<bool>(), traces, calls, text).prop_map(|(functions, is_even, traces, calls, text)| {
        let count = functions.len() as u32;
        let (sizes, exponents): (Vec<u64>, Vec<u32>) = functions.into_iter().unzip();
        let alignments = exponents.iter().map(|exponent| if is_even { 16 } else { 1 << exponent }).collect();
        let traces: Vec<Trace> = traces
            .into_iter()
            .map(|(weight, picks)| {
                let mut functions: Vec<FunctionId> = Vec::new();
                for function in picks.into_iter().map(|pick| FunctionId(pick % count)) {
                    if !functions.contains(&function) {
                        functions.push(function);
                    }
                }
                Trace { weight, functions }
            })
            .collect();
        let (origin, obstacle) = text;
        let obstacle =
            obstacle.map(|(start, size)| Span { start: origin + start, end: origin + start + size });
        let problem = LayoutProblem::new(sizes, &traces).unwrap().with_alignments(alignments).unwrap();
        let problem = problem.with_text(origin, obstacle.into_iter().collect()).unwrap();
        let Some(calls) = calls else { return problem };
        let mut rows = Rows::default();
        for targets in calls.iter().take(count as usize) {
            let call = |target: &u32| Reference { target: NodeId(target % count), kind: ReferenceKind::Call };
            rows.push(targets.iter().map(call)).unwrap();
        }
        problem.with_references(ReferenceGraph::new(rows, count as usize).unwrap()).unwrap()
    })
}

/// Strategies cost what a recount says and no less than the optimum; bounds are not above it.
fn check(problem: &LayoutProblem) -> Result<(), TestCaseError> {
    let least = optimum(problem);
    let weight: f64 = problem.traces().iter().map(|trace| trace.weight as f64).sum();
    for (name, orderer) in orderers() {
        let order = orderer.order(problem);
        prop_assert_eq!(order.len(), problem.function_count());
        let cost = cost(problem, &order);
        prop_assert!((cost - slow_cost(problem, &order)).abs() < 1e-9, "{} costs {}", name, cost);
        // The score rounds the cost of each run down to thousandths.
        let rounding = cost - score::cost(problem, &order).0 as f64 / 1000.0;
        prop_assert!(
            (-1e-9..=weight / 1000.0).contains(&rounding),
            "{} costs {}, score {}",
            name,
            cost,
            rounding
        );
        prop_assert!(cost >= least - 1e-9, "{} costs {}, less than the optimum {}", name, cost, least);
    }
    let is_even = (0..problem.function_count() as u32)
        .all(|index| problem.alignment(FunctionId(index)) == problem.alignment(FunctionId(0)));
    for occupancy in [Occupancy::Raw, Occupancy::Aligned, Occupancy::Padded] {
        let bounds = lower_bounds(problem, occupancy);
        prop_assert!(bounds.per_trace <= bounds.joint);
        if occupancy != Occupancy::Padded || is_even {
            prop_assert!(
                bounds.joint <= least * (1.0 + 1e-9),
                "{:?}: {:?} above {}",
                occupancy,
                bounds,
                least
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_strategy_and_no_bound_crosses_the_optimum(
        problem in problems(6, 4),
        early_percent in prop::sample::select(vec![0u32, 30, 100]),
    ) {
        for model in MODELS {
            check(&problem.clone().with_objective(Objective { model, early_percent }).unwrap())?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn nor_with_more_functions_and_traces(problem in problems(7, 13)) {
        for model in MODELS {
            check(&problem.clone().with_objective(Objective { model, early_percent: 50 }).unwrap())?;
        }
    }
}

#[test]
fn the_joint_bound_is_reached() {
    let trace = |functions: [u32; 2]| Trace::of(1, &functions);
    let objective = Objective { model: FaultModel::Pages { size: 64 }, early_percent: 0 };
    let problem = LayoutProblem::new(vec![32; 4], &[trace([0, 1]), trace([2, 0]), trace([0, 3])])
        .unwrap()
        .with_objective(objective)
        .unwrap();
    let bounds = lower_bounds(&problem, Occupancy::Raw);
    assert_eq!((bounds.per_trace, bounds.joint, optimum(&problem)), (3.0, 5.0, 5.0));
}
