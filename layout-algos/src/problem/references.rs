//! The references from an image's code and data to code and data.

use super::rows::Rows;

/// A function or a data object: functions have the numbers of their [`FunctionId`](crate::ids::FunctionId), data
/// objects follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How one thing refers to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceKind {
    /// Code calls a function.
    #[default]
    Call,
    /// Code jumps to a function: mostly a call in tail position.
    Jump,
    /// Code takes a function's address.
    CodeAddress,
    /// Code uses a data object.
    DataAddress,
    /// Data holds the address of a function or of data: virtual tables, tables of methods.
    Pointer,
}

/// One edge of the graph, kept with its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The target.
    pub target: NodeId,
    /// The kind.
    pub kind: ReferenceKind,
}

/// The references of all functions, then of all data objects; those of one source in the order of their position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceGraph {
    rows: Rows<Reference>,
    functions: usize,
}

impl ReferenceGraph {
    /// `rows` has one row for each of `functions` functions, then one for each data object. `None` if a reference
    /// leads outside, or there are fewer rows than functions.
    #[must_use]
    pub fn new(rows: Rows<Reference>, functions: usize) -> Option<Self> {
        let is_inside = |reference: &Reference| reference.target.index() < rows.len();
        (rows.len() >= functions && rows.items().iter().all(is_inside)).then_some(Self { rows, functions })
    }

    /// Number of functions: the nodes below it.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.functions
    }

    /// Number of functions and data objects.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.rows.len()
    }

    /// Number of references.
    #[must_use]
    pub fn reference_count(&self) -> usize {
        self.rows.items().len()
    }

    /// What `source` refers to, in the order of position.
    #[must_use]
    pub fn of(&self, source: NodeId) -> &[Reference] {
        self.rows.row(source.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_lead_to_nodes() {
        let graph = |targets: &[u32], functions| {
            let mut rows = Rows::default();
            let references =
                targets.iter().map(|&target| Reference { target: NodeId(target), ..Reference::default() });
            rows.push(references).unwrap();
            rows.push([]).unwrap();
            ReferenceGraph::new(rows, functions)
        };
        let valid = graph(&[1, 0], 1).unwrap();
        assert_eq!((valid.function_count(), valid.node_count(), valid.reference_count()), (1, 2, 2));
        assert_eq!(valid.of(NodeId(0))[1].target, NodeId(0));
        assert!(graph(&[2], 1).is_none());
        assert!(graph(&[1], 3).is_none());
    }
}
