//! Half-open address ranges and their difference.

/// The addresses from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
}

/// What remains of `free` outside `taken`; both sorted by start, `free` disjoint. Linear time.
pub(super) fn subtract(free: &[Interval], taken: &[Interval]) -> Vec<Interval> {
    let mut remaining = Vec::with_capacity(free.len() + taken.len());
    let mut taken = taken.iter().peekable();
    let mut taken_until = 0;
    for interval in free {
        let mut start = interval.start.max(taken_until);
        while let Some(obstacle) = taken.next_if(|obstacle| obstacle.start < interval.end) {
            if start < obstacle.start {
                remaining.push(Interval { start, end: obstacle.start });
            }
            start = start.max(obstacle.end);
            taken_until = taken_until.max(obstacle.end);
        }
        if start < interval.end {
            remaining.push(Interval { start, end: interval.end });
        }
    }
    remaining
}
