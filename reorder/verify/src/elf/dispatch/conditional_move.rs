//! Conditional moves: joins of two values.

use super::choice::Addresses;
use super::condition::{holds, learn, opposite};
use super::operand::{RESULT, Step};
use super::state::State;
use super::value::Value;

impl Step<'_> {
    fn addresses_of_both(&self, left: Value, right: Value) -> Option<Addresses> {
        self.state.addresses(left)?.union(self.state.addresses(right)?)
    }

    /// Joins two values, each restricted by the condition.
    pub(super) fn conditional_move(&mut self) {
        let bits = self.bits(0);
        let (kept, moved) = (self.read(0), self.read(1));
        if kept == moved {
            return;
        }
        let bounds_where = |state: &State, is_moved: bool, value: Value| {
            let mut state = state.clone();
            let condition = self.instruction.condition_code();
            let condition = if is_moved { condition } else { opposite(condition) };
            if learn(&mut state, condition) { Some(state.bounds(value)) } else { None }
        };
        let value = if kept.is_of_table() || moved.is_of_table() {
            kept.either(moved)
        } else if let Some(both) = self.addresses_of_both(kept, moved).filter(|_| bits == 64) {
            let bounds = self.state.bounds(kept).hull(self.state.bounds(moved));
            let symbol = self.state.name(bounds, self.position, RESULT);
            self.state.choose(symbol.root, both);
            Value::Symbol(symbol)
        } else if bits >= 32 && holds(self.state) {
            match (bounds_where(self.state, false, kept), bounds_where(self.state, true, moved)) {
                (Some(kept), Some(moved)) => Value::Number(kept.hull(moved)),
                (Some(only), None) | (None, Some(only)) => Value::Number(only),
                (None, None) => Value::UNKNOWN,
            }
        } else {
            Value::Number(self.state.bounds(kept).hull(self.state.bounds(moved)))
        };
        self.write(0, value);
    }
}
