//! The addresses of a problem's functions in an order.

use super::Span;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// The spans of all functions, by function, placed one after the other from the problem's origin on: each at the
/// next multiple of its alignment where it meets no obstacle. This is what a linker does with an order file, and
/// close to what relocation in place does, which also fills the gaps before obstacles.
#[must_use]
pub fn positions(problem: &LayoutProblem, order: &FunctionOrder) -> Vec<Span> {
    let mut spans = vec![Span { start: 0, end: 0 }; problem.function_count()];
    let mut obstacles = problem.obstacles();
    let mut cursor = problem.origin();
    for function in order.iter() {
        let alignment = u64::from(problem.alignment(function));
        loop {
            let start = cursor.saturating_add(alignment - 1) & !(alignment - 1);
            let end = start.saturating_add(problem.size(function));
            // Obstacles that end before the place do not affect later functions either.
            while let [passed, rest @ ..] = obstacles {
                if passed.end > start {
                    break;
                }
                obstacles = rest;
            }
            match obstacles.first() {
                Some(obstacle) if obstacle.start < end => cursor = obstacle.end,
                _ => {
                    spans[function.index()] = Span { start, end };
                    cursor = end;
                    break;
                }
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_go_around_obstacles() {
        let problem = LayoutProblem::new(vec![10, 100, 20, 0], &[])
            .unwrap()
            .with_alignments(vec![16, 16, 4, 1])
            .unwrap()
            .with_text(1000, vec![Span { start: 0, end: 8 }, Span { start: 1050, end: 1070 }])
            .unwrap();
        let spans = positions(&problem, &FunctionOrder::link_order(4));
        let bounds: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(bounds, [(1008, 1018), (1072, 1172), (1172, 1192), (1192, 1192)]);
    }
}
