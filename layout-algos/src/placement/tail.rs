//! Which units fill the end of an interval without a remainder.
//!
//! Programs are packed tightly: what is wasted before one obstacle is missing after the last one. So the last
//! bytes of an interval are filled by the best combination of the next units, found by dynamic programming over
//! the reachable positions.

use super::MovableUnit;

/// Bytes at the end of an interval for which combinations are tried.
pub(super) const TAIL: u64 = 1024;

/// Bound on the steps per interval: with a few hundred reachable positions, some dozens of units.
const MAX_STEPS: usize = 1 << 15;

/// How a position was reached.
#[derive(Clone, Copy)]
struct Step {
    candidate: usize,
    start: u64,
    /// Index of the position before.
    previous: usize,
}

/// How many units are tried at the very end of an interval.
const CLOSERS: usize = 8;

/// Chooses units out of `candidates` that fill `cursor..end` without losing a `granule`, or else as far as
/// possible; gives them with their starts, ascending. `end` is at most [`TAIL`] after `cursor`.
///
/// They keep their order, except that another one may come last: an end that is no multiple of the granule needs a
/// unit whose last bytes just fit.
pub(super) fn choose(
    units: &[MovableUnit],
    candidates: &[usize],
    cursor: u64,
    end: u64,
    granule: u64,
) -> Vec<(usize, u64)> {
    let in_order = fill(units, candidates, cursor, end, granule);
    if in_order.is_exact {
        return in_order.chosen;
    }
    let mut others = Vec::with_capacity(candidates.len());
    let closers = candidates.iter().filter_map(|&unit| {
        let start = units[unit].start_before(end).filter(|&start| start >= cursor)?;
        is_exact(start + units[unit].size, end, granule).then_some((unit, start))
    });
    for (closer, start) in closers.take(CLOSERS) {
        others.clear();
        others.extend(candidates.iter().copied().filter(|&unit| unit != closer));
        let mut before = fill(units, &others, cursor, start, granule);
        if before.is_exact {
            before.chosen.push((closer, start));
            return before.chosen;
        }
    }
    in_order.chosen
}

/// Whether no granule begins between `reached` and `end`.
pub(super) fn is_exact(reached: u64, end: u64, granule: u64) -> bool {
    reached.checked_next_multiple_of(granule).is_none_or(|next| next >= end)
}

struct Filling {
    chosen: Vec<(usize, u64)>,
    is_exact: bool,
}

/// The filling of `cursor..end` by units in the order of `candidates` that reaches furthest.
fn fill(units: &[MovableUnit], candidates: &[usize], cursor: u64, end: u64, granule: u64) -> Filling {
    // Position 0 is `cursor` itself; no step leads to it.
    let mut positions = vec![cursor];
    let mut steps: Vec<Step> = Vec::new();
    let mut is_reached = [false; TAIL as usize + 1];
    let mut best = 0;
    let mut steps_left = MAX_STEPS;
    'search: for (candidate, &unit) in candidates.iter().enumerate() {
        // Positions that this unit itself reaches come later, so it is used once.
        for previous in 0..positions.len() {
            if steps_left == 0 || is_exact(positions[best], end, granule) {
                break 'search;
            }
            steps_left -= 1;
            let Some(start) = units[unit].start_between(positions[previous], end) else { continue };
            let reached = start + units[unit].size;
            let offset = (reached - cursor) as usize;
            if !std::mem::replace(&mut is_reached[offset], true) {
                positions.push(reached);
                steps.push(Step { candidate, start, previous });
                if reached > positions[best] {
                    best = positions.len() - 1;
                }
            }
        }
    }
    let is_exact = is_exact(positions[best], end, granule);
    let mut chosen = Vec::new();
    while let Some(step) = best.checked_sub(1).map(|index| steps[index]) {
        chosen.push((candidates[step.candidate], step.start));
        best = step.previous;
    }
    chosen.reverse();
    Filling { chosen, is_exact }
}
