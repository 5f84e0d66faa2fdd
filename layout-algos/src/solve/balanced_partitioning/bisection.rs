//! The recursive halving.

use super::gain::ClosenessTable;
use super::memberships::{Memberships, Slot};
use crate::control::Control;
use crate::random::Random;
use crate::solve::candidate::{Candidate, best_first};

/// Rounds of exchanges per split; nearly all splits settle in far fewer.
const MAX_ROUNDS: u64 = 24;

/// One in this many profitable exchanges is skipped: what is best for each pair alone may be bad for all at
/// once, and then the same exchanges would swing back and forth.
const SKIP_ONE_IN: u64 = 10;

/// A split has settled when fewer than one in this many of its functions are exchanged in a round.
const SETTLED_ONE_IN: usize = 500;

/// Halves of fewer functions than this are split by one thread: a fork costs more than they do.
const MIN_FORKED: usize = 4096;

/// Splits one set of functions; it is immutable, so that halves can be split at the same time.
pub(in crate::solve) struct Bisection<'memberships> {
    control: &'memberships Control<'memberships>,
    seed: u64,
    /// By position in the memberships' functions.
    sizes: Vec<u64>,
    memberships: &'memberships Memberships,
    closeness: &'memberships ClosenessTable,
}

/// The counters of one thread.
struct Scratch {
    /// By slot; zero for the traces that the present split does not touch.
    counts: Vec<Count>,
    /// By slot: what moving a function with this shortest prefix from left to right is worth.
    gains: Vec<i64>,
    /// Traces that some function of the present split occurs in.
    touched: Vec<u32>,
    /// By trace: whether `touched` has it.
    is_touched: Vec<bool>,
}

/// Functions with one shortest prefix.
#[derive(Clone, Copy, Default)]
struct Count {
    left: u32,
    right: u32,
}

impl Scratch {
    fn new(memberships: &Memberships) -> Self {
        Self {
            counts: vec![Count::default(); memberships.slot_count()],
            gains: vec![0; memberships.slot_count()],
            touched: Vec::new(),
            is_touched: vec![false; memberships.weights.len()],
        }
    }
}

impl<'memberships> Bisection<'memberships> {
    pub(in crate::solve) fn new(
        seed: u64,
        sizes: Vec<u64>,
        memberships: &'memberships Memberships,
        closeness: &'memberships ClosenessTable,
        control: &'memberships Control<'memberships>,
    ) -> Self {
        Self { control, seed, sizes, memberships, closeness }
    }

    /// Positions in the memberships' functions, in the new order. Parts of at most `leaf` bytes keep the order that they have.
    pub(in crate::solve) fn run(&self, leaf: u64) -> Vec<u32> {
        let mut candidates: Vec<Candidate> =
            (0..self.sizes.len() as u32).map(|position| Candidate { gain: 0, position }).collect();
        self.split(&mut candidates, (1, leaf), &mut Scratch::new(self.memberships));
        candidates.into_iter().map(|candidate| candidate.position).collect()
    }

    /// Splits `part`, the node `node` of the binary tree of splits. Halving the number of functions each time
    /// bounds the depth by 32.
    fn split(&self, part: &mut [Candidate], (node, leaf): (u64, u64), scratch: &mut Scratch) {
        part.sort_unstable_by_key(|candidate| candidate.position);
        let bytes = part
            .iter()
            .fold(0u64, |bytes, candidate| bytes.saturating_add(self.sizes[candidate.position as usize]));
        if part.len() < 2 || bytes <= leaf || self.control.is_cancelled() {
            return;
        }
        let (left, right) = part.split_at_mut(part.len().div_ceil(2));
        self.exchange_until_settled(left, right, node, scratch);
        if left.len() >= MIN_FORKED {
            rayon::join(
                || self.split(left, (2 * node, leaf), scratch),
                || self.split(right, (2 * node + 1, leaf), &mut Scratch::new(self.memberships)),
            );
        } else {
            self.split(left, (2 * node, leaf), scratch);
            self.split(right, (2 * node + 1, leaf), scratch);
        }
    }

    fn exchange_until_settled(
        &self,
        left: &mut [Candidate],
        right: &mut [Candidate],
        node: u64,
        scratch: &mut Scratch,
    ) {
        self.count(left, right, scratch);
        for round in 0..MAX_ROUNDS {
            let mut random = Random::new(self.seed, &[node, round]);
            // Traces that lie half and half in both parts pull nowhere, although they are best kept apart. One
            // imagined function, of the first traces on the left and of the last on the right, ends the deadlock;
            // it cannot part functions with the same memberships, whose exchange never gains.
            self.value(scratch, u32::from(round == 0));
            let exchanges = self.exchange(left, right, &mut random, scratch);
            if exchanges <= (left.len() + right.len()) / SETTLED_ONE_IN {
                break;
            }
        }
        self.clear(scratch);
    }

    /// Exchanges the functions that gain most by it, once all prefixes are valued. Gives the number of exchanges.
    fn exchange(
        &self,
        left: &mut [Candidate],
        right: &mut [Candidate],
        random: &mut Random,
        scratch: &mut Scratch,
    ) -> usize {
        for candidate in left.iter_mut() {
            candidate.gain = self.gain_to_right(candidate.position, scratch);
        }
        for candidate in right.iter_mut() {
            candidate.gain = -self.gain_to_right(candidate.position, scratch);
        }
        let best = |part: &[Candidate]| part.iter().map(|candidate| candidate.gain).max().unwrap_or(0);
        let left = best_first(left, -best(right));
        let right = best_first(right, -left.first().map_or(0, |candidate| candidate.gain));
        let mut exchanges = 0;
        for (one, other) in left.iter_mut().zip(right) {
            if one.gain + other.gain <= 0 {
                break;
            }
            if random.below(SKIP_ONE_IN) != 0 {
                self.recount(one.position, other.position, scratch);
                std::mem::swap(one, other);
                exchanges += 1;
            }
        }
        exchanges
    }

    fn count(&self, left: &[Candidate], right: &[Candidate], scratch: &mut Scratch) {
        for (part, is_left) in [(left, true), (right, false)] {
            for candidate in part {
                for &slot in self.slots(candidate.position) {
                    let trace = slot / self.memberships.prefixes;
                    if !std::mem::replace(&mut scratch.is_touched[trace as usize], true) {
                        scratch.touched.push(trace);
                    }
                    let count = &mut scratch.counts[slot as usize];
                    *(if is_left { &mut count.left } else { &mut count.right }) += 1;
                }
            }
        }
        // Neighbouring traces tend to be of one kind: half of them, not the half that was met first, goes left.
        scratch.touched.sort_unstable();
    }

    /// The function at `one` goes from left to right, the one at `other` comes from right to left.
    fn recount(&self, one: u32, other: u32, scratch: &mut Scratch) {
        for &slot in self.slots(one) {
            scratch.counts[slot as usize].left -= 1;
            scratch.counts[slot as usize].right += 1;
        }
        for &slot in self.slots(other) {
            scratch.counts[slot as usize].right -= 1;
            scratch.counts[slot as usize].left += 1;
        }
    }

    /// Sums the counts up (shorter prefixes are inside longer ones) and the gains down (a function is in all
    /// prefixes from its shortest on).
    fn value(&self, scratch: &mut Scratch, imagined: u32) {
        let first_traces = scratch.touched.len() / 2;
        for (index, &trace) in scratch.touched.iter().enumerate() {
            let prefixes = self.prefixes(trace);
            let weight = self.memberships.weights[trace as usize];
            let imagined = if index < first_traces { [imagined, 0] } else { [0, imagined] };
            let gains = &mut scratch.gains[prefixes.clone()];
            let (mut left, mut right) = (0, 0);
            for (count, gain) in scratch.counts[prefixes].iter().zip(gains.iter_mut()) {
                left += count.left;
                right += count.right;
                // A single function has no neighbours to be close to.
                *gain = if left + right > 1 {
                    let closeness = |count: u32| self.closeness.at(count);
                    weight * (closeness(right + imagined[1]) - closeness(left + imagined[0]))
                } else {
                    0
                };
            }
            let mut sum = 0;
            for gain in gains.iter_mut().rev() {
                sum += *gain;
                *gain = sum;
            }
        }
    }

    fn gain_to_right(&self, rank: u32, scratch: &Scratch) -> i64 {
        self.slots(rank).iter().map(|&slot| scratch.gains[slot as usize]).sum()
    }

    fn clear(&self, scratch: &mut Scratch) {
        while let Some(trace) = scratch.touched.pop() {
            scratch.counts[self.prefixes(trace)].fill(Count::default());
            scratch.is_touched[trace as usize] = false;
        }
    }

    fn slots(&self, rank: u32) -> &[Slot] {
        self.memberships.slots.row(rank as usize)
    }

    fn prefixes(&self, trace: u32) -> std::ops::Range<usize> {
        let prefixes = self.memberships.prefixes;
        (trace * prefixes) as usize..((trace + 1) * prefixes) as usize
    }
}
