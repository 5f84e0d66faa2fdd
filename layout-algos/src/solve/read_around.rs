//! Windows that are read whole.
//!
//! Where a fault reads a window around its page, half of it before, a run that walks upwards uses half of each
//! window only: what lies before its page has been read already. If the functions that a run touches first in a
//! window are placed where as much of it lies before them as a fault reads there (in the middle; at the beginning where
//! faults read onwards only), one fault reads the whole window.

use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::score::{FaultModel, positions};

/// Rearranges `traced`, the first functions of a layout, inside each window of the problem's model: what a
/// trace needs first of the window goes to where a fault reads all of it. Functions keep their window, up to its
/// borders. Orders for other models stay as they are.
#[must_use]
pub fn centre_windows(problem: &LayoutProblem, traced: &[FunctionId]) -> Vec<FunctionId> {
    let FaultModel::ReadAround { page, window, before } = problem.objective().model else {
        return traced.to_vec();
    };
    let order = FunctionOrder::with_rest(traced.iter().copied(), problem.function_count() as u32);
    let spans = positions(problem, &order);
    let base = problem.origin() & !(page - 1);
    let window_of = |function: &FunctionId| (spans[function.index()].start - base) / window;
    let urgency = urgency(problem, traced, &window_of);
    let mut centred = Vec::with_capacity(traced.len());
    for members in traced.chunk_by(|one, other| window_of(one) == window_of(other)) {
        let first = spans[members[0].index()].start;
        // From where a fault reads all of it, as seen from where its first function starts.
        let best = (base + window_of(&members[0]) * window + before).saturating_sub(first);
        let (mut urgent, mut others): (Vec<FunctionId>, Vec<FunctionId>) =
            members.iter().partition(|function| urgency[function.index()] > 0);
        urgent.sort_by_key(|function| std::cmp::Reverse(urgency[function.index()]));
        let mut bytes = 0;
        let in_front = others
            .iter()
            .take_while(|function| {
                bytes += problem.padded_size(**function);
                bytes <= best
            })
            .count();
        let after = others.split_off(in_front);
        centred.extend(others.into_iter().chain(urgent).chain(after));
    }
    centred
}

/// By function: the weight of the traces that touch it before anything else of its window.
fn urgency(
    problem: &LayoutProblem,
    traced: &[FunctionId],
    window_of: &impl Fn(&FunctionId) -> u64,
) -> Vec<u64> {
    let mut is_member = vec![false; problem.function_count()];
    for function in traced {
        is_member[function.index()] = true;
    }
    let windows = traced.iter().map(window_of).max().map_or(0, |last| last as usize + 1);
    let mut urgency = vec![0u64; problem.function_count()];
    let mut touched_by = vec![None; windows];
    for trace in problem.traces().iter() {
        for function in trace.functions.iter().filter(|function| is_member[function.index()]) {
            let touched = &mut touched_by[window_of(function) as usize];
            if touched.replace(trace.id) != Some(trace.id) {
                let urgency = &mut urgency[function.index()];
                *urgency = urgency.saturating_add(trace.weight);
            }
        }
    }
    urgency
}
