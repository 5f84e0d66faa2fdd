//! The strategy against laws, an exact oracle on small problems, and the baselines on a synthetic program.

use proptest::prelude::*;

use super::BalancedPartitioning;
use crate::ids::{FunctionId, TraceId};
use crate::order::FunctionOrder;
use crate::problem::{LayoutProblem, Trace, TraceView};
use crate::random::Random;
use crate::score::{FaultModel, packed};
use crate::solve::{FirstSeen, LinkOrder, Orderer, Shuffle};

const BALANCED: BalancedPartitioning = BalancedPartitioning { seed: 0, prefixes: 4 };

fn trace(functions: impl IntoIterator<Item = u32>) -> Trace {
    Trace { weight: 1, functions: functions.into_iter().map(FunctionId).collect() }
}

fn owned(trace: TraceView<'_>) -> Trace {
    Trace { weight: trace.weight, functions: trace.functions.to_vec() }
}

fn pages_touched(problem: &LayoutProblem, order: &FunctionOrder, size: u64) -> u64 {
    let spans = packed(problem.sizes(), order, 16);
    let faults = |trace: TraceView<'_>| {
        let touched = trace.functions.iter().map(|function| spans[function.index()]);
        FaultModel::Pages { size }.faults(touched).total()
    };
    problem.traces().iter().map(faults).sum()
}

/// Runs of a program with a common core and `families` kinds of use, each trace in its own slightly different
/// order and with some of the functions left out.
fn synthetic(functions: u32, families: u32, traces: u32, seed: u64) -> LayoutProblem {
    let mut random = Random::new(seed, &[]);
    let mut size = || {
        let scale = 16 << random.below(8);
        16 + random.below(scale)
    };
    let sizes = (0..functions).map(|_| size()).collect();
    let mut shuffled: Vec<u32> = (0..functions).collect();
    random.shuffle(&mut shuffled);
    let chunk = (functions / (2 * families + 4)) as usize;
    let (core, rest) = shuffled.split_at(2 * chunk);
    let traces = (0..traces).map(|index| {
        let family = (index % families) as usize;
        let own = &rest[family * chunk..(family + 1) * chunk];
        let mut timed = Vec::new();
        for (time, &function) in core.iter().chain(own).enumerate() {
            if random.below(8) != 0 {
                timed.push((time as u64 * 16 + random.below(400), function));
            }
        }
        timed.sort_unstable();
        trace(timed.into_iter().map(|(_, function)| function))
    });
    let traces: Vec<Trace> = traces.collect();
    LayoutProblem::new(sizes, &traces).unwrap()
}

#[test]
fn a_single_trace_is_kept_in_temporal_order_up_to_a_page() {
    let sizes = vec![4096; 64];
    let ran: Vec<u32> = (0..64).rev().step_by(2).collect();
    let problem = LayoutProblem::new(sizes, &[trace(ran.clone())]).unwrap();
    let order: Vec<u32> = BALANCED.order(&problem).iter().map(|function| function.0).take(32).collect();
    assert_eq!(order, ran);
}

#[test]
fn functions_of_unrelated_traces_are_separated() {
    // Two interleaved runs; a half page per function, so mixing them would cost twice the pages.
    let (even, odd) = ((0..64).step_by(2), (1..64).step_by(2));
    let problem = LayoutProblem::new(vec![2048; 64], &[trace(even), trace(odd)]).unwrap();
    let order = BALANCED.order(&problem);
    assert_eq!(pages_touched(&problem, &order, 4096), 32);
    assert_eq!(pages_touched(&problem, &LinkOrder.order(&problem), 4096), 64);
}

#[test]
fn it_needs_fewer_pages_than_the_baselines() {
    for seed in 0..3 {
        let problem = synthetic(6000, 6, 24, seed);
        let pages = |orderer: &dyn Orderer| pages_touched(&problem, &orderer.order(&problem), 4096);
        let balanced = pages(&BalancedPartitioning { prefixes: 1, ..BALANCED });
        let first_seen = pages(&FirstSeen);
        let (link, random) = (pages(&LinkOrder), pages(&Shuffle { seed }));
        assert!(
            balanced <= first_seen,
            "{balanced} pages, first seen {first_seen}, link {link}, random {random}"
        );
        assert!(first_seen * 2 < link.min(random), "{first_seen}, link {link}, random {random}");
    }
}

#[test]
fn heavier_traces_are_served_better() {
    // Two runs of many kinds that share functions: mixing is at the cost of the light ones.
    let weighted = |heavy: usize| {
        let problem = synthetic(3000, 2, 2, 5);
        let mut traces: Vec<Trace> = problem.traces().iter().map(owned).collect();
        traces[heavy].weight = 1000;
        let problem = LayoutProblem::new(problem.sizes().to_vec(), &traces).unwrap();
        let spans = packed(problem.sizes(), &BALANCED.order(&problem), 16);
        problem
            .traces()
            .get(TraceId(0))
            .functions
            .iter()
            .map(|function| spans[function.index()])
            .collect::<Vec<_>>()
    };
    let model = FaultModel::Pages { size: 4096 };
    let [with, without] = [0, 1].map(|heavy| model.faults(weighted(heavy)).total());
    assert!(with < without, "{with} pages with the weight, {without} without");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn traced_functions_come_first_and_the_rest_keeps_its_order(
        count in 1u32..80,
        picks in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..60), 0..6),
        seed in any::<u64>(),
    ) {
        let traces: Vec<Trace> = picks
            .iter()
            .map(|picks| {
                let mut functions: Vec<u32> = Vec::new();
                for pick in picks {
                    if !functions.contains(&(pick % count)) {
                        functions.push(pick % count);
                    }
                }
                trace(functions)
            })
            .collect();
        let sizes = (0..u64::from(count)).map(|index| index * 37 % 5000).collect();
        let problem = LayoutProblem::new(sizes, &traces).unwrap();
        let traced = problem.traced();
        for orderer in [&BalancedPartitioning { seed, prefixes: 4 } as &dyn Orderer, &FirstSeen] {
            let order = orderer.order(&problem);
            prop_assert_eq!(order.len(), count as usize);
            prop_assert_eq!(&order, &orderer.order(&problem));
            prop_assert!(FunctionOrder::of(order.iter().collect()).is_some());
            let hot = traced.iter().filter(|&&traced| traced).count();
            prop_assert!(order.iter().take(hot).all(|function| traced[function.index()]));
            prop_assert!(order.iter().skip(hot).is_sorted());
        }
    }
}
