//! The traces, one after the other.
//!
//! The functions of the heaviest trace in the order they ran, then what the next trace adds, and so on. Optimal
//! for a single trace; with several, the functions that only a later trace needs are apart from the ones it
//! shares with earlier traces.

use super::Orderer;
use super::unseen::traced_in_time;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Orders functions by the first trace that has them, heaviest trace first, then by time in that trace.
#[derive(Clone, Copy, Debug)]
pub struct FirstSeen;

impl Orderer for FirstSeen {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        FunctionOrder::with_rest(traced_in_time(problem), problem.function_count() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;

    fn first_seen(traces: Vec<Trace>) -> Vec<u32> {
        let problem = LayoutProblem::new(vec![16; 6], &traces).unwrap();
        FirstSeen.order(&problem).iter().map(|function| function.0).collect()
    }

    #[test]
    fn traces_are_concatenated_without_repetition() {
        assert_eq!(first_seen(vec![Trace::of(1, &[5, 2]), Trace::of(1, &[2, 4, 5, 0])]), [5, 2, 4, 0, 1, 3]);
    }

    #[test]
    fn the_heaviest_trace_comes_first() {
        assert_eq!(
            first_seen(vec![Trace::of(1, &[5]), Trace::of(3, &[4, 5]), Trace::of(3, &[3])]),
            [4, 5, 3, 0, 1, 2]
        );
    }

    #[test]
    fn without_traces_nothing_moves() {
        assert_eq!(first_seen(vec![]), [0, 1, 2, 3, 4, 5]);
    }
}
