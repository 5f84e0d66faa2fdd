//! Places similar functions after the first of their kind.
//!
//! Each function after the recorded ones that resembles an earlier one well enough moves to it, together with those that
//! resemble it in turn. A function that resembles no other keeps its place among its neighbours, so that the order changes
//! only where a change gains.

use std::cmp::Reverse;

use super::similarity::SimilarPairs;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// Which functions are worth moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strictness {
    /// Functions with fewer bytes stay.
    pub(super) least_bytes: u64,
    /// The share of its content that a function must have in common with the one it moves to.
    pub(super) least_percent: u32,
}

/// No function.
const NONE: u32 = u32::MAX;

/// `order`, with the functions after its last recorded one gathered by similarity.
pub(super) fn gathered(
    problem: &LayoutProblem,
    order: &FunctionOrder,
    pairs: &SimilarPairs,
    strictness: Strictness,
) -> FunctionOrder {
    let is_traced = problem.traced();
    let functions: Vec<FunctionId> = order.iter().collect();
    let recorded =
        functions.iter().rposition(|function| is_traced[function.index()]).map_or(0, |last| last + 1);
    let ranks = order.ranks();
    let parents = parents(problem, &ranks, recorded, pairs, strictness);
    let (last_child, previous_sibling) = children(&parents);

    let mut result = functions[..recorded].to_vec();
    let mut pending = Vec::new();
    for root in (recorded..functions.len()).filter(|&rank| parents[rank].is_none()) {
        pending.push(root as u32);
        while let Some(rank) = pending.pop() {
            result.push(functions[rank as usize]);
            let mut child = last_child[rank as usize];
            while child != NONE {
                pending.push(child);
                child = previous_sibling[child as usize];
            }
        }
    }
    // Every function has an earlier parent or none, so each is below exactly one root.
    FunctionOrder::of(result).unwrap_or_else(|| order.clone())
}

/// The earlier function that another one goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Parent {
    /// Hashes that both have.
    shared: u32,
    rank: u32,
}

/// By rank: the earlier function with the most content in common. Ties go to the nearest.
fn parents(
    problem: &LayoutProblem,
    ranks: &[u32],
    recorded: usize,
    pairs: &SimilarPairs,
    strictness: Strictness,
) -> Vec<Option<Parent>> {
    let mut parents = vec![None; ranks.len()];
    for pair in pairs.iter() {
        let mut ends = pair.functions.map(|function| (ranks[function.index()], function));
        ends.sort_unstable();
        let [(earlier, _), (later, function)] = ends;
        let is_similar = u64::from(pair.shared) * 100
            >= u64::from(strictness.least_percent) * u64::from(pairs.content(function));
        if earlier as usize >= recorded && problem.size(function) >= strictness.least_bytes && is_similar {
            let parent = &mut parents[later as usize];
            *parent = (*parent).max(Some(Parent { shared: pair.shared, rank: earlier }));
        }
    }
    parents
}

/// By rank: the last child, and the child before it of the same parent. The most similar child is the first, so that
/// equal functions are adjacent, no matter what else resembles them.
fn children(parents: &[Option<Parent>]) -> (Vec<u32>, Vec<u32>) {
    let with_parent = |(rank, parent): (usize, &Option<Parent>)| parent.map(|parent| (parent, rank as u32));
    let mut edges: Vec<(Parent, u32)> = parents.iter().enumerate().filter_map(with_parent).collect();
    edges.sort_unstable_by_key(|&(parent, rank)| (Reverse(parent.shared), rank));
    let mut last_child = vec![NONE; parents.len()];
    let mut previous_sibling = vec![NONE; parents.len()];
    for (parent, rank) in edges {
        previous_sibling[rank as usize] = std::mem::replace(&mut last_child[parent.rank as usize], rank);
    }
    (last_child, previous_sibling)
}
