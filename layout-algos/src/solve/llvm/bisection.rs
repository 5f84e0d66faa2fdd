//! Recursive bisection exactly as LLVM does it.
//!
//! Equal input gives LLVM's order, so the same details decide: single-precision sums in the order of the
//! utilities, ties by the order that an unstable partition leaves, skipped moves by its generator and seeds. What
//! the algorithm is: Hoag, Lee, Mestre, Pupyrev, "Optimizing Function Layout for Mobile Applications" (LCTES 2023).
//!
//! Time is O(pairs · splits' depth · rounds), a pair being a function and one of its utilities. The halves of a split
//! are independent, since each split seeds its own generator; so threads change only the time.

use std::cmp::Ordering;

use super::logarithms::Logarithms;
use super::random::MersenneTwister;
use super::utilities::Node;
use crate::ids::FunctionId;

/// Splits below the first at most.
const MAX_SPLITS: u32 = 18;

/// Rounds of exchanges per split at most.
const MAX_ROUNDS: u32 = 40;

/// How probable it is that a function does not move although it should.
const SKIP_PROBABILITY: f32 = 0.1;

/// A function in a split.
struct Candidate {
    function: FunctionId,
    /// Position in the input.
    rank: u32,
    is_left: bool,
    /// Numbers of the split's utilities, in the order of the input.
    utilities: Vec<u32>,
}

/// A utility in a split.
#[derive(Clone, Copy, Default)]
struct Utility {
    left: u32,
    right: u32,
    /// What it gains when one function moves, if the counts have not changed since.
    gains: Option<MoveGains>,
}

#[derive(Clone, Copy)]
struct MoveGains {
    to_right: f32,
    to_left: f32,
}

/// The functions of `nodes`, given in their initial order, in the order of their buckets.
pub(super) fn order(nodes: Vec<Node>) -> Vec<FunctionId> {
    let logarithms = Logarithms::up_to(nodes.len() + 1);
    let mut candidates: Vec<Candidate> = nodes
        .into_iter()
        .enumerate()
        .map(|(rank, node)| Candidate {
            function: node.function,
            rank: rank as u32,
            is_left: true,
            utilities: node.utilities,
        })
        .collect();
    let utilities = candidates.iter().flat_map(|candidate| &candidate.utilities).max();
    let utilities = utilities.map_or(0, |&utility| utility as usize + 1);
    split(&mut candidates, 0, 1, utilities, &logarithms);
    candidates.into_iter().map(|candidate| candidate.function).collect()
}

/// Splits `part`, whose utilities have numbers below `utilities`. `bucket` is its number in the binary tree of splits.
fn split(part: &mut [Candidate], depth: u32, bucket: u32, utilities: usize, logarithms: &Logarithms) {
    part.sort_unstable_by_key(|candidate| candidate.rank);
    if part.len() <= 1 || depth >= MAX_SPLITS {
        return;
    }
    let mut random = MersenneTwister::new(bucket);
    let middle = part.len().div_ceil(2);
    for (index, candidate) in part.iter_mut().enumerate() {
        candidate.is_left = index < middle;
    }
    let utilities = renumber_utilities(part, utilities);
    let mut counts = vec![Utility::default(); utilities];
    for candidate in part.iter() {
        for &utility in &candidate.utilities {
            let utility = &mut counts[utility as usize];
            *(if candidate.is_left { &mut utility.left } else { &mut utility.right }) += 1;
        }
    }
    for _ in 0..MAX_ROUNDS {
        if exchange(part, &mut counts, logarithms, &mut random) == 0 {
            break;
        }
    }
    part.sort_unstable_by_key(|candidate| (!candidate.is_left, candidate.rank));
    let (left, right) = part.split_at_mut(part.partition_point(|candidate| candidate.is_left));
    rayon::join(
        || split(left, depth + 1, 2 * bucket, utilities, logarithms),
        || split(right, depth + 1, 2 * bucket + 1, utilities, logarithms),
    );
}

/// Drops utilities that one function has alone or all have, for this part permanently, and numbers the others. Gives
/// their count.
fn renumber_utilities(part: &mut [Candidate], utilities: usize) -> usize {
    let mut counts = vec![0usize; utilities];
    for &utility in part.iter().flat_map(|candidate| &candidate.utilities) {
        counts[utility as usize] += 1;
    }
    let mut next = 0u32;
    let numbers: Vec<Option<u32>> = counts
        .into_iter()
        .map(|count| {
            let is_kept = count > 1 && count != part.len();
            next += u32::from(is_kept);
            is_kept.then(|| next - 1)
        })
        .collect();
    for candidate in part {
        candidate.utilities.retain_mut(|utility| {
            let number = numbers[*utility as usize];
            *utility = number.unwrap_or(0);
            number.is_some()
        });
    }
    next as usize
}

/// One round of exchanges. Gives the number of functions that moved.
fn exchange(
    part: &mut [Candidate],
    utilities: &mut [Utility],
    logarithms: &Logarithms,
    random: &mut MersenneTwister,
) -> usize {
    let values: Vec<MoveGains> = utilities.iter_mut().map(|utility| utility.gains(logarithms)).collect();
    let mut gains: Vec<(f32, usize)> = part
        .iter()
        .enumerate()
        .map(|(index, candidate)| {
            let values = candidate.utilities.iter().map(|&utility| values[utility as usize]);
            let gain: f32 = if candidate.is_left {
                values.fold(0.0, |sum, value| sum + value.to_right)
            } else {
                values.fold(0.0, |sum, value| sum + value.to_left)
            };
            (gain, index)
        })
        .collect();
    let middle = partition(&mut gains, |&(_, index)| part[index].is_left);
    let (left, right) = gains.split_at_mut(middle);
    let descending =
        |one: &(f32, usize), other: &(f32, usize)| other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal);
    left.sort_by(descending);
    right.sort_by(descending);
    let mut moved = 0;
    for (&(left_gain, left), &(right_gain, right)) in left.iter().zip(right.iter()) {
        if left_gain + right_gain <= 0.0 {
            break;
        }
        for index in [left, right] {
            if random.below_one() > SKIP_PROBABILITY {
                move_over(&mut part[index], utilities);
                moved += 1;
            }
        }
    }
    moved
}

fn move_over(candidate: &mut Candidate, utilities: &mut [Utility]) {
    for &utility in &candidate.utilities {
        let utility = &mut utilities[utility as usize];
        if candidate.is_left {
            (utility.left, utility.right) = (utility.left - 1, utility.right + 1);
        } else {
            (utility.left, utility.right) = (utility.left + 1, utility.right - 1);
        }
        utility.gains = None;
    }
    candidate.is_left = !candidate.is_left;
}

impl Utility {
    fn gains(&mut self, logarithms: &Logarithms) -> MoveGains {
        let (left, right) = (self.left, self.right);
        *self.gains.get_or_insert_with(|| {
            let now = cost(left, right, logarithms);
            let after = |left, right| now - cost(left, right, logarithms);
            MoveGains {
                to_right: if left > 0 { after(left - 1, right + 1) } else { 0.0 },
                to_left: if right > 0 { after(left + 1, right - 1) } else { 0.0 },
            }
        })
    }
}

/// The uniform log-gap cost without its constant part.
fn cost(left: u32, right: u32, logarithms: &Logarithms) -> f32 {
    -(left as f32 * logarithms.of(left + 1) + right as f32 * logarithms.of(right + 1))
}

/// Brings the items with the property to the front, exchanging the first without it and the last with it until they
/// meet; gives their number. This is how libstdc++ does it, and the order it leaves decides ties.
fn partition<T>(items: &mut [T], has_property: impl Fn(&T) -> bool) -> usize {
    let (mut first, mut end) = (0, items.len());
    loop {
        while first < end && has_property(&items[first]) {
            first += 1;
        }
        while first < end && !has_property(&items[end - 1]) {
            end -= 1;
        }
        if first >= end {
            return first;
        }
        items.swap(first, end - 1);
        (first, end) = (first + 1, end - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_meet_in_the_middle() {
        let mut items = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(partition(&mut items, |item| item % 2 == 0), 3);
        assert_eq!(items, [6, 2, 4, 3, 5, 1, 7]);
        assert_eq!(partition(&mut items, |_| true), 7);
        assert_eq!(partition(&mut items, |_| false), 0);
    }

    #[test]
    fn functions_with_the_same_utilities_meet() {
        let node = |function, utilities: &[u32]| Node {
            function: FunctionId(function),
            utilities: utilities.to_vec(),
        };
        let sets = [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1], [2, 3], [0, 1], [2, 3]];
        let nodes = sets.iter().enumerate().map(|(index, set)| node(index as u32, set)).collect();
        let order: Vec<u32> = order(nodes).into_iter().map(|function| function.0).collect();
        let half = |part: &[u32]| part.iter().all(|function| function % 2 == part[0] % 2);
        assert!(half(&order[..4]) && half(&order[4..]), "{order:?}");
    }
}
