//! Half-open address ranges and their difference.

/// The addresses from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
}

/// What remains of `free` outside `taken`, in the order of `free`; `taken` is sorted and disjoint.
pub(super) fn subtract(free: &[Interval], taken: &[Interval]) -> Vec<Interval> {
    let mut remaining = Vec::with_capacity(free.len() + taken.len());
    for interval in free {
        let mut start = interval.start;
        let first = taken.partition_point(|obstacle| obstacle.end <= interval.start);
        for obstacle in taken[first..].iter().take_while(|obstacle| obstacle.start < interval.end) {
            if start < obstacle.start {
                remaining.push(Interval { start, end: obstacle.start });
            }
            start = start.max(obstacle.end);
        }
        if start < interval.end {
            remaining.push(Interval { start, end: interval.end });
        }
    }
    remaining
}
