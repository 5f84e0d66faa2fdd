//! The walks on a small graph by hand, and laws on random ones.

use proptest::prelude::*;

use super::*;
use crate::problem::{NodeId, Reference, ReferenceGraph, ReferenceKind, Rows, Trace};

fn graph(functions: usize, targets: &[&[u32]]) -> ReferenceGraph {
    let mut rows = Rows::default();
    for row in targets {
        let references =
            row.iter().map(|&target| Reference { target: NodeId(target), kind: ReferenceKind::Call });
        rows.push(references).unwrap();
    }
    ReferenceGraph::new(rows, functions).unwrap()
}

fn problem(functions: usize, traces: &[&[u32]], references: ReferenceGraph) -> LayoutProblem {
    let traces: Vec<Trace> = traces.iter().map(|trace| Trace::of(1, trace)).collect();
    LayoutProblem::new(vec![100; functions], &traces).unwrap().with_references(references).unwrap()
}

const WALK: ReferenceWalk = ReferenceWalk {
    parent: Parent::DepthFirst,
    roots: Roots::Time,
    children: Children::Position,
    children_first: false,
};

fn walked(walk: ReferenceWalk) -> Vec<u32> {
    // 0 and 1 ran, 1 first. 8 is a table of data. 7 is not referred to.
    let references = graph(8, &[&[1, 2, 3], &[5, 4], &[6], &[], &[8], &[], &[5], &[0], &[3, 2]]);
    UnseenOrder::References(walk)
        .order(&problem(8, &[&[1, 0]], references))
        .into_iter()
        .map(|function| function.0)
        .collect()
}

#[test]
fn what_one_entry_leads_to_is_contiguous() {
    assert_eq!(walked(WALK), [5, 4, 3, 2, 6, 7]);
    assert_eq!(walked(ReferenceWalk { roots: Roots::Link, ..WALK }), [2, 6, 5, 3, 4, 7]);
    assert_eq!(walked(ReferenceWalk { children: Children::Link, ..WALK }), [4, 2, 6, 5, 3, 7]);
    assert_eq!(walked(ReferenceWalk { children_first: true, ..WALK }), [5, 3, 6, 2, 4, 7]);
}

#[test]
fn specific_referrers_are_preferred() {
    // 1 refers to two things and goes first; 4 to one; the table 8 to two, before 0 with its three.
    assert_eq!(walked(ReferenceWalk { parent: Parent::Specific, ..WALK }), [5, 4, 3, 2, 6, 7]);
    let references = graph(4, &[&[1, 2, 3], &[3], &[], &[2]]);
    let order = |parent| {
        let walk = ReferenceWalk { parent, ..WALK };
        UnseenOrder::References(walk).order(&problem(4, &[&[0]], references.clone()))
    };
    assert_eq!(order(Parent::Specific), [1, 3, 2].map(FunctionId));
    assert_eq!(order(Parent::DepthFirst), [1, 3, 2].map(FunctionId));
}

#[test]
fn features_are_kept_together_where_traces_show_it() {
    // Function 0 dispatches to ten features of ten functions each, scattered over the link order; each run executes
    // one feature, so a new run needs one that no recorded run has.
    let features = 10u32;
    let member = |feature: u32, index: u32| 1 + index * features + feature;
    let mut targets: Vec<Vec<u32>> = vec![Vec::new(); 101];
    targets[0] = (0..features).map(|feature| member(feature, 0)).collect();
    for feature in 0..features {
        for index in 0..9 {
            targets[member(feature, index) as usize] = vec![member(feature, index + 1)];
        }
    }
    let targets: Vec<&[u32]> = targets.iter().map(Vec::as_slice).collect();
    let traces: Vec<Vec<u32>> = (0..6u32)
        .map(|feature| std::iter::once(0).chain((0..10).map(|index| member(feature, index))).collect())
        .collect();
    let traces: Vec<&[u32]> = traces.iter().map(Vec::as_slice).collect();
    let references = graph(101, &targets);
    let traces: Vec<Trace> = traces.iter().map(|trace| Trace::of(1, trace)).collect();
    let problem = LayoutProblem::new(vec![1000; 101], &traces).unwrap().with_references(references).unwrap();
    let doubled: Vec<Trace> = traces.iter().flat_map(|trace| [trace.clone(), trace.clone()]).collect();
    // Recorded once or twice, each run is new to the others.
    for problem in [problem.with_traces(&doubled).unwrap(), problem] {
        let compared = CrossValidation::default().compare(&problem);
        assert!(matches!(compared[0].order, UnseenOrder::References(_)), "{compared:?}");
        let link = compared.iter().find(|validated| validated.order == UnseenOrder::Link).unwrap();
        assert!(compared[0].cost.0 * 3 < link.cost.0 * 2, "{compared:?}");
    }
}

proptest! {
    #[test]
    fn every_order_has_each_unseen_function_once(
        targets in prop::collection::vec(prop::collection::vec(0u32..40, 0..6), 40),
        ran in prop::collection::btree_set(0u32..30, 0..10),
    ) {
        let rows: Vec<&[u32]> = targets.iter().map(Vec::as_slice).collect();
        let ran: Vec<u32> = ran.into_iter().collect();
        let problem = problem(30, &[&ran], graph(30, &rows));
        for order in UnseenOrder::all() {
            let mut functions: Vec<u32> = order.order(&problem).into_iter().map(|function| function.0).collect();
            functions.extend(&ran);
            functions.sort_unstable();
            prop_assert_eq!(&functions, &(0..30).collect::<Vec<_>>());
        }
    }
}
