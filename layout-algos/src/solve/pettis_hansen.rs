//! Procedure positioning after Pettis and Hansen.
//!
//! The functions of the heaviest arc are put together, direction ignored, then the arcs of the two are added up and
//! the heaviest arc is looked for again: "closest is best" (Pettis, Hansen, "Profile Guided Code Positioning", PLDI
//! 1990). A chain joins another with either end at either end: where the heaviest original arc is between the
//! functions that then touch. Chains that no arc connects follow each other, those with the heaviest functions first.
//! Where the arcs come from: [`call_graph`](super::call_graph).
//!
//! The smaller chain and the smaller set of arcs are always the ones that are moved, so time is
//! O((functions + arcs) · log²).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::Orderer;
use super::call_graph::CallGraph;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Merges chains along the heaviest arcs of the call graph; untraced functions follow in link order.
#[derive(Clone, Copy, Debug)]
pub struct PettisHansen;

impl Orderer for PettisHansen {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let graph = CallGraph::of(problem);
        let mut chains = Chains::of(&graph);
        chains.merge_all();
        let functions = graph.functions(chains.in_order(&graph));
        FunctionOrder::with_rest(functions, problem.function_count() as u32)
    }
}

/// The working graph. A chain has the number of one of its functions; merged chains are empty.
struct Chains {
    functions: Vec<VecDeque<usize>>,
    /// By chain: the chains it has arcs to and their weight. Symmetric.
    arcs: Vec<BTreeMap<usize, u64>>,
    /// By function: the weights of the original arcs, which decide how chains are turned.
    original: Vec<BTreeMap<usize, u64>>,
}

impl Chains {
    fn of(graph: &CallGraph) -> Self {
        let mut arcs = vec![BTreeMap::new(); graph.len()];
        for (one, other, weight) in graph.arcs() {
            *arcs[one].entry(other).or_insert(0) += weight;
            *arcs[other].entry(one).or_insert(0) += weight;
        }
        let functions = (0..graph.len()).map(|function| VecDeque::from([function])).collect();
        Self { functions, original: arcs.clone(), arcs }
    }

    /// Merges along the heaviest arc until there are no arcs; of equal ones along that of the lowest numbers.
    fn merge_all(&mut self) {
        let mut heap: BinaryHeap<(u64, Reverse<(usize, usize)>)> = BinaryHeap::new();
        for (one, arcs) in self.arcs.iter().enumerate() {
            heap.extend(arcs.range(one..).map(|(&other, &weight)| (weight, Reverse((one, other)))));
        }
        while let Some((weight, Reverse((one, other)))) = heap.pop() {
            // Arcs that have been added to others since are in the heap a second time.
            if self.arcs[one].get(&other) != Some(&weight) {
                continue;
            }
            self.join(one, other);
            let is_smaller = self.arcs[one].len() < self.arcs[other].len();
            let (kept, merged) = if is_smaller { (other, one) } else { (one, other) };
            self.functions.swap(one, kept);
            self.arcs[kept].remove(&merged);
            for (neighbour, weight) in std::mem::take(&mut self.arcs[merged]) {
                self.arcs[neighbour].remove(&merged);
                if neighbour != kept {
                    let sum = self.arcs[kept].entry(neighbour).or_insert(0);
                    *sum += weight;
                    let sum = *sum;
                    self.arcs[neighbour].insert(kept, sum);
                    heap.push((sum, Reverse((kept.min(neighbour), kept.max(neighbour)))));
                }
            }
        }
    }

    /// Appends the chain `other` to the chain `one`, turned so that functions with a heavy arc touch.
    fn join(&mut self, one: usize, other: usize) {
        let [mut first, mut second] = [one, other].map(|chain| std::mem::take(&mut self.functions[chain]));
        let ends = |chain: &VecDeque<usize>| [chain.front().copied(), chain.back().copied()];
        let touching = |one: Option<usize>, other: Option<usize>| {
            one.zip(other).and_then(|(one, other)| self.original[one].get(&other)).copied().unwrap_or(0)
        };
        let ([first_head, first_tail], [second_head, second_tail]) = (ends(&first), ends(&second));
        // What touches, and whether the first and the second chain are turned; the first of the best is taken.
        let ways = [
            (touching(first_tail, second_head), false, false),
            (touching(first_tail, second_tail), false, true),
            (touching(first_head, second_head), true, false),
            (touching(first_head, second_tail), true, true),
        ];
        let (_, turn_first, turn_second) =
            ways.into_iter().rev().max_by_key(|&(weight, ..)| weight).unwrap_or(ways[0]);
        // Only the shorter chain is walked through: turning both is the same as swapping them and turning the whole,
        // and a chain and its mirror image are worth the same.
        let turned = turn_first != turn_second;
        let at_front = turn_first;
        if first.len() >= second.len() {
            extend(&mut first, second, at_front, turned);
            self.functions[one] = first;
        } else {
            // Seen from the second chain, the first is placed on the side where it touches.
            let at_front = !turn_second;
            extend(&mut second, first, at_front, turned);
            self.functions[one] = second;
        }
    }

    /// All functions: chain after chain, those with the heaviest function first, then the longer, then by number.
    fn in_order(&self, graph: &CallGraph) -> Vec<usize> {
        let mut chains: Vec<_> = self
            .functions
            .iter()
            .filter(|chain| !chain.is_empty())
            .map(|chain| {
                let heaviest = chain.iter().map(|&function| graph.callable(function).weight).max();
                (Reverse((heaviest, chain.len())), chain.iter().copied().min(), chain)
            })
            .collect();
        chains.sort_unstable();
        chains.into_iter().flat_map(|(_, _, chain)| chain.iter().copied()).collect()
    }
}

/// Puts `shorter` at one end of `longer`. Its near end is its head at the back of `longer`, and its tail at the
/// front; `turned` exchanges that.
fn extend(longer: &mut VecDeque<usize>, shorter: VecDeque<usize>, at_front: bool, turned: bool) {
    match (at_front, turned) {
        (false, false) => longer.extend(shorter),
        (false, true) => longer.extend(shorter.into_iter().rev()),
        (true, false) => shorter.into_iter().rev().for_each(|function| longer.push_front(function)),
        (true, true) => shorter.into_iter().for_each(|function| longer.push_front(function)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;

    /// Each pair is a trace: an arc of this weight.
    fn order(arcs: &[(u32, u32, u64)], count: usize) -> Vec<u32> {
        let traces: Vec<Trace> =
            arcs.iter().map(|&(one, other, weight)| Trace::of(weight, &[one, other])).collect();
        let problem = LayoutProblem::new(vec![16; count], &traces).unwrap();
        PettisHansen.order(&problem).iter().map(|function| function.0).collect()
    }

    #[test]
    fn the_heaviest_arcs_touch() {
        // 0-1 and 2-3 first; then 1-3 joins them: 0 1 3 2 or its mirror image.
        let order = order(&[(0, 1, 10), (2, 3, 9), (1, 3, 5), (0, 2, 1)], 5);
        assert!([[0, 1, 3, 2, 4], [2, 3, 1, 0, 4]].contains(&order[..].try_into().unwrap()), "{order:?}");
    }

    #[test]
    fn arcs_of_merged_chains_add_up() {
        // 4 has more to do with 0 and 1 together than 3 has with 0.
        let order = order(&[(0, 1, 20), (0, 4, 6), (1, 4, 6), (0, 3, 8), (2, 3, 7)], 5);
        let place = |function: u32| order.iter().position(|&other| other == function).unwrap();
        assert_eq!(place(4).abs_diff(place(0)).min(place(4).abs_diff(place(1))), 1, "{order:?}");
    }
}
