//! Cache-directed sort: chains merged for short calls and few misses of the instruction-address cache.
//!
//! Beginning with single functions, the two chains whose merging gains most per byte of the smaller are merged, until
//! no merger gains. A merger gains:
//! * locality: each arc between the two counts weight / distance^¼, the distance from the middle of the caller, where
//!   calls are on average, to the callee;
//! * expected misses: a function in a chain of density d (weight per byte) finds its page among
//!   [`CACHE_ENTRIES`] of [`CACHE_PAGE`] bytes except with probability (1 − d · CACHE_PAGE / total weight) to the
//!   power of CACHE_ENTRIES. What merging takes off the sum over both chains counts a quarter.
//!
//! Then the chains are sorted by density. The cost model and its constants are those published with the algorithm of the
//! same name in LLVM (Pupyrev, "Cache-directed sort", review D152834, 2023), which follows Newell and Pupyrev,
//! "Improved Basic Block Reordering" (IEEE Transactions on Computers, 2020). Where the arcs come from:
//! [`call_graph`](super::call_graph). Only square roots and rational operations are used, which give the same on
//! every system.
//!
//! Chains have at most [`MAX_CHAIN_LENGTH`] functions, so each arc is valued again at most twice that often: time is
//! O(arcs · MAX_CHAIN_LENGTH · log arcs) at the very worst and near-linear in practice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::Orderer;
use super::call_graph::CallGraph;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Functions in a chain at most.
const MAX_CHAIN_LENGTH: usize = 128;

/// Entries of the modelled cache; a power of two.
const CACHE_ENTRIES: u32 = 16;

/// Bytes that one entry covers.
const CACHE_PAGE: f64 = 2048.0;

/// The weight of an expected miss relative to locality.
const MISS_SCALE: f64 = 0.25;

/// Merges chains by locality and expected misses; untraced functions follow in link order.
#[derive(Clone, Copy, Debug)]
pub struct CacheDirected;

impl Orderer for CacheDirected {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let graph = CallGraph::of(problem);
        let mut chains = Chains::of(&graph);
        chains.merge_all();
        let functions = graph.functions(chains.by_density());
        FunctionOrder::with_rest(functions, problem.function_count() as u32)
    }
}

/// An arc between two functions.
#[derive(Clone, Copy)]
struct Call {
    caller: usize,
    callee: usize,
    weight: f64,
}

#[derive(Clone, Default)]
struct Chain {
    functions: Vec<usize>,
    size: u64,
    weight: f64,
    /// The arcs to and from each other chain.
    calls: BTreeMap<usize, Vec<Call>>,
    /// Grows with each merger, which makes earlier values out of date.
    version: u32,
}

impl Chain {
    fn density(&self) -> f64 {
        self.weight / self.size as f64
    }
}

/// A merger that was worth something when it was valued. Ordered by what it gains per byte, then by the lowest numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merger {
    /// Bits of a positive number, whose order is that of the numbers.
    gain: u64,
    pair: Reverse<(usize, usize)>,
    versions: (u32, u32),
    /// Whether the second of the pair comes first.
    is_swapped: bool,
}

struct Chains<'graph> {
    graph: &'graph CallGraph,
    /// A chain has the number of one of its functions; merged chains are empty.
    chains: Vec<Chain>,
    /// By function: the bytes before it in its chain.
    offsets: Vec<u64>,
    total_weight: f64,
}

impl<'graph> Chains<'graph> {
    fn of(graph: &'graph CallGraph) -> Self {
        let mut chains: Vec<Chain> = (0..graph.len())
            .map(|node| {
                let callable = graph.callable(node);
                Chain {
                    functions: vec![node],
                    size: callable.size,
                    weight: callable.weight as f64,
                    ..Chain::default()
                }
            })
            .collect();
        for (caller, callee, weight) in graph.arcs() {
            let call = Call { caller, callee, weight: weight as f64 };
            chains[caller].calls.entry(callee).or_default().push(call);
            chains[callee].calls.entry(caller).or_default().push(call);
        }
        let total_weight = chains.iter().map(|chain| chain.weight).sum();
        Self { graph, offsets: vec![0; chains.len()], chains, total_weight }
    }

    fn merge_all(&mut self) {
        let mut mergers: BinaryHeap<Merger> = BinaryHeap::new();
        for one in 0..self.chains.len() {
            let later = self.chains[one].calls.range(one..);
            mergers.extend(later.filter_map(|(&other, calls)| self.value(one, other, calls)));
        }
        while let Some(merger) = mergers.pop() {
            let Reverse((one, other)) = merger.pair;
            if (self.chains[one].version, self.chains[other].version) != merger.versions {
                continue;
            }
            let (first, second) = if merger.is_swapped { (other, one) } else { (one, other) };
            let kept = self.merge(first, second);
            let calls = self.chains[kept].calls.iter();
            mergers.extend(calls.filter_map(|(&neighbour, calls)| {
                self.value(kept.min(neighbour), kept.max(neighbour), calls)
            }));
        }
    }

    /// The gain of merging two chains in the better order; `None` without a gain.
    fn value(&self, one: usize, other: usize, calls: &[Call]) -> Option<Merger> {
        let [first, second] = [one, other].map(|chain| &self.chains[chain]);
        if first.functions.len() + second.functions.len() > MAX_CHAIN_LENGTH {
            return None;
        }
        let size = first.size.saturating_add(second.size);
        let weight = first.weight + second.weight;
        let misses = |weight: f64, density: f64| weight * self.miss_probability(density);
        let fewer_misses = misses(first.weight, first.density()) + misses(second.weight, second.density())
            - misses(weight, weight / size as f64);
        // Bytes between the places of a call when the chain of `numbers.0` is before the other one.
        let locality = |numbers: (usize, usize)| -> f64 {
            let shift = self.chains[numbers.0].size as f64;
            let is_in_second = |function: usize| self.chain_has(numbers.1, function);
            let place = |function: usize, inside: u64| {
                let base = if is_in_second(function) { shift } else { 0.0 };
                base + (self.offsets[function].saturating_add(inside)) as f64
            };
            let worth = |call: &Call| {
                let site = place(call.caller, self.graph.callable(call.caller).size / 2);
                let distance = (place(call.callee, 0) - site).abs().max(1.0);
                call.weight / distance.sqrt().sqrt()
            };
            calls.iter().map(worth).sum()
        };
        let [straight, swapped] = [locality((one, other)), locality((other, one))];
        let gain = straight.max(swapped) + MISS_SCALE * fewer_misses;
        let per_byte = gain / first.size.min(second.size) as f64;
        (per_byte > 0.0).then(|| Merger {
            gain: per_byte.to_bits(),
            pair: Reverse((one, other)),
            versions: (first.version, second.version),
            is_swapped: swapped > straight,
        })
    }

    /// Whether a function is in a chain: it is in one of two, and the chain has at most MAX_CHAIN_LENGTH functions.
    fn chain_has(&self, chain: usize, function: usize) -> bool {
        self.chains[chain].functions.contains(&function)
    }

    /// How probable it is that code of this weight per byte is not in the cache.
    fn miss_probability(&self, density: f64) -> f64 {
        let mut miss = (1.0 - density * CACHE_PAGE / self.total_weight).max(0.0);
        for _ in 0..CACHE_ENTRIES.ilog2() {
            miss *= miss;
        }
        miss
    }

    /// Puts the functions of `second` after those of `first`; gives the number of the merged chain.
    fn merge(&mut self, first: usize, second: usize) -> usize {
        let [mut one, mut other] = [first, second].map(|chain| std::mem::take(&mut self.chains[chain]));
        for &function in &other.functions {
            self.offsets[function] = self.offsets[function].saturating_add(one.size);
        }
        one.functions.append(&mut other.functions);
        one.size = one.size.saturating_add(other.size);
        one.weight += other.weight;
        one.version = one.version.max(other.version) + 1;
        let (kept, merged) = if one.calls.len() < other.calls.len() {
            std::mem::swap(&mut one.calls, &mut other.calls);
            (second, first)
        } else {
            (first, second)
        };
        one.calls.remove(&merged);
        for (neighbour, calls) in other.calls {
            if neighbour == kept {
                continue;
            }
            let theirs = &mut self.chains[neighbour].calls;
            theirs.remove(&merged);
            theirs.entry(kept).or_default().extend_from_slice(&calls);
            one.calls.entry(neighbour).or_default().extend(calls);
        }
        self.chains[kept] = one;
        self.chains[merged].version = u32::MAX;
        kept
    }

    /// All functions, chain after chain, the densest first; ties by number.
    fn by_density(self) -> Vec<usize> {
        let mut chains: Vec<Chain> =
            self.chains.into_iter().filter(|chain| !chain.functions.is_empty()).collect();
        chains.sort_by(|one, other| other.density().total_cmp(&one.density()));
        chains.into_iter().flat_map(|chain| chain.functions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;

    fn order(sizes: Vec<u64>, traces: &[(u64, &[u32])]) -> Vec<u32> {
        let traces: Vec<Trace> =
            traces.iter().map(|&(weight, functions)| Trace::of(weight, functions)).collect();
        let problem = LayoutProblem::new(sizes, &traces).unwrap();
        CacheDirected.order(&problem).iter().map(|function| function.0).collect()
    }

    #[test]
    fn callees_follow_their_callers() {
        let order = order(vec![64; 5], &[(10, &[3, 1]), (1, &[1, 0]), (9, &[2, 4])]);
        let place = |function: u32| order.iter().position(|&other| other == function).unwrap();
        assert_eq!((place(1), place(4)), (place(3) + 1, place(2) + 1), "{order:?}");
    }

    #[test]
    fn chains_stay_short() {
        let path: Vec<u32> = (0..1000).collect();
        let problem = LayoutProblem::new(vec![16; 1000], &[Trace::of(1, &path)]).unwrap();
        let graph = CallGraph::of(&problem);
        let mut chains = Chains::of(&graph);
        chains.merge_all();
        let lengths: Vec<usize> = chains.chains.iter().map(|chain| chain.functions.len()).collect();
        assert_eq!(lengths.iter().sum::<usize>(), 1000);
        assert!(lengths.iter().any(|&length| length > 8) && lengths.iter().all(|&length| length <= 128));
    }
}
