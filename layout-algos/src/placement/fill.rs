//! The walk over the free intervals that keeps the wanted order as far as the obstacles allow.

use super::dense_pool::DensePool;
use super::queue::{Link, Queue};
use super::tail::{self, TAIL};
use super::{Interval, MovableUnit};

/// How many of the next units are considered when the very next one does not fit. Bounds the cost by intervals ×
/// this, and how far a unit may come before its turn.
const LOOK_AHEAD: usize = 256;

/// How many units of the order one may overtake to use room that these would leave empty.
const MAX_OVERTAKEN: usize = 32;

/// Fills the intervals in address order with the units in the given order, writing `starts`.
///
/// Gives the units that found no place and the space that stayed empty, both in order.
pub(super) fn fill_in_order(
    units: &[MovableUnit],
    mut order: Vec<usize>,
    free: &[Interval],
    starts: &mut [u64],
    is_room_short: bool,
) -> (Vec<usize>, Vec<Interval>) {
    let smallest = order.iter().map(|&unit| units[unit].size).min().unwrap_or(0);
    let granule = default_modulus(units, &order);
    let closer = last_closer(units, &order, free, granule);
    let mut free = free.to_vec();
    if let Some(((position, start), last)) = closer.zip(free.last_mut()) {
        starts[order.remove(position)] = start;
        last.end = start;
    }
    let mut queue = Queue::new(order);
    let mut pool = DensePool::new(granule);
    let mut holes = Vec::new();
    for interval in free {
        let mut cursor = interval.start;
        let mut put = |unit: usize, start: u64, cursor: &mut u64| {
            if *cursor < start {
                holes.push(Interval { start: *cursor, end: start });
            }
            starts[unit] = start;
            *cursor = start + units[unit].size;
        };
        let mut skipped = 0;
        let mut position = queue.first();
        // The room only shrinks, so a unit that did not fit once needs no second look in this interval.
        while interval.end - cursor > TAIL && skipped < LOOK_AHEAD {
            if let Some((unit, start)) = pool.take(units, cursor, interval.end) {
                put(unit, start, &mut cursor);
                continue;
            }
            let Some(unit) = queue.unit_after(position) else { break };
            if pool.admits(&units[unit]) {
                pool.push(units, unit);
                queue.remove_after(position);
            } else if let Some(start) = units[unit].start_between(cursor, interval.end) {
                let place = Place { cursor, start, end: interval.end, granule, is_room_short };
                let better = place.better(units, &queue, position, |unit| pool.admits(unit));
                let (link, start) = better.unwrap_or((position, start));
                if let Some(chosen) = queue.unit_after(link) {
                    put(chosen, start, &mut cursor);
                    queue.remove_after(link);
                }
            } else {
                skipped += 1;
                position = queue.advance(position);
            }
        }
        if (smallest..=TAIL).contains(&(interval.end - cursor)) {
            let mut candidates = pool.units();
            candidates.extend(queue.next_units(LOOK_AHEAD));
            let mut chosen = tail::choose(units, &candidates, cursor, interval.end, granule);
            for &(unit, start) in &chosen {
                put(unit, start, &mut cursor);
            }
            pool.retain(|waiting| {
                let index = chosen.iter().position(|&(unit, _)| unit == waiting);
                index.map(|index| chosen.remove(index)).is_none()
            });
            queue.remove(chosen.into_iter().map(|(unit, _)| unit).collect());
        }
        if cursor < interval.end {
            holes.push(Interval { start: cursor, end: interval.end });
        }
    }
    let mut unplaced = pool.units();
    unplaced.extend(queue.next_units(usize::MAX));
    (unplaced, holes)
}

/// Where the next unit would go.
struct Place {
    cursor: u64,
    start: u64,
    end: u64,
    granule: u64,
    is_room_short: bool,
}

impl Place {
    /// A unit after `position` that fits better here than the one at `position`, with its start: it loses less than a
    /// granule where that would lose more; when room is short, also if it needs more alignment, which places seldom have.
    ///
    /// Room that a unit of large alignment skips is missing at the end, and so are the places that it could use, unless
    /// those that need no alignment take what is left between.
    fn better(
        &self,
        units: &[MovableUnit],
        queue: &Queue,
        position: Link,
        is_elsewhere: impl Fn(&MovableUnit) -> bool,
    ) -> Option<(Link, u64)> {
        let loses_nothing = self.start - self.cursor < self.granule;
        if loses_nothing && !self.is_room_short {
            return None;
        }
        let mut needed =
            queue.unit_after(position).filter(|_| loses_nothing).map_or(0, |unit| units[unit].modulus);
        let mut best = None;
        let mut link = position;
        for _ in 0..MAX_OVERTAKEN {
            link = queue.advance(link);
            let Some(unit) = queue.unit_after(link).map(|unit| &units[unit]) else { break };
            let start = unit.start_between(self.cursor, self.end).filter(|_| !is_elsewhere(unit));
            if let Some(start) =
                start.filter(|start| start - self.cursor < self.granule && unit.modulus > needed)
            {
                best = Some((link, start));
                needed = unit.modulus;
                if !self.is_room_short {
                    break;
                }
            }
        }
        best
    }
}

/// A unit that ends just where the last interval does, the latest in the order; with its place in `order` and its
/// start. It is placed first, because the walk has no choice left when it reaches the last interval.
fn last_closer(
    units: &[MovableUnit],
    order: &[usize],
    free: &[Interval],
    granule: u64,
) -> Option<(usize, u64)> {
    let last = free.last().filter(|last| !last.end.is_multiple_of(granule))?;
    order.iter().enumerate().rev().find_map(|(position, &unit)| {
        let start = units[unit].start_before(last.end).filter(|&start| start >= last.start)?;
        tail::is_exact(start + units[unit].size, last.end, granule).then_some((position, start))
    })
}

/// The modulus of the median unit, at most 16: remainders below it cost no unit its place.
fn default_modulus(units: &[MovableUnit], order: &[usize]) -> u64 {
    let mut moduli: Vec<u64> = order.iter().map(|&unit| units[unit].modulus).collect();
    moduli.sort_unstable();
    moduli.get(moduli.len() / 2).map_or(1, |&modulus| modulus.clamp(1, 16))
}
