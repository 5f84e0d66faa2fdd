//! The walk over the free intervals that keeps the wanted order as far as the obstacles allow.

use super::{Interval, MovableUnit};

/// How many units that do not fit are skipped per interval while looking for ones that do. Bounds the cost by
/// intervals × this, and how far a unit may come before its turn.
const LOOK_AHEAD: usize = 256;

/// Fills the intervals in address order with the units in the given order, writing `starts`.
///
/// Gives the units that found no place and the space that stayed empty, both in order.
pub(super) fn fill_in_order(
    units: &[MovableUnit],
    order: Vec<usize>,
    free: &[Interval],
    starts: &mut [u64],
) -> (Vec<usize>, Vec<Interval>) {
    let smallest = order.iter().map(|&unit| units[unit].size).min().unwrap_or(0);
    let mut queue = Queue::new(order);
    let mut holes = Vec::new();
    for interval in free {
        let mut cursor = interval.start;
        let mut skipped = 0;
        let mut position = queue.first();
        // The room only shrinks, so a unit that did not fit once needs no second look in this interval.
        while let Some(unit) = queue.unit_after(position) {
            if skipped == LOOK_AHEAD || interval.end - cursor < smallest {
                break;
            }
            if let Some(start) = units[unit].start_between(cursor, interval.end) {
                if cursor < start {
                    holes.push(Interval { start: cursor, end: start });
                }
                starts[unit] = start;
                cursor = start + units[unit].size;
                queue.remove_after(position);
            } else {
                skipped += 1;
                position = queue.advance(position);
            }
        }
        if cursor < interval.end {
            holes.push(Interval { start: cursor, end: interval.end });
        }
    }
    (queue.into_rest(), holes)
}

/// A singly linked list over the order: removal in the middle without moving the rest.
struct Queue {
    units: Vec<usize>,
    /// Link 0 leads to the first element; link i + 1 leads from element i to the next. `units.len()` ends.
    next: Vec<usize>,
}

/// A place between two elements of a [`Queue`]: the link that leads to the later one.
#[derive(Clone, Copy)]
struct Link(usize);

impl Queue {
    fn new(units: Vec<usize>) -> Self {
        let next = (0..=units.len()).collect();
        Self { units, next }
    }

    fn first(&self) -> Link {
        Link(0)
    }

    fn unit_after(&self, link: Link) -> Option<usize> {
        self.units.get(self.next[link.0]).copied()
    }

    /// The link behind the element that `link` leads to; there must be one.
    fn advance(&self, link: Link) -> Link {
        Link(self.next[link.0] + 1)
    }

    /// Drops the element that `link` leads to; there must be one.
    fn remove_after(&mut self, link: Link) {
        self.next[link.0] = self.next[self.next[link.0] + 1];
    }

    fn into_rest(self) -> Vec<usize> {
        let mut link = self.first();
        let mut rest = Vec::new();
        while let Some(unit) = self.unit_after(link) {
            rest.push(unit);
            link = self.advance(link);
        }
        rest
    }
}
