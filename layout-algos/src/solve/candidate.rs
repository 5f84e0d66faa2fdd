//! What recursive halvings exchange between the halves of a part.

use std::cmp::Reverse;

/// A function in a split.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    /// What moving it to the other half is worth.
    pub(super) gain: i64,
    /// Its position in the order before the split: names it, and breaks ties.
    pub(super) position: u32,
}

/// The candidates whose gain is above `least`, moved to the beginning and sorted, the best first.
pub(super) fn best_first(part: &mut [Candidate], least: i64) -> &mut [Candidate] {
    let mut kept = 0;
    for index in 0..part.len() {
        if part[index].gain > least {
            part.swap(kept, index);
            kept += 1;
        }
    }
    let best = &mut part[..kept];
    best.sort_unstable_by_key(|candidate| (Reverse(candidate.gain), candidate.position));
    best
}
