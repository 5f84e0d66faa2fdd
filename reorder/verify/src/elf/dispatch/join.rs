//! Joins the states of several ways to one place.

use super::interval::{Interval, mask};
use super::state::{Limit, REGISTERS, State};
use super::value::{Bounds, Root, Symbol, Value};

/// Roots from here on belong to joins, sixteen for each.
const FIRST_JOINED_ROOT: u32 = 1 << 31;

impl State {
    /// Joins the state of another way to the block at `position`; gives whether less is known now. `widens` drops bounds
    /// that still change.
    pub(super) fn join(&mut self, other: &Self, position: usize, widens: bool) -> bool {
        let before = self.clone();
        let first = FIRST_JOINED_ROOT.saturating_add((position as u32).saturating_mul(REGISTERS as u32));
        // A value with the name of another register no longer equals that register's value if that one changes.
        let is_other = |number: usize| before.registers[number] != other.registers[number];
        for number in (0..REGISTERS).filter(|&number| is_other(number)) {
            self.forget_copies(number, Root(first + number as u32));
        }
        self.limits.retain_mut(|limit| {
            let of_same =
                |found: &&Limit| found.root == limit.root && found.interval.bits() == limit.interval.bits();
            let Some(found) = other.limits.iter().find(of_same) else { return false };
            let hull = limit.interval.hull(found.interval);
            if widens && hull != limit.interval {
                return false;
            }
            limit.interval = hull;
            limit.is_compared &= found.is_compared;
            !hull.is_full()
        });
        for number in (0..REGISTERS).filter(|&number| is_other(number)) {
            let pair = (before.registers[number], other.registers[number]);
            self.registers[number] = match unlike(pair.0, pair.1) {
                Some(value) => value,
                None => self.joined((&before, pair.0), (other, pair.1), Root(first + number as u32), widens),
            };
        }
        self.cells.retain_mut(|cell| {
            let (Some(left), Some(right)) = (before.load(cell.place), other.load(cell.place)) else {
                return false;
            };
            if left != right {
                let bounds = before.bounds(left).hull(other.bounds(right));
                let grows = widens && bounds != before.bounds(left);
                let number = Value::Number(if grows { Bounds::full(64) } else { bounds });
                cell.value = unlike(left, right).unwrap_or(number);
            }
            true
        });
        if other.comparison != before.comparison {
            self.comparison = None;
        }
        self.is_frame_shared |= other.is_frame_shared;
        *self != before
    }

    /// Removes the name from all holders except the register `number` itself.
    fn forget_copies(&mut self, number: usize, root: Root) {
        for at in (0..REGISTERS).filter(|&at| at != number) {
            if self.registers[at].root() == Some(root) {
                self.registers[at] = self.without_name(self.registers[at]);
            }
        }
        for at in 0..self.cells.len() {
            if self.cells[at].value.root() == Some(root) {
                self.cells[at].value = self.without_name(self.cells[at].value);
            }
        }
        self.cells.retain(|cell| cell.place.root != Some(root));
        if self
            .comparison
            .is_some_and(|it| [it.left, it.right].iter().any(|value| value.root() == Some(root)))
        {
            self.comparison = None;
        }
    }

    /// Gives two numbers one name, with the bounds that hold for both, for each width.
    fn joined(
        &mut self,
        (left_state, left): (&Self, Value),
        (right_state, right): (&Self, Value),
        root: Root,
        widens: bool,
    ) -> Value {
        self.limits.retain(|limit| limit.root != root);
        for bits in [64, 32, 16, 8] {
            let of = |state: &Self, value: Value| state.bounds(truncated(value, bits));
            let (before, after) = (of(left_state, left), of(right_state, right));
            let hull = before.hull(after);
            let has_grown = (hull.least, hull.most) != (before.least, before.most);
            let hull = match widens && has_grown {
                false => hull,
                // The upper half stays zero.
                true if bits == 64 && hull.most <= mask(32) => Bounds::full(32),
                true => continue,
            };
            self.limit(root, Interval::new(hull.least, hull.most, bits), hull.is_compared);
        }
        Value::Symbol(Symbol { root, add: 0, bits: 64 })
    }
}

/// The lowest bits of a number.
fn truncated(value: Value, bits: u8) -> Value {
    match value {
        Value::Symbol(symbol) => Value::Symbol(Symbol { bits: symbol.bits.min(bits), ..symbol }),
        Value::Number(bounds) if bounds.most <= mask(bits) => value,
        _ => Value::Number(Bounds::full(bits)),
    }
}

/// The join of two different values of which at least one depends on a word of a table.
fn unlike(left: Value, right: Value) -> Option<Value> {
    if !left.is_of_table() && !right.is_of_table() {
        return None;
    }
    let index = left.index().hull(right.index());
    let is_sum = left.is_sum() || right.is_sum();
    Some(if is_sum { Value::PerhapsSum(index) } else { Value::PerhapsWord(index) })
}
