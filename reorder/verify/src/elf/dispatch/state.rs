//! What is known at one place of a function: registers, stack slots, names, and the last comparison.

use iced_x86::Register;

use super::choice::Choice;
use super::formed::RegisterSet;
use super::interval::{Interval, mask};
use super::value::{Bounds, Root, Symbol, Value};

/// General registers, by their number in instructions.
pub(super) const REGISTERS: usize = 16;
/// The number of RSP.
pub(super) const STACK_POINTER: usize = 4;
/// The number of RBP.
pub(super) const FRAME_POINTER: usize = 5;
/// The root of the value of RSP at the start of the function; for other registers the root is the register's number.
pub(super) const STACK: Root = Root(STACK_POINTER as u32);
/// Roots from here on belong to instructions.
const FIRST_OWN_ROOT: u32 = 16;
/// Roots of one instruction: those of its operands and of its result.
const ROOTS_EACH: u32 = 8;
/// Numbers of 64 bits that are the sign extension of 32.
const SIGNED: Interval = Interval::signed();
/// No image has code or data below this address.
pub(super) const MIN_ADDRESS: u64 = 0x1000;
/// Places in memory that are remembered. More would make joins of large functions slow.
const MAX_CELLS: usize = 64;
/// Bounds that are remembered.
const MAX_LIMITS: usize = 64;

/// Bytes at a distance from the value of a root; without a root, at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) root: Option<Root>,
    pub(super) displacement: u64,
    pub(super) size: u64,
}

impl Place {
    fn overlaps(self, other: Self) -> bool {
        let ahead = other.displacement.wrapping_sub(self.displacement);
        ahead < self.size || ahead.wrapping_neg() < other.size
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) place: Place,
    pub(super) value: Value,
}

impl Cell {
    /// Whether the compiler saved an address here: no other value is written to such a slot, unless it is a field of a variable
    /// whose address is known elsewhere. Compilers place what they save below all variables.
    fn is_spilled_address(&self, shared_from: Option<i64>) -> bool {
        let end = self.place.displacement.cast_signed().saturating_add(self.place.size.cast_signed());
        let is_shared = shared_from.is_some_and(|first| end > first);
        !(is_shared && self.place.root == Some(STACK))
            && self.place.size == 8
            && self.value.as_constant().is_some_and(|value| value >= MIN_ADDRESS)
    }
}

/// What is known of the lowest bits of a root from comparisons and widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) root: Root,
    pub(super) interval: Interval,
    pub(super) is_compared: bool,
}

/// Two values that were compared in `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) left: Value,
    pub(super) right: Value,
    pub(super) bits: u8,
    /// The flags only say whether these bits of the left one are zero.
    pub(super) zero_of: Option<u64>,
    /// The place in memory that was compared.
    pub(super) place: Option<Place>,
}

/// All that is known at a place. Each further way that leads there can only reduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) registers: [Value; REGISTERS],
    pub(super) cells: Vec<Cell>,
    /// Ascending by root and width, so that states that know the same are equal.
    pub(super) limits: Vec<Limit>,
    /// Ascending by root.
    pub(super) choices: Vec<Choice>,
    pub(super) comparison: Option<Comparison>,
    /// Where the lowest variable of the frame begins whose address other code may know, as a distance from the stack pointer at
    /// the start of the function. Other code may write there.
    pub(super) shared_from: Option<i64>,
}

impl State {
    /// The state where control may arrive from anywhere.
    pub(super) fn unknown() -> Self {
        let mut registers = [Value::UNKNOWN; REGISTERS];
        for (number, value) in registers.iter_mut().enumerate() {
            *value = Value::Symbol(Symbol { root: Root(number as u32), add: 0, bits: 64 });
        }
        Self {
            registers,
            cells: Vec::new(),
            limits: Vec::new(),
            choices: Vec::new(),
            comparison: None,
            shared_from: None,
        }
    }

    pub(super) fn register(&self, number: usize) -> Value {
        self.registers[number]
    }

    pub(super) fn set_register(&mut self, number: usize, value: Value) {
        if let Value::Symbol(Symbol { root: STACK, bits: 64, add }) = value
            && number != STACK_POINTER
            && number != FRAME_POINTER
        {
            self.share_from(Some(add.cast_signed()));
        }
        self.registers[number] = value;
    }

    /// Lets other code know the frame from `first` on.
    pub(super) fn share_from(&mut self, first: Option<i64>) {
        self.shared_from = match (self.shared_from, first) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// The value that an instruction finds in a register, with a name, so that its copies are recognised.
    pub(super) fn named_register(&mut self, number: usize, instruction: usize, slot: u32) -> Value {
        let value = self.registers[number];
        let Value::Number(bounds) = value else { return value };
        if bounds.as_constant().is_some() {
            return value;
        }
        let named = Value::Symbol(self.name(bounds, instruction, slot));
        self.registers[number] = named;
        named
    }

    /// A new name for a number that the instruction makes or finds.
    pub(super) fn name(&mut self, bounds: Bounds, instruction: usize, slot: u32) -> Symbol {
        let root =
            Root(FIRST_OWN_ROOT.saturating_add((instruction as u32).saturating_mul(ROOTS_EACH)) + slot);
        self.forget(root);
        self.limit(root, bounds.interval(), bounds.is_compared);
        Symbol { root, add: 0, bits: 64 }
    }

    /// A new name for the sign extension of 32 bits.
    pub(super) fn name_signed(&mut self, instruction: usize, slot: u32) -> Symbol {
        let symbol = self.name(Bounds::full(64), instruction, slot);
        self.limit(symbol.root, SIGNED, false);
        symbol
    }

    /// Removes the name `root`: its current holders hold an earlier number than the one that gets the name now.
    fn forget(&mut self, root: Root) {
        for number in 0..REGISTERS {
            if self.registers[number].root() == Some(root) {
                self.registers[number] = self.without_name(self.registers[number]);
            }
        }
        for at in 0..self.cells.len() {
            if self.cells[at].value.root() == Some(root) {
                self.cells[at].value = self.without_name(self.cells[at].value);
            }
        }
        self.cells.retain(|cell| cell.place.root != Some(root));
        self.limits.retain(|limit| limit.root != root);
        self.choices.retain(|choice| choice.root != root);
        let is_compared = |comparison: &Comparison| {
            [comparison.left, comparison.right].iter().any(|v| v.root() == Some(root))
        };
        if self.comparison.as_ref().is_some_and(is_compared) {
            self.comparison = None;
        }
    }

    pub(super) fn without_name(&self, value: Value) -> Value {
        match value {
            Value::Symbol(symbol) => Value::Number(self.bounds_of(symbol)),
            Value::Element { .. } => Value::UNKNOWN,
            Value::Word { base: Some(_), word } => {
                Value::PerhapsWord { index: word.index, is_half: word.width == 4 && !word.is_extended }
            }
            Value::Sum { base: Some(_), word, .. } => {
                Value::PerhapsSum { index: word.index, is_from_anywhere: false }
            }
            other => other,
        }
    }

    /// Whether nothing is known of a number.
    pub(super) fn is_unbounded(&self, value: Value) -> bool {
        let is_number = matches!(value, Value::Number(_) | Value::Symbol(_));
        let bounds = self.bounds(value);
        is_number && (bounds.least, bounds.most) == (0, u64::MAX)
    }

    /// Bounds of a value as a number of 64 bits.
    pub(super) fn bounds(&self, value: Value) -> Bounds {
        match value {
            Value::Number(bounds) => bounds,
            Value::Symbol(symbol) => self.bounds_of(symbol),
            _ => Bounds::full(64),
        }
    }

    /// Bounds of a symbol's value, from what is known of as many bits, of more, and of fewer if the rest is zero.
    pub(super) fn bounds_of(&self, symbol: Symbol) -> Bounds {
        let mut bounds = Bounds::full(symbol.bits);
        let mut is_signed = false;
        for width in [64, 32, 16, 8] {
            let Some(limit) =
                self.limits.iter().find(|limit| limit.root == symbol.root && limit.interval.bits() == width)
            else {
                continue;
            };
            let (mut least, mut most) = limit.interval.shifted(symbol.add).bounds();
            // Numbers with one upper part have the order of their lower parts.
            if width > symbol.bits && least >> symbol.bits == most >> symbol.bits {
                (least, most) = (least & mask(symbol.bits), most & mask(symbol.bits));
            }
            is_signed |= limit.interval == SIGNED && symbol.add == 0;
            // For the sign extension of the lower half, that half determines the number if it is positive.
            let is_positive = is_signed && width == 32 && most <= mask(31);
            let holds = if width >= symbol.bits {
                most <= mask(symbol.bits)
            } else {
                bounds.most <= mask(width) || is_positive
            };
            if !holds {
                continue;
            }
            bounds.least = bounds.least.max(least);
            if most <= bounds.most {
                bounds.is_compared = limit.is_compared || (bounds.is_compared && most == bounds.most);
                bounds.most = most;
            }
        }
        if bounds.least > bounds.most { Bounds::full(symbol.bits) } else { bounds }
    }

    pub(super) fn limit(&mut self, root: Root, interval: Interval, is_compared: bool) {
        if interval.is_full() {
            return;
        }
        if self.limits.len() >= MAX_LIMITS {
            let used = self.used_names();
            self.limits.retain(|limit| used.contains(&limit.root));
        }
        if self.limits.len() < MAX_LIMITS {
            let key = (root, interval.bits());
            let at = self.limits.partition_point(|limit| (limit.root, limit.interval.bits()) < key);
            self.limits.insert(at, Limit { root, interval, is_compared });
        }
    }

    pub(super) fn used_names(&self) -> Vec<Root> {
        let values = self.registers.iter().chain(self.cells.iter().map(|cell| &cell.value));
        values.filter_map(|value| value.root()).collect()
    }

    /// Learns that the symbol, in `interval.bits()` bits, is one of these numbers; `false` when it never is.
    pub(super) fn learn(&mut self, symbol: Symbol, interval: Interval) -> bool {
        let bits = interval.bits();
        // If the symbol has fewer bits than are compared, its upper bits are zero, so the number is the same.
        let (bits, interval) = if symbol.bits < bits {
            let Some(met) = interval.meet(Interval::new(0, mask(symbol.bits), bits)) else { return false };
            let (least, most) = met.bounds();
            (symbol.bits, Interval::new(least, most.min(mask(symbol.bits)), symbol.bits))
        } else {
            (bits, interval)
        };
        let viewed = Symbol { bits, ..symbol };
        let before = self.bounds_of(viewed);
        let Some(met) = Interval::new(before.least, before.most, bits).meet(interval) else { return false };
        let most = met.bounds().1;
        let is_bound = most == interval.bounds().1 && most < mask(bits) && most != mask(bits) >> 1;
        let is_compared = is_bound || before.is_compared && most == before.most;
        let learned = met.shifted(symbol.add.wrapping_neg());
        self.limits.retain(|limit| limit.root != symbol.root || limit.interval.bits() != bits);
        self.limit(symbol.root, learned, is_compared);
        true
    }

    /// The remembered value of `place`.
    pub(super) fn load(&self, place: Place) -> Option<Value> {
        self.cells.iter().find(|cell| cell.place == place).map(|cell| cell.value)
    }

    /// Remembers what was found in memory.
    pub(super) fn remember(&mut self, place: Place, value: Value) {
        self.cells.retain(|cell| cell.place != place);
        if self.cells.len() >= MAX_CELLS {
            // Addresses of tables are the most valuable.
            let oldest = self.cells.iter().position(|cell| cell.value.as_constant().is_none()).unwrap_or(0);
            self.cells.remove(oldest);
        }
        self.cells.push(Cell { place, value });
    }

    /// Forgets what a write may have overwritten.
    pub(super) fn store(&mut self, place: Option<Place>, value: Value) {
        let is_frame = place.is_some_and(|place| place.root == Some(STACK));
        let shared_from = self.shared_from;
        // Compilers read a compared place again only if they know that it was not written in between.
        let compared = self.comparison.and_then(|comparison| comparison.place);
        self.cells.retain(|cell| match place {
            Some(place) if place.root == cell.place.root => !place.overlaps(cell.place),
            _ if compared == Some(cell.place) => true,
            _ if cell.place.root == Some(STACK) => {
                shared_from.is_none() || cell.is_spilled_address(shared_from)
            }
            _ => is_frame && shared_from.is_none(),
        });
        if let Some(place) = place {
            self.remember(place, value);
        }
    }

    /// Keeps what remains after a call: the registers that the convention preserves, those in `kept`, and the frame above
    /// the stack pointer if no other code knows where the frame is.
    pub(super) fn call(&mut self, kept: RegisterSet) {
        const KEPT: [usize; 7] = [3, 4, 5, 12, 13, 14, 15];
        for number in (0..REGISTERS).filter(|number| !KEPT.contains(number) && kept >> number & 1 == 0) {
            self.registers[number] = Value::UNKNOWN;
        }
        let Value::Symbol(Symbol { root: STACK, add: top, bits: 64 }) = self.registers[STACK_POINTER] else {
            self.cells.retain(|cell| cell.is_spilled_address(self.shared_from));
            self.comparison = None;
            return;
        };
        let shared_from = self.shared_from;
        self.cells.retain(|cell| {
            let is_above = cell.place.displacement.wrapping_sub(top) as i64 >= 0;
            cell.place.root == Some(STACK)
                && is_above
                && (shared_from.is_none() || cell.is_spilled_address(shared_from))
        });
        self.comparison = None;
    }
}

/// The number of the general register that `register` is a part of.
pub(crate) fn number_of(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_may_write_variables_whose_address_is_known_but_not_what_lies_below_them() {
        const NAME: Value = Value::Number(Bounds { least: 0x4000, most: 0x4000, is_compared: true });
        let frame = |displacement: i64| Symbol { root: STACK, add: displacement.cast_unsigned(), bits: 64 };
        let slot = |displacement: i64| Place {
            root: Some(STACK),
            displacement: displacement.cast_unsigned(),
            size: 8,
        };
        let mut state = State::unknown();
        state.set_register(STACK_POINTER, Value::Symbol(frame(-64)));
        state.remember(slot(-48), NAME);
        state.remember(slot(-32), NAME);
        state.call(0);
        assert_eq!((state.load(slot(-48)), state.load(slot(-32))), (Some(NAME), Some(NAME)));
        // lea rdi, [rsp + 32]
        state.set_register(7, Value::Symbol(frame(-32)));
        state.call(0);
        assert_eq!((state.load(slot(-48)), state.load(slot(-32))), (Some(NAME), None));
    }
}
