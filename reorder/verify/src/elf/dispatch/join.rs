//! Joins the states of several ways to one place.
//!
//! Joins come to an end. Bounds that still change after some joins are dropped. Sets of addresses are not widened: each of
//! the sixteen that one place makes can only gain addresses there, at most three times, or be dropped; then the register
//! has a name without a set, and no later join gives that name a set again, because both sides must have one. Places in
//! memory that share a name can only be split into smaller groups, and a place without a name never gets one again. A register
//! becomes a part of another one only if it was one in both states, so a relation that is lost never returns; the same holds for a
//! place in memory that is a part of a register.

use super::interval::{Interval, mask};
use super::parts::{Part, parts};
use super::shared_cells::shared;
use super::spilled_parts::spilled_parts;
use super::state::{Limit, Place, REGISTERS, State};
use super::value::{Bounds, Root, Symbol, Value};

/// Roots from here on belong to joins.
const FIRST_JOINED_ROOT: u32 = 1 << 31;
/// Names that places in memory share after a join.
pub(super) const MAX_SHARED: usize = 16;
/// Roots of one join: one for each register, then those of places in memory.
const ROOTS_EACH: u32 = (REGISTERS + MAX_SHARED) as u32;

impl State {
    /// Joins the state of another way to the block at `position`; gives whether less is known now. `widens` drops bounds
    /// that still change.
    pub(super) fn join(&mut self, other: &Self, position: usize, widens: bool) -> bool {
        let before = self.clone();
        let first = FIRST_JOINED_ROOT.saturating_add((position as u32).saturating_mul(ROOTS_EACH));
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
        self.choices.retain_mut(|choice| {
            let both = other.choice(choice.root).and_then(|found| choice.addresses.union(found));
            both.map(|both| choice.addresses = both).is_some()
        });
        // A value with the name of another register no longer equals that register's value if that one changes. By now its
        // bounds hold on both ways.
        let is_other = |number: usize| before.registers[number] != other.registers[number];
        for number in (0..REGISTERS).filter(|&number| is_other(number)) {
            self.forget_copies(Root(first + number as u32), Some(number), &[]);
        }
        let parts = parts((&before, other), is_other);
        for number in (0..REGISTERS).filter(|&number| is_other(number)) {
            let pair = (before.registers[number], other.registers[number]);
            self.registers[number] = match (unlike(pair.0, pair.1), parts[number]) {
                (Some(value), _) => value,
                (None, Some(Part { whole, bits })) => {
                    Value::Symbol(Symbol { root: Root(first + whole as u32), add: 0, bits })
                }
                (None, None) => {
                    self.joined((&before, pair.0), (other, pair.1), Root(first + number as u32), widens)
                }
            };
        }
        let spilled = spilled_parts((&before, other), &parts, is_other);
        let is_spilled = |place: Place| spilled.iter().any(|spilled| spilled.place == place);
        let named = shared((&before, other), first + REGISTERS as u32, is_spilled);
        for group in &named {
            self.forget_copies(group.root, None, &group.places);
            let value = self.joined((&before, group.left), (other, group.right), group.root, widens);
            let cells = self.cells.iter_mut().filter(|cell| group.places.contains(&cell.place));
            cells.for_each(|cell| cell.value = value);
        }
        self.cells.retain_mut(|cell| {
            if named.iter().any(|group| group.places.contains(&cell.place)) {
                return true;
            }
            if let Some(spilled) = spilled.iter().find(|spilled| spilled.place == cell.place) {
                let root = Root(first + spilled.part.whole as u32);
                cell.value = Value::Symbol(Symbol { root, add: 0, bits: spilled.part.bits });
                return true;
            }
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
        self.share_from(other.shared_from);
        if widens && self.shared_from != before.shared_from {
            self.share_from(Some(i64::MIN));
        }
        *self != before
    }

    /// Removes a name from all holders except the register `number` and the cells at `places`.
    fn forget_copies(&mut self, root: Root, number: Option<usize>, places: &[Place]) {
        for at in (0..REGISTERS).filter(|&at| Some(at) != number) {
            if self.registers[at].root() == Some(root) {
                self.registers[at] = self.without_name(self.registers[at]);
            }
        }
        for at in 0..self.cells.len() {
            if self.cells[at].value.root() == Some(root) && !places.contains(&self.cells[at].place) {
                self.cells[at].value = self.without_name(self.cells[at].value);
            }
        }
        self.cells.retain(|cell| cell.place.root != Some(root));
        self.choices.retain(|choice| choice.root != root);
        if self
            .comparison
            .is_some_and(|it| [it.left, it.right].iter().any(|value| value.root() == Some(root)))
        {
            self.comparison = None;
        }
    }

    /// Gives two numbers one name, with the bounds that hold for both, for each width, and the addresses of both.
    fn joined(
        &mut self,
        (left_state, left): (&Self, Value),
        (right_state, right): (&Self, Value),
        root: Root,
        widens: bool,
    ) -> Value {
        self.limits.retain(|limit| limit.root != root);
        let addresses = left_state.addresses(left).zip(right_state.addresses(right));
        if let Some(both) = addresses.and_then(|(own, others)| own.union(others)) {
            self.choose(root, both);
        }
        for bits in [64, 32, 16, 8] {
            let of = |state: &Self, value: Value| state.bounds(truncated(value, bits));
            let (before, after) = (of(left_state, left), of(right_state, right));
            let hull = before.hull(after);
            let has_grown = (hull.least, hull.most) != (before.least, before.most);
            let hull = if widens && has_grown {
                // Upper bits that are zero stay zero.
                let width = [8, 16, 32].into_iter().find(|&width| bits == 64 && hull.most <= mask(width));
                let Some(width) = width else { continue };
                Bounds::full(width)
            } else {
                hull
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
    (left.is_of_table() || right.is_of_table()).then(|| left.either(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: usize = 7;

    fn with(registers: &[(usize, Value)]) -> State {
        let mut state = State::unknown();
        registers.iter().for_each(|&(number, value)| state.set_register(number, value));
        state
    }

    fn number(most: u64) -> Value {
        Value::Number(Bounds { least: 0, most, is_compared: true })
    }

    /// The addresses that register 3 may hold after joins of all `paths`.
    fn joined(paths: &[Value]) -> Option<Vec<u64>> {
        let mut state = with(&[(3, paths[0])]);
        paths[1..].iter().for_each(|&path| {
            state.join(&with(&[(3, path)]), PLACE, true);
        });
        state.addresses(state.register(3)).map(|addresses| addresses.iter().collect())
    }

    #[test]
    fn a_register_holds_the_address_of_one_of_the_paths() {
        let [one, two, three, four, five] = [0x4000, 0x2000, 0x3000, 0x5000, 0x6000].map(Value::constant);
        assert_eq!(joined(&[one, two, one, three]), Some(vec![0x2000, 0x3000, 0x4000]));
        assert_eq!(joined(&[one, two, three, four]), Some(vec![0x2000, 0x3000, 0x4000, 0x5000]));
        assert_eq!(joined(&[one, two, three, four, five]), None);
        // What is unknown on one path is unknown, whatever other paths bring later.
        assert_eq!(joined(&[one, Value::UNKNOWN]), None);
        assert_eq!(joined(&[Value::UNKNOWN, one, two]), None);
        assert_eq!(joined(&[one, two, Value::UNKNOWN, one]), None);
        assert_eq!(joined(&[one, two, three, four, five, one]), None);
        // A small number is no address.
        assert_eq!(joined(&[one, Value::constant(5)]), None);
    }

    fn low(root: u32, bits: u8) -> Value {
        Value::Symbol(Symbol { root: Root(root), add: 0, bits })
    }

    /// `movzwl %bp,%ebx` before a loop that compares `%bp` and reads a table with `%ebx`.
    #[test]
    fn what_is_a_part_of_another_register_on_both_paths_stays_one() {
        let mut state = with(&[(3, low(40, 16)), (5, low(40, 32))]);
        let joined = |state: &State| {
            let root = state.register(5).root();
            state.register(3) == Value::Symbol(Symbol { root: root.unwrap(), add: 0, bits: 16 })
        };
        assert!(state.join(&with(&[(3, low(41, 16)), (5, low(41, 32))]), PLACE, false) && joined(&state));
        assert!(!state.join(&with(&[(3, low(42, 16)), (5, low(42, 32))]), PLACE, false) && joined(&state));
        // What is learned of one is learned of the other.
        let mut compared = state.clone();
        let Value::Symbol(whole) = compared.register(5) else { panic!("the join gives a name") };
        assert!(compared.learn(Symbol { bits: 16, ..whole }, Interval::new(0, 8, 16)));
        assert_eq!(compared.bounds(compared.register(3)).most, 8);
        // On another path it is the part of something else; no later path makes it one again.
        assert!(state.join(&with(&[(3, low(43, 16)), (5, low(44, 32))]), PLACE, false) && !joined(&state));
        assert!(!state.join(&with(&[(3, low(42, 16)), (5, low(42, 32))]), PLACE, false) && !joined(&state));
    }

    #[test]
    fn a_pointer_that_a_loop_advances_is_unknown() {
        let mut state = with(&[(3, Value::constant(0x2000))]);
        state.join(&with(&[(3, Value::constant(0x2008))]), PLACE, false);
        let Value::Symbol(symbol) = state.register(3) else { panic!("the join gives a name") };
        let mut advanced = state.clone();
        advanced.set_register(3, Value::Symbol(Symbol { add: 8, ..symbol }));
        assert!(state.join(&advanced, PLACE, false));
        assert_eq!(state.addresses(state.register(3)), None);
    }

    #[test]
    fn a_set_is_forgotten_with_its_name() {
        let mut state = with(&[(3, Value::constant(0x2000))]);
        state.join(&with(&[(3, Value::constant(0x3000))]), PLACE, false);
        let Some(root) = state.register(3).root() else { panic!("the join gives a name") };
        assert!(state.choice(root).is_some());
        // Another path brings the same name without a set.
        let mut other = state.clone();
        other.choices.clear();
        assert!(state.join(&other, PLACE, false));
        assert_eq!(state.choice(root), None);
    }

    /// Otherwise the analysis of a function with many joins does not end within its budget.
    #[test]
    fn paths_that_bring_nothing_new_change_nothing() {
        let mut state = with(&[(1, number(7)), (2, number(9))]);
        assert!(state.join(&with(&[(1, number(5)), (2, number(3))]), PLACE, false));
        let mut again = state.clone();
        again.set_register(1, number(4));
        for path in [again, with(&[(1, number(5)), (2, number(3))])] {
            assert!(!state.join(&path, PLACE, false));
        }
    }
}
