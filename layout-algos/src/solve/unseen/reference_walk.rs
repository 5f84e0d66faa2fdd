//! A walk over the references from code and data.
//!
//! A run that was not recorded differs from the recorded ones by a few features. What such a feature needs is
//! reached from functions that ran, over references that were not followed before: calls, and through data
//! (virtual tables, tables of methods). The walk gives each unrecorded function one referrer, its parent, and
//! lays the trees out depth first, so that what a feature needs below its entry is contiguous. Breadth-first
//! orders tear the features apart.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::FunctionId;
use crate::problem::{NodeId, ReferenceGraph};

/// How the trees are made and laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReferenceWalk {
    /// Which of several referrers becomes a node's parent.
    pub parent: Parent,
    /// The order of the trees.
    pub roots: Roots,
    /// The order of the children of a node.
    pub children: Children,
    /// Whether a function comes after its children instead of before them.
    pub children_first: bool,
}

/// Which of several referrers becomes a node's parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parent {
    /// The one that a depth-first search comes from.
    DepthFirst,
    /// The one that refers to the fewest things: the most specific. A dispatcher that refers to everything
    /// reveals little about what runs together.
    Specific,
}

/// The order of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Roots {
    /// As the traces ran their roots.
    Time,
    /// As the linker placed their roots.
    Link,
}

/// The order of the children of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Children {
    /// As the node refers to them.
    Position,
    /// As the linker placed them; data objects after functions.
    Link,
}

/// A forest over the nodes that no trace ran.
struct Forest {
    /// By node: its last child, or `NONE`.
    last_child: Vec<u32>,
    /// By node: the child before it.
    previous_sibling: Vec<u32>,
}

/// No node.
const NONE: u32 = u32::MAX;

impl ReferenceWalk {
    /// The functions that no trace ran and that some traced function leads to, in their order. `traced` has the
    /// functions of all traces, in the order of time.
    #[must_use]
    pub fn order(&self, graph: &ReferenceGraph, traced: &[FunctionId]) -> Vec<FunctionId> {
        let mut roots = traced.to_vec();
        if self.roots == Roots::Link {
            roots.sort_unstable();
        }
        let mut is_reached = vec![false; graph.node_count()];
        for root in traced {
            is_reached[root.index()] = true;
        }
        let forest = match self.parent {
            Parent::DepthFirst => self.depth_first(graph, &roots, &mut is_reached),
            Parent::Specific => self.most_specific(graph, &roots, &mut is_reached),
        };
        let mut order = Vec::new();
        for root in roots {
            forest.lay_out(NodeId(root.0), self.children_first, &mut |node| {
                if node.index() < graph.function_count() && node.0 != root.0 {
                    order.push(FunctionId(node.0));
                }
            });
        }
        order
    }

    /// The targets of `node`'s references, in the order of the children.
    fn children_of(&self, graph: &ReferenceGraph, node: NodeId, children: &mut Vec<NodeId>) {
        children.clear();
        children.extend(graph.of(node).iter().map(|reference| reference.target));
        if self.children == Children::Link {
            children.sort_unstable();
        }
    }

    fn depth_first(&self, graph: &ReferenceGraph, roots: &[FunctionId], is_reached: &mut [bool]) -> Forest {
        let mut forest = Forest::new(graph.node_count());
        let mut children = Vec::new();
        // (parent, node): a node's parent is decided when it is taken, not when it is found.
        let mut pending = Vec::new();
        for root in roots {
            self.children_of(graph, NodeId(root.0), &mut children);
            pending.extend(children.iter().rev().map(|&child| (NodeId(root.0), child)));
            while let Some((parent, node)) = pending.pop() {
                if std::mem::replace(&mut is_reached[node.index()], true) {
                    continue;
                }
                forest.add(parent, node);
                self.children_of(graph, node, &mut children);
                let unreached = children.iter().rev().filter(|child| !is_reached[child.index()]);
                pending.extend(unreached.map(|&child| (node, child)));
            }
        }
        forest
    }

    /// Grows the trees by one node at a time, always along a reference of the source that has the fewest.
    fn most_specific(&self, graph: &ReferenceGraph, roots: &[FunctionId], is_reached: &mut [bool]) -> Forest {
        let mut sources: Vec<(NodeId, NodeId)> = Vec::new();
        let mut queue = BinaryHeap::new();
        let mut serial = 0u32;
        let mut enqueue = |queue: &mut BinaryHeap<_>, source: NodeId, is_reached: &[bool]| {
            let references = graph.of(source);
            if references.iter().any(|reference| !is_reached[reference.target.index()]) {
                // The serial number breaks ties: sources that were reached first go first.
                queue.push(Reverse((references.len(), serial, source, 0)));
                serial += 1;
            }
        };
        for root in roots {
            enqueue(&mut queue, NodeId(root.0), is_reached);
        }
        while let Some(Reverse((fan_out, number, source, next))) = queue.pop() {
            let references = graph.of(source);
            let found = references[next..].iter().position(|reference| !is_reached[reference.target.index()]);
            let Some(offset) = found else { continue };
            let at = next + offset;
            let node = references[at].target;
            is_reached[node.index()] = true;
            sources.push((source, node));
            enqueue(&mut queue, node, is_reached);
            queue.push(Reverse((fan_out, number, source, at + 1)));
        }
        let mut forest = Forest::new(graph.node_count());
        if self.children == Children::Link {
            sources.sort_unstable_by_key(|&(_, node)| node);
        }
        // Otherwise the children of a source were found in the order of its references.
        for (source, node) in sources {
            forest.add(source, node);
        }
        forest
    }
}

impl Forest {
    fn new(nodes: usize) -> Self {
        Self { last_child: vec![NONE; nodes], previous_sibling: vec![NONE; nodes] }
    }

    /// Adds `node` after the children that `parent` has.
    fn add(&mut self, parent: NodeId, node: NodeId) {
        self.previous_sibling[node.index()] = self.last_child[parent.index()];
        self.last_child[parent.index()] = node.0;
    }

    /// Visits the tree below `root` depth first, parents before or after their children.
    fn lay_out(&self, root: NodeId, children_first: bool, visit: &mut impl FnMut(NodeId)) {
        let mut pending = vec![(root.0, false)];
        while let Some((node, are_children_done)) = pending.pop() {
            if are_children_done {
                visit(NodeId(node));
                continue;
            }
            if children_first {
                pending.push((node, true));
            } else {
                visit(NodeId(node));
            }
            let mut child = self.last_child[node as usize];
            while child != NONE {
                pending.push((child, false));
                child = self.previous_sibling[child as usize];
            }
        }
    }
}
