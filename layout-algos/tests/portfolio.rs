//! The default strategy against each strategy that it is made of, on a program with kinds of use.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use layout_algos::control::{Control, Phase, Progress};
use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::{LayoutProblem, NodeId, Reference, ReferenceGraph, ReferenceKind, Rows, Trace};
use layout_algos::random::Random;
use layout_algos::score::{FaultModel, Objective, cost};
use layout_algos::solve::{
    Auto, BalancedPartitioning, FirstSeen, LinkOrder, Orderer, TraceSets, centre_windows,
};

const FUNCTIONS: u32 = 1500;

const MODELS: [FaultModel; 5] = [
    FaultModel::Pages { size: 4096 },
    FaultModel::Pages { size: 16384 },
    FaultModel::FaultAround { block: 65536 },
    FaultModel::ReadAround { page: 4096, window: 131_072, before: 65_536 },
    FaultModel::ReadAround { page: 4096, window: 131_072, before: 0 },
];

/// Twelve runs: a common core, then one of four kinds of use, in slightly different orders with some functions
/// left out. Each function refers to some others nearby.
fn program(model: FaultModel) -> LayoutProblem {
    let mut random = Random::new(11, &[]);
    let sizes = (0..FUNCTIONS)
        .map(|_| {
            let scale = 16 << random.below(8);
            16 + random.below(scale)
        })
        .collect();
    let mut shuffled: Vec<u32> = (0..FUNCTIONS).collect();
    random.shuffle(&mut shuffled);
    let (core, rest) = shuffled.split_at(250);
    let traces: Vec<Trace> = (0..12)
        .map(|index| {
            let own = &rest[index % 4 * 125..][..125];
            let mut timed = Vec::new();
            for (time, &function) in core.iter().chain(own).enumerate() {
                if random.below(8) != 0 {
                    timed.push((time as u64 * 16 + random.below(400), FunctionId(function)));
                }
            }
            timed.sort_unstable();
            let weight = if index == 7 { 1000 } else { 1 };
            Trace { weight, functions: timed.into_iter().map(|(_, function)| function).collect() }
        })
        .collect();
    let edges: Vec<(usize, Reference)> = (0..FUNCTIONS as usize * 4)
        .map(|edge| {
            let target = NodeId((edge as u32 / 4 + random.below(200) as u32) % FUNCTIONS);
            (edge / 4, Reference { target, kind: ReferenceKind::Call })
        })
        .collect();
    let rows = Rows::grouped(FUNCTIONS as usize, || edges.iter().copied()).unwrap();
    LayoutProblem::new(sizes, &traces)
        .unwrap()
        .with_references(ReferenceGraph::new(rows, FUNCTIONS as usize).unwrap())
        .unwrap()
        .with_objective(Objective { model, early_percent: 25 })
        .unwrap()
        .with_text(0x1234_5670, Vec::new())
        .unwrap()
}

#[test]
fn no_part_of_the_portfolio_is_better() {
    for model in MODELS {
        let problem = program(model);
        let chosen = Auto::default().choose(&problem, &Control::default());
        assert_eq!(chosen.cost, cost(&problem, &chosen.order));
        let parts: [&dyn Orderer; 4] =
            [&TraceSets, &FirstSeen, &LinkOrder, &BalancedPartitioning { seed: 0, prefixes: 1 }];
        for part in parts {
            let other = cost(&problem, &part.order(&problem));
            assert!(chosen.cost < other, "{model:?}: {:?} against {other:?}", chosen.cost);
        }
    }
}

#[test]
fn windows_from_the_fault_suit_ascending_runs() {
    let model = FaultModel::ReadAround { page: 4096, window: 131_072, before: 0 };
    let upwards: Vec<FunctionId> = (0..512).map(FunctionId).collect();
    let trace = Trace { weight: 1, functions: upwards.clone() };
    let problem = LayoutProblem::new(vec![4096; 512], &[trace])
        .unwrap()
        .with_objective(Objective { model, early_percent: 0 })
        .unwrap();
    let faults =
        |order: &[FunctionId]| cost(&problem, &FunctionOrder::with_rest(order.iter().copied(), 512)).0 / 1000;
    let downwards: Vec<FunctionId> = upwards.iter().rev().copied().collect();
    assert_eq!(faults(&upwards), 16);
    assert_eq!(faults(&downwards), 512, "each page lies before all that was read");
    assert_eq!(faults(&centre_windows(&problem, &downwards)), 16);
}

#[test]
fn a_window_is_read_from_its_middle() {
    let model = FaultModel::ReadAround { page: 4096, window: 131_072, before: 65_536 };
    // One run over two megabytes, upwards: a fault each half window, whereas whole windows would do.
    let functions: Vec<FunctionId> = (0..512).map(FunctionId).collect();
    let trace = Trace { weight: 1, functions: functions.clone() };
    let problem = LayoutProblem::new(vec![4096; 512], &[trace])
        .unwrap()
        .with_objective(Objective { model, early_percent: 0 })
        .unwrap();
    let faults =
        |order: &[FunctionId]| cost(&problem, &FunctionOrder::with_rest(order.iter().copied(), 512)).0 / 1000;
    assert_eq!(faults(&functions), 31);
    assert_eq!(faults(&centre_windows(&problem, &functions)), 16);
}

#[test]
fn threads_and_repetition_change_nothing() {
    let problem = program(MODELS[0]);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| Auto::default().choose(&problem, &Control::default()))
    };
    let single = run(1);
    assert_eq!(single, run(3));
}

#[test]
fn work_is_told_and_can_be_stopped() {
    let problem = program(MODELS[0]);
    let steps = AtomicU64::new(0);
    let finished = AtomicBool::new(false);
    let progress = |step: Progress| {
        steps.fetch_add(1, Ordering::Relaxed);
        if step.phase == Phase::Candidates && step.done == step.total {
            finished.store(true, Ordering::Relaxed);
        }
    };
    let cancelled = AtomicBool::new(true);
    let stopped =
        Auto::default().choose(&problem, &Control { cancelled: Some(&cancelled), progress: Some(&progress) });
    assert!(steps.into_inner() > 4);
    assert!(finished.load(Ordering::Relaxed));
    // Still an order of all functions, and no worse than link order.
    assert_eq!(stopped.order.len(), FUNCTIONS as usize);
    assert!(stopped.cost <= cost(&problem, &LinkOrder.order(&problem)));
}
