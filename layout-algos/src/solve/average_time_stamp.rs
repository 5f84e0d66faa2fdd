//! Functions by their mean position in the traces.
//!
//! The rule by which Machine IR profiles become order files (Lee, Hoag, Tillmann, "Efficient Profile-Guided Size
//! Optimization for Native Mobile Applications", CC 2022): the time stamps of a function are averaged over the runs
//! that have one, and the means are sorted. A run without the function does not count. Here a time stamp
//! is the function's position in the trace, and runs count by their weight.

use super::Orderer;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Orders functions by the weighted mean of their positions in the traces that have them; ties in link order.
#[derive(Clone, Copy, Debug)]
pub struct AverageTimeStamp;

impl Orderer for AverageTimeStamp {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        // Sums, products and quotients of floating-point numbers are the same on every system.
        let mut sums = vec![(0f64, 0f64); problem.function_count()];
        for trace in problem.traces().iter() {
            for (position, function) in trace.functions.iter().enumerate() {
                let (positions, weights) = &mut sums[function.index()];
                *positions += position as f64 * trace.weight as f64;
                *weights += trace.weight as f64;
            }
        }
        let mut means: Vec<(f64, FunctionId)> = sums
            .into_iter()
            .enumerate()
            .filter(|(_, (_, weights))| *weights > 0.0)
            .map(|(index, (positions, weights))| (positions / weights, FunctionId(index as u32)))
            .collect();
        means.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        FunctionOrder::with_rest(
            means.into_iter().map(|(_, function)| function),
            problem.function_count() as u32,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;

    #[test]
    fn absence_does_not_count_and_weights_do() {
        let order = |weight| {
            let traces = [Trace::of(weight, &[4, 1, 3]), Trace::of(1, &[3, 1])];
            let problem = LayoutProblem::new(vec![16; 5], &traces).unwrap();
            AverageTimeStamp.order(&problem).iter().map(|function| function.0).collect::<Vec<_>>()
        };
        // Means: 4 at 0; 1 at 1; 3 at (2w + 0) / (w + 1).
        assert_eq!(order(1), [4, 1, 3, 0, 2]);
        assert_eq!(order(3), [4, 1, 3, 0, 2]);
        let late = [Trace::of(1, &[4, 1, 3]), Trace::of(3, &[3, 1])];
        let problem = LayoutProblem::new(vec![16; 5], &late).unwrap();
        let order: Vec<u32> = AverageTimeStamp.order(&problem).iter().map(|function| function.0).collect();
        assert_eq!(order, [4, 3, 1, 0, 2]);
    }
}
