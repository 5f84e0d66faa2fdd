//! Call-chain clustering (C³, "hfsort").
//!
//! From the heaviest function on, each function's cluster is appended to the cluster of its heaviest caller, so that
//! a callee follows its caller, unless the two together exceed [`MAX_CLUSTER`], or the callee would dilute the
//! caller's cluster too much. The clusters are then sorted by weight per byte. Source: Ottoni, Maher, "Optimizing
//! Function Placement for Large-Scale Data-Center Applications" (CGO 2017); the limit on dilution is the one of
//! linkers that adopted it. Where the arcs come from: [`call_graph`](super::call_graph).
//!
//! Time is O((functions + arcs) · log functions).

use std::cmp::Reverse;

use super::Orderer;
use super::call_graph::CallGraph;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Bytes of the largest cluster.
const MAX_CLUSTER: u64 = 1 << 20;

/// Merging may divide the weight per byte of the caller's cluster by at most this.
const MAX_DILUTION: u128 = 8;

/// Clusters of callers and callees; untraced functions follow in link order.
#[derive(Clone, Copy, Debug)]
pub struct CallChainClustering;

impl Orderer for CallChainClustering {
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder {
        let graph = CallGraph::of(problem);
        let mut by_weight: Vec<usize> = (0..graph.len()).collect();
        by_weight.sort_by_key(|&node| Reverse(graph.callable(node).weight));
        let mut clusters = Clusters::of(&graph);
        for callee in by_weight {
            // Of equally heavy callers the one first in link order.
            let heaviest = graph.callers(callee).max_by_key(|&(caller, weight)| (weight, Reverse(caller)));
            if let Some((caller, _)) = heaviest {
                clusters.append(caller, callee);
            }
        }
        let functions = graph.functions(clusters.by_density());
        FunctionOrder::with_rest(functions, problem.function_count() as u32)
    }
}

/// A run of functions.
#[derive(Clone)]
struct Cluster {
    functions: Vec<usize>,
    size: u64,
    weight: u64,
}

impl Cluster {
    /// Whether the weight per byte is more than `factor` times that of `other`.
    fn is_denser(&self, factor: u128, other: &Self) -> bool {
        u128::from(self.weight) * u128::from(other.size)
            > factor.saturating_mul(u128::from(other.weight) * u128::from(self.size))
    }
}

struct Clusters {
    /// By number of the first function; empty once appended to another.
    clusters: Vec<Cluster>,
    /// By function: the cluster it is in or was appended to; a path of such leads to where it is now.
    parents: Vec<usize>,
}

impl Clusters {
    fn of(graph: &CallGraph) -> Self {
        let single = |node| {
            let callable = graph.callable(node);
            Cluster { functions: vec![node], size: callable.size, weight: callable.weight }
        };
        Self { clusters: (0..graph.len()).map(single).collect(), parents: (0..graph.len()).collect() }
    }

    /// The cluster of a function. Shortens the path on the way: O(log functions) on average.
    fn find(&mut self, function: usize) -> usize {
        let mut place = function;
        while self.parents[place] != place {
            self.parents[place] = self.parents[self.parents[place]];
            place = self.parents[place];
        }
        place
    }

    /// Appends the callee's cluster to the caller's, if they may be merged.
    fn append(&mut self, caller: usize, callee: usize) {
        let [into, from] = [caller, callee].map(|function| self.find(function));
        let [one, other] = [into, from].map(|cluster| &self.clusters[cluster]);
        let size = one.size.saturating_add(other.size);
        if into == from || size > MAX_CLUSTER {
            return;
        }
        let merged = Cluster { functions: Vec::new(), size, weight: one.weight.saturating_add(other.weight) };
        if one.is_denser(MAX_DILUTION, &merged) {
            return;
        }
        let mut appended = std::mem::take(&mut self.clusters[from].functions);
        let cluster = &mut self.clusters[into];
        (cluster.size, cluster.weight) = (merged.size, merged.weight);
        cluster.functions.append(&mut appended);
        self.parents[from] = into;
    }

    /// All functions, cluster after cluster, the one with most weight per byte first; ties by first function.
    fn by_density(self) -> Vec<usize> {
        let mut clusters: Vec<Cluster> =
            self.clusters.into_iter().filter(|cluster| !cluster.functions.is_empty()).collect();
        clusters.sort_by(|one, other| {
            let [left, right] = [(one, other), (other, one)]
                .map(|(cluster, rest)| u128::from(cluster.weight) * u128::from(rest.size));
            right.cmp(&left)
        });
        clusters.into_iter().flat_map(|cluster| cluster.functions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FunctionId;
    use crate::problem::Trace;

    fn order(sizes: Vec<u64>, traces: &[(u64, &[u32])]) -> Vec<u32> {
        let traces: Vec<Trace> = traces
            .iter()
            .map(|&(weight, functions)| Trace {
                weight,
                functions: functions.iter().map(|&index| FunctionId(index)).collect(),
            })
            .collect();
        let problem = LayoutProblem::new(sizes, &traces).unwrap();
        CallChainClustering.order(&problem).iter().map(|function| function.0).collect()
    }

    #[test]
    fn callees_follow_their_heaviest_callers() {
        // 3 calls 1 more often than 0 does; 2 is called by 0 alone.
        let traces: [(u64, &[u32]); 3] = [(1, &[0, 1]), (5, &[3, 1]), (2, &[0, 2])];
        assert_eq!(order(vec![16; 5], &traces), [3, 1, 0, 2, 4]);
    }

    #[test]
    fn large_and_diluting_callees_stay_apart() {
        let traces: [(u64, &[u32]); 2] = [(10, &[2, 1]), (1, &[1, 0])];
        // Undisturbed, 0 follows 1; it is too large, or it would dilute the others more than eightfold.
        assert_eq!(order(vec![16, 16, 16], &traces), [2, 1, 0]);
        assert_eq!(order(vec![1 << 20, 16, 16], &traces), [2, 1, 0]);
        let clusters = |size| {
            let mut clusters = Clusters {
                clusters: [(16, 11), (size, 1)]
                    .map(|(size, weight)| Cluster { functions: vec![0], size, weight })
                    .to_vec(),
                parents: vec![0, 1],
            };
            clusters.append(0, 1);
            clusters.find(1)
        };
        assert_eq!([clusters(16), clusters(128), clusters(2 << 20)], [0, 1, 1]);
    }
}
