//! Functions grouped by the set of traces that run them, similar sets next to each other.
//!
//! Functions that the same traces run share every page for free, in any order; the only cost is where two
//! groups meet in a page. So the groups are chained: beginning with the set of the heaviest traces, each time the
//! nearest set follows, nearest by the weight of the traces that run one of the two but not the other. Inside a
//! group the functions keep the order of their earliest position in any trace, which makes early faults rarer.
//!
//! Looking for the nearest set among all would be quadratic in their number. The sets are sorted by their traces
//! first, largest traces first, which brings sets with many common large traces together, and the search is
//! confined to windows of that order: all of it as long as that costs at most [`MAX_WORDS`] words of set
//! comparison (some 10,000 sets of 64 traces), and no fewer than [`MIN_WINDOW`] sets however many there
//! are. Time is O(events · log functions + MAX_WORDS + sets · MIN_WINDOW · traces / 64).

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use super::Orderer;
use super::memberships::TracesOfFunctions;
use crate::ids::{FunctionId, TraceId};
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Words of set comparison that may be spent on the nearest of all sets.
const MAX_WORDS: usize = 1 << 27;

/// Sets among which the nearest is looked for at least.
const MIN_WINDOW: usize = 16;

/// Orders functions by their set of traces, the sets by nearest neighbour; the others follow in link order.
#[derive(Clone, Copy, Debug)]
pub struct TraceSets;

/// Functions that the same traces run.
struct Group {
    /// Ranks of these traces by size, ascending: 0 is the trace that runs most bytes.
    traces: Vec<u32>,
    functions: Vec<FunctionId>,
}

impl TraceSets {
    /// The traced functions in their order.
    #[must_use]
    pub fn order_traced(&self, problem: &LayoutProblem) -> Vec<FunctionId> {
        let memberships = TracesOfFunctions::of(problem);
        let by_size = traces_by_size(problem);
        let mut groups = groups(problem, &memberships, &by_size);
        groups.sort_by(|one, other| by_common_traces(&one.traces, &other.traces));
        let weights = by_size.iter().map(|&trace| memberships.weight(trace)).collect();
        let chain = Chain::new(weights, groups.len()).run(&groups);
        chain.into_iter().flat_map(|group| groups[group].functions.iter().copied()).collect()
    }
}

impl Orderer for TraceSets {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        FunctionOrder::with_rest(self.order_traced(problem), problem.function_count() as u32)
    }
}

/// All traces, those that run most bytes first.
fn traces_by_size(problem: &LayoutProblem) -> Vec<TraceId> {
    let bytes = |functions: &[FunctionId]| {
        functions.iter().fold(0u64, |bytes, &function| bytes.saturating_add(problem.size(function)))
    };
    let mut traces: Vec<_> =
        problem.traces().iter().map(|trace| (Reverse(bytes(trace.functions)), trace.id)).collect();
    traces.sort_unstable();
    traces.into_iter().map(|(_, trace)| trace).collect()
}

/// The groups, in the order of their earliest function; so are the functions of each.
fn groups(problem: &LayoutProblem, memberships: &TracesOfFunctions, by_size: &[TraceId]) -> Vec<Group> {
    let mut ranks = vec![0u32; by_size.len()];
    for (rank, trace) in by_size.iter().enumerate() {
        ranks[trace.index()] = rank as u32;
    }
    let mut numbers: HashMap<&[u32], usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for function in in_temporal_order(problem) {
        let set = memberships.of_function(function);
        let number = *numbers.entry(set).or_insert(groups.len());
        if number == groups.len() {
            let mut traces: Vec<u32> = set.iter().map(|&trace| ranks[trace as usize]).collect();
            traces.sort_unstable();
            groups.push(Group { traces, functions: Vec::new() });
        }
        groups[number].functions.push(function);
    }
    groups
}

/// The functions of all traces by their earliest position in one; ties in link order.
fn in_temporal_order(problem: &LayoutProblem) -> Vec<FunctionId> {
    let mut earliest = vec![None; problem.function_count()];
    for trace in problem.traces().iter() {
        for (position, function) in trace.functions.iter().enumerate() {
            let known = &mut earliest[function.index()];
            *known = Some(known.map_or(position, |known: usize| known.min(position)));
        }
    }
    let mut functions: Vec<(usize, FunctionId)> = earliest
        .into_iter()
        .enumerate()
        .filter_map(|(index, earliest)| Some((earliest?, FunctionId(index as u32))))
        .collect();
    functions.sort_unstable();
    functions.into_iter().map(|(_, function)| function).collect()
}

/// Sets with the largest traces first; a set comes before its subsets that lack the last traces.
fn by_common_traces(one: &[u32], other: &[u32]) -> Ordering {
    let length = one.len().min(other.len());
    one[..length].cmp(&other[..length]).then(other.len().cmp(&one.len()))
}

/// The nearest-neighbour search.
struct Chain {
    /// By bit of the weights: the traces whose weight has the bit. The weight of a set is then a few population
    /// counts.
    planes: Vec<Vec<u64>>,
    /// Words per set.
    words: usize,
    /// Sets in a window.
    window: usize,
}

impl Chain {
    /// For `sets` sets of traces with these `weights`.
    fn new(weights: Vec<u64>, sets: usize) -> Self {
        let words = weights.len().div_ceil(64);
        let heaviest = weights.iter().copied().max().unwrap_or(1);
        let planes: Vec<Vec<u64>> = (0..=heaviest.ilog2())
            .map(|bit| {
                let members = weights.iter().enumerate().filter(|(_, weight)| **weight >> bit & 1 == 1);
                bit_set(members.map(|(trace, _)| trace as u32), words)
            })
            .collect();
        let most = MAX_WORDS / (sets * words * planes.len()).max(1);
        Self { window: most.clamp(MIN_WINDOW, sets.max(MIN_WINDOW)), planes, words }
    }

    /// The positions of `groups` in the order of the chain.
    fn run(&self, groups: &[Group]) -> Vec<usize> {
        let mut chain = Vec::with_capacity(groups.len());
        // What the chain ends with. At first all traces, to which the fullest set is the nearest.
        let mut last = vec![u64::MAX; self.words];
        for first in (0..groups.len()).step_by(self.window) {
            let end = groups.len().min(first + self.window);
            let sets: Vec<Vec<u64>> = groups[first..end]
                .iter()
                .map(|group| bit_set(group.traces.iter().copied(), self.words))
                .collect();
            let mut left: Vec<usize> = (0..sets.len()).collect();
            while let Some((place, _)) =
                left.iter().enumerate().min_by_key(|&(_, &set)| (self.distance(&last, &sets[set]), set))
            {
                let set = left.swap_remove(place);
                last.clone_from(&sets[set]);
                chain.push(first + set);
            }
        }
        chain
    }

    /// Weight of the traces in one of the sets, but not in both.
    fn distance(&self, one: &[u64], other: &[u64]) -> u64 {
        self.planes
            .iter()
            .enumerate()
            .map(|(bit, plane)| {
                let differing = one.iter().zip(other).zip(plane);
                let count: u32 =
                    differing.map(|((one, other), plane)| ((one ^ other) & plane).count_ones()).sum();
                u64::from(count) << bit
            })
            .sum()
    }
}

fn bit_set(members: impl Iterator<Item = u32>, words: usize) -> Vec<u64> {
    let mut set = vec![0; words];
    for member in members {
        set[member as usize / 64] |= 1 << (member % 64);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;

    fn order(traces: &[Trace]) -> Vec<u32> {
        let problem = LayoutProblem::new(vec![16; 8], traces).unwrap();
        TraceSets.order(&problem).iter().map(|function| function.0).collect()
    }

    #[test]
    fn the_core_comes_first_and_similar_sets_touch() {
        // 1 and 6 run everywhere; 5 in both of the first; 2 in the first; 3 in the second; 4 in the third.
        let traces = [Trace::of(1, &[6, 2, 5, 1]), Trace::of(1, &[1, 5, 3, 6]), Trace::of(1, &[6, 1, 4])];
        assert_eq!(order(&traces)[..6], [1, 6, 5, 2, 3, 4]);
        assert_eq!(order(&traces)[6..], [0, 7]);
    }

    #[test]
    fn weights_decide_what_is_near() {
        // After the core (0): without the light trace (1), or without the heavy one (2)?
        let traces = |first, second| [Trace::of(first, &[0, 1]), Trace::of(second, &[0, 2])];
        assert_eq!(order(&traces(5, 1))[..3], [0, 1, 2]);
        assert_eq!(order(&traces(1, 5))[..3], [0, 2, 1]);
        assert_eq!(order(&traces(u64::MAX, 5))[..3], [0, 1, 2]);
    }

    #[test]
    fn many_sets_are_chained_in_windows() {
        // Every function in its own set: the traces of its binary digits.
        let digits = 15;
        let traces: Vec<Trace> = (0..digits)
            .map(|digit| {
                Trace::of(1, &(0..1u32 << digits).filter(|index| index >> digit & 1 == 1).collect::<Vec<_>>())
            })
            .collect();
        let problem = LayoutProblem::new(vec![16; 1 << digits], &traces).unwrap();
        let order: Vec<u32> = TraceSets.order(&problem).iter().map(|function| function.0).collect();
        let distance: u32 = order.windows(2).map(|pair| (pair[0] ^ pair[1]).count_ones()).sum();
        assert_eq!(order[0], (1 << digits) - 1);
        // Neighbours by number would differ in 2 digits on average.
        assert!(distance < 3 * (1 << digits) / 2, "{distance} for {} sets", 1 << digits);
    }
}
