//! Exports → trie.

use super::{Export, ExportValue};
use reorder_base::leb128::{unsigned_size, write_unsigned};

/// A node: an optional export, and edges to the children, which are adjacent in the list of nodes.
struct Node<'data> {
    /// The label of the edge from the parent.
    edge: &'data [u8],
    /// Flags and value.
    terminal: Vec<u8>,
    children: std::ops::Range<usize>,
    offset: u64,
}

/// The trie of `exports`, in any order; of equal names the first counts. Empty without exports, padded with zeros to eight
/// bytes.
#[must_use]
pub fn encode(exports: &[Export]) -> Vec<u8> {
    if exports.is_empty() {
        return Vec::new();
    }
    let mut sorted: Vec<&Export> = exports.iter().collect();
    sorted.sort_by(|left, right| left.name.cmp(&right.name));
    sorted.dedup_by(|later, first| later.name == first.name);
    let mut nodes = build(&sorted);
    place(&mut nodes);
    let mut bytes = Vec::new();
    for node in &nodes {
        node.write(&nodes, &mut bytes);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Nodes of sorted names, parents before their children.
fn build<'data>(sorted: &[&'data Export]) -> Vec<Node<'data>> {
    // Which names are below each node, and how long their common prefix is.
    let mut pending = vec![(0..sorted.len(), 0usize)];
    let mut nodes = vec![Node { edge: b"", terminal: Vec::new(), children: 0..0, offset: 0 }];
    let mut index = 0;
    while let Some((mut names, depth)) = pending.get(index).cloned() {
        if let Some(export) = names.clone().next().map(|first| sorted[first])
            && export.name.len() == depth
        {
            nodes[index].terminal = terminal(export);
            names.start += 1;
        }
        let first_child = nodes.len();
        while names.start < names.end {
            let letter = sorted[names.start].name[depth];
            let count = sorted[names.clone()].partition_point(|export| export.name[depth] <= letter);
            let group = names.start..names.start + count;
            // The first and the last of sorted names share what all of them share.
            let (first, last) = (&sorted[group.start].name, &sorted[group.end - 1].name);
            let shared = first.iter().zip(last).take_while(|(left, right)| left == right).count();
            nodes.push(Node { edge: &first[depth..shared], terminal: Vec::new(), children: 0..0, offset: 0 });
            names.start = group.end;
            pending.push((group, shared));
        }
        nodes[index].children = first_child..nodes.len();
        index += 1;
    }
    nodes
}

fn terminal(export: &Export) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_unsigned(&mut bytes, export.flags);
    match &export.value {
        ExportValue::Offset(value) | ExportValue::Absolute(value) => write_unsigned(&mut bytes, *value),
        ExportValue::Reexport(rest) => bytes.extend_from_slice(rest),
        ExportValue::StubAndResolver { stub, resolver } => {
            write_unsigned(&mut bytes, *stub);
            write_unsigned(&mut bytes, *resolver);
        }
    }
    bytes
}

/// Assigns the offsets of nodes. The length of an offset depends on its value; offsets only grow from round to round, so
/// the loop ends.
fn place(nodes: &mut [Node<'_>]) {
    loop {
        let (mut offset, mut changed) = (0, false);
        for index in 0..nodes.len() {
            changed |= nodes[index].offset != offset;
            nodes[index].offset = offset;
            offset += nodes[index].size(nodes) as u64;
        }
        if !changed {
            return;
        }
    }
}

impl Node<'_> {
    fn size(&self, nodes: &[Node<'_>]) -> usize {
        let size = self.terminal.len();
        let edges = nodes[self.children.clone()].iter();
        let edges: usize = edges.map(|child| child.edge.len() + 1 + unsigned_size(child.offset)).sum();
        unsigned_size(size as u64) + size + 1 + edges
    }

    fn write(&self, nodes: &[Node<'_>], bytes: &mut Vec<u8>) {
        write_unsigned(bytes, self.terminal.len() as u64);
        bytes.extend_from_slice(&self.terminal);
        // Names have no zero, so that first letters of children are at most 255.
        bytes.push(self.children.len() as u8);
        for child in &nodes[self.children.clone()] {
            bytes.extend_from_slice(child.edge);
            bytes.push(0);
            write_unsigned(bytes, child.offset);
        }
    }
}
