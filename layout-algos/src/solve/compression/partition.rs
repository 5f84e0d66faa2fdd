//! Recursive halving by content.
//!
//! Takes units of code and the pieces of content of each; gives an order in which units with common pieces are close. A
//! compressor writes a piece once for each place where it is out of reach, so a piece with L units in the left half and R in
//! the right costs less the more unequal these are. The units are split in halves, units are exchanged between the halves
//! while that gains, and each half is split in turn; so units that share much meet in the same small part.
//!
//! After Dhulipala et al., "Compressing Graphs and Indexes with Recursive Graph Bisection" (KDD 2016), whose exact gain of
//! a move serves content better than the symmetric one that traces are ordered by. Integers throughout, so that all systems
//! agree. Time is O(pairs of unit and piece · depth · rounds); pieces that only one unit of a part has are
//! forgotten, which makes deep levels cheap.

use rayon::prelude::*;

use crate::control::Control;
use crate::random::Random;
use crate::solve::candidate::{Candidate, best_first};
use crate::solve::logarithm::{LOG2_E, log2};

/// Rounds of exchanges per split.
const MAX_ROUNDS: u64 = 20;

/// One in this many profitable exchanges is skipped, so that exchanges do not swing back and forth.
const SKIP_ONE_IN: u64 = 10;

/// A split has settled when fewer than one in this many of its units are exchanged in a round.
const SETTLED_ONE_IN: usize = 300;

/// Parts of fewer units than this are split by one thread.
const MIN_FORKED: usize = 1024;

/// A piece that fewer than two units of a part have.
const FORGOTTEN: u32 = u32::MAX;

/// Units of one part, with the pieces of content that at least two of them have.
#[derive(Default)]
pub(super) struct Part {
    /// Positions in the initial order.
    pub(super) ranks: Vec<u32>,
    /// Where the pieces of each unit end.
    pub(super) ends: Vec<u32>,
    /// Numbers of pieces.
    pub(super) pieces: Vec<u32>,
    /// Number of pieces.
    pub(super) piece_count: u32,
}

impl Part {
    fn len(&self) -> usize {
        self.ranks.len()
    }

    fn pieces(&self, position: usize) -> &[u32] {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.pieces[start..self.ends[position] as usize]
    }

    /// The units at `positions`, with the pieces that at least two of them have.
    fn only(&self, positions: &[Candidate], counts: &[u32], numbers: &mut [u32]) -> Self {
        let mut part = Self::default();
        for (number, &count) in numbers.iter_mut().zip(counts) {
            *number = if count > 1 { part.piece_count } else { FORGOTTEN };
            part.piece_count += u32::from(count > 1);
        }
        part.ranks.reserve_exact(positions.len());
        part.ends.reserve_exact(positions.len());
        for candidate in positions {
            let position = candidate.position as usize;
            part.ranks.push(self.ranks[position]);
            let kept = self.pieces(position).iter().map(|&piece| numbers[piece as usize]);
            part.pieces.extend(kept.filter(|&number| number != FORGOTTEN));
            part.ends.push(part.pieces.len() as u32);
        }
        part
    }
}

/// Splits parts; immutable, so that halves can be split at the same time.
pub(super) struct Partition<'control> {
    seed: u64,
    growth: Growth,
    control: &'control Control<'control>,
}

impl<'control> Partition<'control> {
    pub(super) fn new(seed: u64, units: usize, control: &'control Control<'control>) -> Self {
        Self { seed, growth: Growth::up_to(units + 1), control }
    }

    /// The ranks of `part` in their new order.
    pub(super) fn run(&self, part: Part) -> Vec<u32> {
        self.split(part, 1)
    }

    /// Splits `part`, the node `node` of the binary tree of splits. Halving their number each time bounds the
    /// depth by 32.
    fn split(&self, part: Part, node: u64) -> Vec<u32> {
        if part.len() < 2 || part.piece_count == 0 || self.control.is_cancelled() {
            return part.ranks;
        }
        let (left, right) = self.halves(&part, node);
        let is_forked = part.len() >= MIN_FORKED;
        drop(part);
        let (mut left, right) = if is_forked {
            rayon::join(|| self.split(left, 2 * node), || self.split(right, 2 * node + 1))
        } else {
            (self.split(left, 2 * node), self.split(right, 2 * node + 1))
        };
        left.extend(right);
        left
    }

    fn halves(&self, part: &Part, node: u64) -> (Part, Part) {
        let mut candidates: Vec<Candidate> =
            (0..part.len() as u32).map(|position| Candidate { gain: 0, position }).collect();
        let pieces = part.piece_count as usize;
        let (left, right) = candidates.split_at_mut(part.len().div_ceil(2));
        let mut counts = [vec![0u32; pieces], vec![0u32; pieces]];
        for (candidates, counts) in [&*left, &*right].into_iter().zip(&mut counts) {
            for candidate in candidates {
                for &piece in part.pieces(candidate.position as usize) {
                    counts[piece as usize] += 1;
                }
            }
        }
        let mut gains = [vec![0i32; pieces], vec![0i32; pieces]];
        for round in 0..MAX_ROUNDS {
            self.value(&counts, &mut gains);
            let mut random = Random::new(self.seed, &[node, round]);
            let exchanged = exchange(part, left, right, &gains, &mut counts, &mut random);
            if exchanged <= part.len() / SETTLED_ONE_IN {
                break;
            }
        }
        // In the initial order, which the next round of halving begins with.
        left.sort_unstable_by_key(|candidate| candidate.position);
        right.sort_unstable_by_key(|candidate| candidate.position);
        drop(gains);
        let mut numbers = vec![0; pieces];
        let left = part.only(left, &counts[0], &mut numbers);
        let right = part.only(right, &counts[1], &mut numbers);
        (left, right)
    }

    /// What a move of one unit to the other half gains, for each piece and side.
    fn value(&self, counts: &[Vec<u32>; 2], gains: &mut [Vec<i32>; 2]) {
        let [to_right, to_left] = gains;
        for (((&left, &right), to_right), to_left) in
            counts[0].iter().zip(&counts[1]).zip(to_right.iter_mut()).zip(to_left.iter_mut())
        {
            *to_right = self.growth.at(right) - self.growth.at(left.saturating_sub(1));
            *to_left = self.growth.at(left) - self.growth.at(right.saturating_sub(1));
        }
    }
}

/// Exchanges the units that gain most by it; gives their number.
fn exchange(
    part: &Part,
    left: &mut [Candidate],
    right: &mut [Candidate],
    gains: &[Vec<i32>; 2],
    counts: &mut [Vec<u32>; 2],
    random: &mut Random,
) -> usize {
    let gain = |position: u32, gains: &[i32]| -> i64 {
        part.pieces(position as usize).iter().map(|&piece| i64::from(gains[piece as usize])).sum()
    };
    for (candidates, gains) in [(&mut *left, &gains[0]), (&mut *right, &gains[1])] {
        if part.len() >= MIN_FORKED {
            candidates.par_iter_mut().for_each(|candidate| candidate.gain = gain(candidate.position, gains));
        } else {
            candidates.iter_mut().for_each(|candidate| candidate.gain = gain(candidate.position, gains));
        }
    }
    let best = |part: &[Candidate]| part.iter().map(|candidate| candidate.gain).max().unwrap_or(0);
    let left = best_first(left, -best(right));
    let right = best_first(right, -left.first().map_or(0, |candidate| candidate.gain));
    let [left_counts, right_counts] = counts;
    let mut exchanged = 0;
    for (one, other) in left.iter_mut().zip(right) {
        if one.gain + other.gain <= 0 {
            break;
        }
        if random.below(SKIP_ONE_IN) != 0 {
            for &piece in part.pieces(one.position as usize) {
                left_counts[piece as usize] -= 1;
                right_counts[piece as usize] += 1;
            }
            for &piece in part.pieces(other.position as usize) {
                right_counts[piece as usize] -= 1;
                left_counts[piece as usize] += 1;
            }
            std::mem::swap(&mut one.position, &mut other.position);
            exchanged += 1;
        }
    }
    exchanged
}

/// What one more unit beside `x` others with the same piece saves: h(x + 1) − h(x) for h(x) = x·log₂(x + 1).
struct Growth {
    values: Vec<i32>,
}

impl Growth {
    fn up_to(most: usize) -> Self {
        // = log₂(x + 2) + x·(log₂(x + 2) − log₂(x + 1)); the difference of two rounded logarithms times x would be noise.
        let growth = |count: u64| log2(count + 2) + LOG2_E * 2 * count / (2 * count + 3);
        Self { values: (0..=most as u64).map(|count| growth(count) as i32).collect() }
    }

    fn at(&self, count: u32) -> i32 {
        self.values[count as usize]
    }
}
