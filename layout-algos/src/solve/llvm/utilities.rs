//! The utilities that LLVM's tools make of traces: groups of functions that should be close.
//!
//! A utility is a prefix of a trace, and functions have all utilities from the first that reaches them on. Both tools
//! let prefixes double, and leave weights out of account.

use crate::ids::FunctionId;
use crate::problem::LayoutProblem;

/// A traced function with its utilities, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) function: FunctionId,
    pub(super) utilities: Vec<u32>,
}

/// When a trace begins its next utility.
pub(super) trait Cutoffs: Default {
    /// Whether a function of `size` bytes at `position` of the trace begins one.
    fn begins(&mut self, position: usize, size: u64) -> bool;
}

/// `llvm-profdata order`: at the positions 1, 2, 4, 8, and so on.
pub(super) struct ByPosition {
    next: usize,
}

impl Default for ByPosition {
    fn default() -> Self {
        Self { next: 1 }
    }
}

impl Cutoffs for ByPosition {
    fn begins(&mut self, position: usize, _: u64) -> bool {
        let begins = position >= self.next;
        if begins {
            self.next = 2 * position;
        }
        begins
    }
}

/// lld: when the number of functions or their bytes have doubled since the last one. The first function begins one
/// unless it is empty.
pub(super) struct ByPositionOrBytes {
    next_position: usize,
    next_bytes: u64,
    bytes: u64,
}

impl Default for ByPositionOrBytes {
    fn default() -> Self {
        Self { next_position: 1, next_bytes: 1, bytes: 0 }
    }
}

impl Cutoffs for ByPositionOrBytes {
    fn begins(&mut self, position: usize, size: u64) -> bool {
        self.bytes = self.bytes.saturating_add(size);
        let begins = position >= self.next_position || self.bytes >= self.next_bytes;
        if begins {
            self.next_bytes = self.bytes.saturating_mul(2);
            self.next_position = self.next_position.saturating_mul(2);
        }
        begins
    }
}

/// The functions of all traces by their earliest position in one, then by `keys` (one for each function, or
/// none), then in link order.
pub(super) fn nodes<C: Cutoffs>(problem: &LayoutProblem, keys: &[u64]) -> Vec<Node> {
    let count = problem.function_count();
    let mut utilities: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut earliest: Vec<Option<usize>> = vec![None; count];
    let mut utility = 0u32;
    for trace in problem.traces().iter() {
        let mut cutoffs = C::default();
        let mut first_utilities = Vec::with_capacity(trace.functions.len());
        for (position, &function) in trace.functions.iter().enumerate() {
            let earliest = &mut earliest[function.index()];
            *earliest = Some(earliest.map_or(position, |known| known.min(position)));
            utility += u32::from(cutoffs.begins(position, problem.size(function)));
            first_utilities.push((function, utility));
        }
        for (function, first) in first_utilities {
            utilities[function.index()].extend(first..=utility);
        }
        utility += 1;
    }
    let key = |function: FunctionId| keys.get(function.index()).copied();
    let mut order: Vec<_> = earliest
        .into_iter()
        .enumerate()
        .filter_map(|(index, position)| {
            let function = FunctionId(index as u32);
            Some((position?, key(function), function))
        })
        .collect();
    order.sort_unstable();
    order
        .into_iter()
        .map(|(_, _, function)| Node {
            function,
            utilities: std::mem::take(&mut utilities[function.index()]),
        })
        .collect()
}

/// Drops utilities that only one function has, or more than half of all.
pub(super) fn drop_outliers(nodes: &mut [Node]) {
    let mut frequencies: Vec<usize> = Vec::new();
    for &utility in nodes.iter().flat_map(|node| &node.utilities) {
        let index = utility as usize;
        if frequencies.len() <= index {
            frequencies.resize(index + 1, 0);
        }
        frequencies[index] += 1;
    }
    let count = nodes.len();
    for node in nodes {
        node.utilities.retain(|&utility| {
            let frequency = frequencies[utility as usize];
            frequency > 1 && 2 * frequency <= count
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;

    fn problem(sizes: Vec<u64>, traces: &[&[u32]]) -> LayoutProblem {
        let traces: Vec<Trace> = traces.iter().map(|functions| Trace::of(1, functions)).collect();
        LayoutProblem::new(sizes, &traces).unwrap()
    }

    fn listed(nodes: &[Node]) -> Vec<(u32, Vec<u32>)> {
        nodes.iter().map(|node| (node.function.0, node.utilities.clone())).collect()
    }

    #[test]
    fn prefixes_double_by_position() {
        let problem = problem(vec![16; 5], &[&[0, 1, 2, 3, 4], &[4, 2]]);
        let mut nodes = nodes::<ByPosition>(&problem, &[]);
        let expected = [
            (0, vec![0, 1, 2, 3]),
            (4, vec![3, 4, 5]),
            (1, vec![1, 2, 3]),
            (2, vec![2, 3, 5]),
            (3, vec![2, 3]),
        ];
        assert_eq!(listed(&nodes), expected);
        drop_outliers(&mut nodes);
        // Of five functions two may share a utility; 5 is shared by 4 and 2, 1 by 0 and 1.
        let expected = [(0, vec![1]), (4, vec![5]), (1, vec![1]), (2, vec![5]), (3, vec![])];
        assert_eq!(listed(&nodes), expected);
    }

    #[test]
    fn prefixes_double_by_bytes_as_well() {
        let problem = problem(vec![10, 1, 1, 100, 1], &[&[0, 1, 2, 3, 4]]);
        // 0 begins the first, 2 by position, 3 by bytes; 4 comes before position and bytes have doubled again.
        let nodes = nodes::<ByPositionOrBytes>(&problem, &[]);
        let expected = [(0, vec![1, 2, 3]), (1, vec![1, 2, 3]), (2, vec![2, 3]), (3, vec![3]), (4, vec![3])];
        assert_eq!(listed(&nodes), expected);
    }

    #[test]
    fn keys_break_ties_of_time() {
        let problem = problem(vec![16; 3], &[&[0], &[1], &[2]]);
        let order = |keys: &[u64]| {
            nodes::<ByPosition>(&problem, keys).iter().map(|node| node.function.0).collect::<Vec<_>>()
        };
        assert_eq!(order(&[]), [0, 1, 2]);
        assert_eq!(order(&[9, 3, 5]), [1, 2, 0]);
    }
}
