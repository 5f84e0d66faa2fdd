//! The call graph with counts, as far as traces contain them.
//!
//! The strategies for instruction caches need a call graph with counts. Traces have no counts, only
//! which functions were executed in which run and what ran for the first time next. So:
//! * with the image's references, there is an arc for each call or jump between functions that share a trace. Its
//!   weight is the weight of the traces in which both are executed: an upper bound of the runs that take the arc;
//! * without them, each function has an arc to the next first execution, which is often its callee, counted by the
//!   weight of the trace.
//!
//! A function counts as often as the traces that run it. Functions outside all traces are not in the graph.

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::memberships::TracesOfFunctions;
use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, NodeId, ReferenceKind};

/// A traced function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callable {
    pub(super) function: FunctionId,
    /// Bytes with padding, at least 1.
    pub(super) size: u64,
    /// Weight of the traces that run it, at least 1.
    pub(super) weight: u64,
}

/// Traced functions in link order and their arcs from caller to callee: at most one for each pair and direction,
/// none from a function to itself, weights at least 1, ascending by caller and callee.
pub(super) struct CallGraph {
    graph: DiGraph<Callable, u64>,
}

impl CallGraph {
    pub(super) fn of(problem: &LayoutProblem) -> Self {
        let memberships = TracesOfFunctions::of(problem);
        let mut graph = DiGraph::new();
        let mut nodes = vec![None; problem.function_count()];
        for (index, node) in nodes.iter_mut().enumerate() {
            let function = FunctionId(index as u32);
            let weight = memberships.weight_of(function);
            if weight > 0 {
                let size = problem.padded_size(function).max(1);
                *node = Some(graph.add_node(Callable { function, size, weight }));
            }
        }
        let mut arcs =
            referenced(problem, &memberships).unwrap_or_else(|| successions(problem, &memberships));
        arcs.sort_unstable();
        arcs.dedup_by(|(later, weight), (earlier, sum)| {
            let is_same = later == earlier;
            *sum += if is_same { *weight } else { 0 };
            is_same
        });
        for ((caller, callee), weight) in arcs {
            if let (Some(caller), Some(callee)) = (nodes[caller.index()], nodes[callee.index()]) {
                graph.add_edge(caller, callee, weight);
            }
        }
        Self { graph }
    }

    /// Number of functions in the graph; they have the numbers below it.
    pub(super) fn len(&self) -> usize {
        self.graph.node_count()
    }

    pub(super) fn callable(&self, node: usize) -> Callable {
        self.graph[NodeIndex::new(node)]
    }

    /// All arcs: caller, callee, weight.
    pub(super) fn arcs(&self) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
        self.graph.edge_references().map(|arc| (arc.source().index(), arc.target().index(), *arc.weight()))
    }

    /// The callers of a function with the weights of their arcs.
    pub(super) fn callers(&self, node: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.graph
            .edges_directed(NodeIndex::new(node), Direction::Incoming)
            .map(|arc| (arc.source().index(), *arc.weight()))
    }

    /// The numbers of all functions in the order that traces first mention them.
    pub(super) fn functions(&self, nodes: impl IntoIterator<Item = usize>) -> Vec<FunctionId> {
        nodes.into_iter().map(|node| self.callable(node).function).collect()
    }
}

type Arc = ((FunctionId, FunctionId), u64);

/// Calls and jumps between functions that share a trace, if references are known. Several calls of one function
/// from another are one arc.
fn referenced(problem: &LayoutProblem, memberships: &TracesOfFunctions) -> Option<Vec<Arc>> {
    let references = problem.references()?;
    let mut pairs = Vec::new();
    for caller in (0..problem.function_count() as u32).map(FunctionId) {
        if memberships.of_function(caller).is_empty() {
            continue;
        }
        for reference in references.of(NodeId(caller.0)) {
            let is_call = matches!(reference.kind, ReferenceKind::Call | ReferenceKind::Jump);
            let is_function = reference.target.index() < problem.function_count();
            if is_call && is_function && reference.target.0 != caller.0 {
                pairs.push((caller, FunctionId(reference.target.0)));
            }
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    let weighted = pairs
        .into_iter()
        .map(|(caller, callee)| ((caller, callee), memberships.common_weight(caller, callee)));
    Some(weighted.filter(|&(_, weight)| weight > 0).collect())
}

/// Each function and the one that ran for the first time after it, once for each trace.
fn successions(problem: &LayoutProblem, memberships: &TracesOfFunctions) -> Vec<Arc> {
    problem
        .traces()
        .iter()
        .flat_map(|trace| {
            let weight = memberships.weight(trace.id);
            trace.functions.windows(2).map(move |pair| ((pair[0], pair[1]), weight))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Reference, ReferenceGraph, Rows, Trace};

    fn problem() -> LayoutProblem {
        let trace = |weight, functions: &[u32]| Trace {
            weight,
            functions: functions.iter().map(|&index| FunctionId(index)).collect(),
        };
        LayoutProblem::new(vec![16; 5], &[trace(2, &[3, 1, 0]), trace(5, &[3, 1]), trace(1, &[0, 3])])
            .unwrap()
    }

    fn arcs(problem: &LayoutProblem) -> Vec<(u32, u32, u64)> {
        let graph = CallGraph::of(problem);
        let function = |node| graph.callable(node).function.0;
        graph.arcs().map(|(caller, callee, weight)| (function(caller), function(callee), weight)).collect()
    }

    #[test]
    fn successions_of_all_traces_add_up() {
        assert_eq!(arcs(&problem()), [(0, 3, 1), (1, 0, 2), (3, 1, 7)]);
    }

    #[test]
    fn references_count_by_common_traces() {
        let mut rows = Rows::default();
        let calls = |targets: &[u32]| -> Vec<Reference> {
            targets
                .iter()
                .map(|&target| Reference { target: NodeId(target), kind: ReferenceKind::Call })
                .collect()
        };
        for targets in [&[3, 3, 0, 2][..], &[], &[0], &[0, 1], &[3]] {
            rows.push(calls(targets)).unwrap();
        }
        let references = ReferenceGraph::new(rows, 5).unwrap();
        let problem = problem().with_references(references).unwrap();
        assert_eq!(arcs(&problem), [(0, 3, 3), (3, 0, 3), (3, 1, 7)]);
    }
}
