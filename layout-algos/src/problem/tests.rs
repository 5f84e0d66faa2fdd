use super::*;

fn build(functions: &[u32], weight: u64) -> Result<LayoutProblem, ProblemError> {
    LayoutProblem::new(vec![16, 30], &[Trace::of(1, &[]), Trace::of(weight, functions)])
}

#[test]
fn inconsistent_traces_are_rejected() {
    assert!(build(&[1, 0], 1).is_ok());
    assert_eq!(build(&[2], 1).unwrap_err(), ProblemError::UnknownFunction(TraceId(1), FunctionId(2)));
    assert_eq!(build(&[1, 1], 1).unwrap_err(), ProblemError::RepeatedFunction(TraceId(1), FunctionId(1)));
    assert_eq!(build(&[0], 0).unwrap_err(), ProblemError::ZeroWeight(TraceId(1)));
}

#[test]
fn several_traces_may_share_functions() {
    let trace = Trace::of(1, &[1]);
    let problem = LayoutProblem::new(vec![16, 32], &[trace.clone(), trace]).unwrap();
    assert_eq!(problem.traced(), [false, true]);
    assert_eq!(problem.traces().event_count(), 2);
}

#[test]
fn facts_about_other_functions_are_rejected() {
    let problem = || build(&[0], 1).unwrap();
    let other = Err(ProblemError::OtherFunctions);
    assert_eq!(problem().with_alignments(vec![1]).map(drop), other);
    assert_eq!(problem().with_fingerprints(Rows::default()).map(drop), other);
    assert_eq!(problem().with_references(ReferenceGraph::default()).map(drop), other);
    assert_eq!(problem().with_alignments(vec![4, 12]).map(drop), Err(ProblemError::Alignment(FunctionId(1))));
    let aligned = problem().with_alignments(vec![4, 64]).unwrap();
    assert_eq!([0, 1].map(|index| aligned.padded_size(FunctionId(index))), [16, 64]);
}

#[test]
fn obstacles_ascend() {
    let with = |spans: &[(u64, u64)]| {
        let spans = spans.iter().map(|&(start, end)| Span { start, end }).collect();
        build(&[0], 1).unwrap().with_text(64, spans).map(|problem| problem.obstacles().len())
    };
    assert_eq!(with(&[(0, 8), (8, 9)]), Ok(2));
    assert_eq!(with(&[(0, 8), (7, 9)]), Err(ProblemError::Obstacles));
    assert_eq!(with(&[(8, 8)]), Err(ProblemError::Obstacles));
}

#[test]
fn addresses_stay_in_range() {
    assert_eq!(LayoutProblem::new(vec![u64::MAX, 1], &[]).map(drop), Err(ProblemError::TooLarge));
    let all = vec![Span { start: 0, end: u64::MAX }];
    assert_eq!(build(&[0], 1).unwrap().with_text(0, all).map(drop), Err(ProblemError::TooLarge));
}

#[test]
fn fingerprints_ascend() {
    let mut rows = Rows::default();
    rows.push([7]).unwrap();
    rows.push([5, 5]).unwrap();
    let refused = build(&[0], 1).unwrap().with_fingerprints(rows).map(drop);
    assert_eq!(refused, Err(ProblemError::Fingerprints(FunctionId(1))));
}
