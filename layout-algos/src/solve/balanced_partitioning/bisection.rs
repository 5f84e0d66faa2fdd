//! The recursive halving.

use super::gain::ClosenessTable;
use super::prefixes::Memberships;
use crate::ids::{FunctionId, TraceId};
use crate::random::Random;

/// Parts of at most this many bytes are not split: their order within a page changes no fault.
const LEAF_BYTES: u64 = 2048;

/// Rounds of exchanges per split; nearly all splits settle in far fewer.
const MOST_ROUNDS: u64 = 40;

/// A profitable exchange is skipped once in so many: what is best for each pair alone may be bad for all at
/// once, and then the same exchanges would swing back and forth.
const SKIP_ONE_IN: u64 = 10;

/// A split has settled when fewer than one in so many of its functions are exchanged in a round.
const SETTLED_ONE_IN: usize = 1000;

/// Splits one set of functions; scratch space included, so that a split allocates nothing per trace.
pub(super) struct Bisection<'problem> {
    seed: u64,
    sizes: &'problem [u64],
    memberships: &'problem Memberships,
    closeness: &'problem ClosenessTable,
    /// By trace: where its prefixes begin in `prefixes`.
    offsets: Vec<usize>,
    /// All prefixes of all traces; zero for the traces that the present split does not touch.
    prefixes: Vec<Prefix>,
    /// Traces that some function of the present split occurs in.
    touched: Vec<TraceId>,
    /// By trace: whether `touched` has it.
    is_touched: Vec<bool>,
}

#[derive(Clone, Copy, Default)]
struct Prefix {
    /// Functions on the left whose shortest prefix is this; after summation, all on the left.
    left: u32,
    /// The same on the right.
    right: u32,
    /// What moving a function with this shortest prefix from left to right is worth.
    gain: i64,
}

/// A function in a split.
#[derive(Clone, Copy)]
struct Candidate {
    /// What moving it to the other half is worth.
    gain: i64,
    /// Position in temporal order: breaks ties and orders leaves.
    rank: u32,
    function: FunctionId,
}

impl<'problem> Bisection<'problem> {
    pub(super) fn new(
        seed: u64,
        sizes: &'problem [u64],
        memberships: &'problem Memberships,
        closeness: &'problem ClosenessTable,
    ) -> Self {
        let mut offsets = Vec::with_capacity(memberships.prefix_counts.len());
        let mut total = 0;
        for &count in &memberships.prefix_counts {
            offsets.push(total);
            total += usize::from(count);
        }
        let prefixes = vec![Prefix::default(); total];
        let is_touched = vec![false; offsets.len()];
        Self { seed, sizes, memberships, closeness, offsets, prefixes, touched: Vec::new(), is_touched }
    }

    /// Reorders `functions`, which stand in temporal order.
    pub(super) fn run(mut self, functions: &mut [FunctionId]) {
        let mut candidates: Vec<Candidate> = functions
            .iter()
            .enumerate()
            .map(|(rank, &function)| Candidate { gain: 0, rank: rank as u32, function })
            .collect();
        self.split(&mut candidates, 1);
        for (function, candidate) in functions.iter_mut().zip(&candidates) {
            *function = candidate.function;
        }
    }

    /// Splits `part`, the node `node` of the binary tree of splits. Halving the number of functions each time
    /// bounds the depth by 32.
    fn split(&mut self, part: &mut [Candidate], node: u64) {
        part.sort_unstable_by_key(|candidate| candidate.rank);
        let bytes = part
            .iter()
            .fold(0u64, |bytes, candidate| bytes.saturating_add(self.sizes[candidate.function.index()]));
        if part.len() < 2 || bytes <= LEAF_BYTES {
            return;
        }
        let (left, right) = part.split_at_mut(part.len().div_ceil(2));
        for round in 0..MOST_ROUNDS {
            let mut random = Random::new(self.seed, &[node, round]);
            self.count_prefixes(left, right);
            // Traces that lie half and half in both parts pull nowhere, although they are best kept apart. One
            // imagined function on a random side ends the deadlock; it cannot part functions with the same
            // memberships, whose exchange is worth nothing wherever it is.
            let nudge = if round == 0 { Some(&mut random) } else { None };
            self.value_prefixes(nudge);
            if self.exchange(left, right, &mut random) <= (left.len() + right.len()) / SETTLED_ONE_IN {
                break;
            }
        }
        self.split(left, 2 * node);
        self.split(right, 2 * node + 1);
    }

    /// Exchanges the functions that gain most by it, once all prefixes are valued. Gives the number of exchanges.
    fn exchange(&mut self, left: &mut [Candidate], right: &mut [Candidate], random: &mut Random) -> usize {
        for candidate in left.iter_mut() {
            candidate.gain = self.gain_to_right(candidate.function);
        }
        for candidate in right.iter_mut() {
            candidate.gain = -self.gain_to_right(candidate.function);
        }
        self.clear_prefixes();
        let best_first = |candidate: &Candidate| (std::cmp::Reverse(candidate.gain), candidate.rank);
        left.sort_unstable_by_key(best_first);
        right.sort_unstable_by_key(best_first);
        let mut exchanges = 0;
        for (one, other) in left.iter_mut().zip(right) {
            if one.gain + other.gain <= 0 {
                break;
            }
            if random.below(SKIP_ONE_IN) != 0 {
                std::mem::swap(one, other);
                exchanges += 1;
            }
        }
        exchanges
    }

    fn count_prefixes(&mut self, left: &[Candidate], right: &[Candidate]) {
        for (part, is_left) in [(left, true), (right, false)] {
            for candidate in part {
                for membership in self.memberships.of_function(candidate.function) {
                    let trace = membership.trace.index();
                    if !std::mem::replace(&mut self.is_touched[trace], true) {
                        self.touched.push(membership.trace);
                    }
                    let first = self.offsets[trace] + usize::from(membership.prefix);
                    if is_left {
                        self.prefixes[first].left += 1;
                    } else {
                        self.prefixes[first].right += 1;
                    }
                }
            }
        }
    }

    /// Sums the counts up (shorter prefixes are inside longer ones) and the gains down (a function is in all
    /// prefixes from its shortest on).
    fn value_prefixes(&mut self, mut nudge: Option<&mut Random>) {
        for &trace in &self.touched {
            let prefixes = self.trace_prefixes(trace);
            let weight = self.memberships.weights[trace.index()];
            let (mut left, mut right) = (0, 0);
            for prefix in &mut self.prefixes[prefixes.clone()] {
                left += prefix.left;
                right += prefix.right;
                (prefix.left, prefix.right) = (left, right);
            }
            let imagined =
                nudge.as_mut().map_or([0, 0], |random| if random.below(2) == 0 { [1, 0] } else { [0, 1] });
            let mut gain = 0;
            for prefix in self.prefixes[prefixes].iter_mut().rev() {
                // A single function has nobody to be close to.
                if prefix.left + prefix.right > 1 {
                    let (left, right) = (prefix.left + imagined[0], prefix.right + imagined[1]);
                    gain += weight * (self.closeness.at(right) - self.closeness.at(left));
                }
                prefix.gain = gain;
            }
        }
    }

    fn gain_to_right(&self, function: FunctionId) -> i64 {
        self.memberships
            .of_function(function)
            .iter()
            .map(|place| self.prefixes[self.offsets[place.trace.index()] + usize::from(place.prefix)].gain)
            .sum()
    }

    fn clear_prefixes(&mut self) {
        while let Some(trace) = self.touched.pop() {
            let prefixes = self.trace_prefixes(trace);
            self.prefixes[prefixes].fill(Prefix::default());
            self.is_touched[trace.index()] = false;
        }
    }

    fn trace_prefixes(&self, trace: TraceId) -> std::ops::Range<usize> {
        let start = self.offsets[trace.index()];
        start..start + usize::from(self.memberships.prefix_counts[trace.index()])
    }
}
