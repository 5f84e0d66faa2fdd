//! Sums, above all those of words of tables and addresses.

use super::interval::mask;
use super::operand::{RESULT, Step};
use super::state::State;
use super::value::{Bounds, Root, Symbol, Value, Word};

impl Step<'_> {
    /// The sum of two values in `bits` bits.
    pub(super) fn sum(&mut self, left: Value, right: Value, bits: u8) -> Value {
        let (left, right) = if left.as_constant().is_some() { (right, left) } else { (left, right) };
        match (left, right.as_constant()) {
            (_, Some(0)) => left,
            (Value::Number(bounds), Some(add)) if bounds.as_constant().is_some() => {
                Value::constant(bounds.least.wrapping_add(add) & mask(bits))
            }
            (Value::Symbol(symbol), Some(add)) => {
                let symbol = if symbol.bits >= bits {
                    symbol
                } else {
                    let bounds = self.state.bounds_of(symbol);
                    self.state.name(bounds, self.position, RESULT)
                };
                Value::Symbol(Symbol { add: symbol.add.wrapping_add(add), bits, ..symbol })
            }
            (Value::Element { table, of, shift }, Some(add)) => {
                Value::Element { table: table.wrapping_add(add), of, shift }
            }
            (Value::Word { base: None, word }, Some(anchor)) if word.is_extended && bits == 64 => {
                Value::Sum { base: None, anchor, word }
            }
            _ if bits == 64 && counted_from_base(left, right).is_some() => {
                counted_from_base(left, right).unwrap_or(Value::UNKNOWN)
            }
            _ if counts_from_itself(left, right) || counts_from_itself(right, left) => Value::UNKNOWN,
            (left, _) if left.is_of_table() => self.perhaps_sum(left, right),
            _ if right.is_of_table() => self.perhaps_sum(right, left),
            _ => {
                let (one, other) = (self.state.bounds(left), self.state.bounds(right));
                match one.most.checked_add(other.most).filter(|most| *most <= mask(bits)) {
                    Some(most) => {
                        let least = one.least.saturating_add(other.least);
                        Value::Number(Bounds { least, most, is_compared: false })
                    }
                    None => Value::Number(Bounds::full(bits)),
                }
            }
        }
    }

    /// A sum of which one part depends on a word. A word of an unknown table mostly counts from that table.
    fn perhaps_sum(&self, of_word: Value, other: Value) -> Value {
        let is_known = matches!(of_word, Value::Word { .. });
        let is_from_anywhere = of_word.is_from_anywhere() || is_known && self.state.is_unbounded(other);
        Value::PerhapsSum { index: of_word.index(), is_from_anywhere }
    }
}

/// The addresses and words that a sum may consist of: one, or one for each address that the number with the name `base` may
/// be. None if those are not known.
pub(super) fn counted(state: &State, base: Option<Root>, anchor: u64, word: Word) -> Vec<(u64, Word)> {
    let Some(base) = base else { return vec![(anchor, word)] };
    let addresses = state.choice(base);
    let from = |address: u64| {
        (anchor.wrapping_add(address), Word { table: word.table.wrapping_add(address), ..word })
    };
    addresses.iter().flat_map(|addresses| addresses.iter()).map(from).collect()
}

/// The sum of a word and the address that its table is counted from, which is one of several.
fn counted_from_base(left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::Word { base: Some(base), word }, Value::Symbol(Symbol { root, add, bits: 64 }))
        | (Value::Symbol(Symbol { root, add, bits: 64 }), Value::Word { base: Some(base), word })
            if root == base && word.is_extended =>
        {
            Some(Value::Sum { base: Some(base), anchor: add, word })
        }
        _ => None,
    }
}

/// Whether `word` was read from a table and is added to its own address, `element`: then the table's words have no common
/// anchor.
fn counts_from_itself(word: Value, element: Value) -> bool {
    let Value::Element { table, shift: 2, .. } = element else { return false };
    match word {
        Value::Word { base: None, word } => word.width == 4 && word.table == table,
        Value::Sum { base: None, anchor, word } => {
            word.width == 4 && word.table == anchor.wrapping_add(table)
        }
        _ => false,
    }
}
