//! Operands of an instruction: where they are, their values, and the effect of writing them.

use iced_x86::{Instruction, OpKind, Register};

use super::interval::{Interval, mask};
use super::state::{MIN_ADDRESS, Place, State, number_of};
use super::value::{Bounds, Root, Symbol, Value, Word};

/// Roots of one instruction, by the value that they name.
pub(super) const RESULT: u32 = 0;
const BASE: u32 = 1;
const INDEX: u32 = 2;
const FIRST_OPERAND: u32 = 3;
const SECOND_OPERAND: u32 = 4;
const IN_MEMORY: u32 = 5;
const WHOLE: u32 = 6;

/// One instruction applied to the state before it.
pub(super) struct Step<'a> {
    pub(super) state: &'a mut State,
    pub(super) instruction: &'a Instruction,
    /// The instruction's position in the region.
    pub(super) position: usize,
    /// The last word that was read from a table, and the name that the table is counted from.
    pub(super) read: Option<(Option<Root>, Word)>,
}

/// An address in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Place {
        root: Option<Root>,
        displacement: u64,
    },
    Element {
        /// The name that `table` is counted from.
        base: Option<Root>,
        table: u64,
        of: Symbol,
        shift: u8,
    },
    /// An element of an unknown table, of two to the power of `shift` bytes.
    PerhapsElement {
        index: Bounds,
        shift: u8,
    },
    Unknown,
}

impl Step<'_> {
    /// Width of an operand in bits.
    pub(super) fn bits(&self, operand: u32) -> u8 {
        match self.instruction.op_kind(operand) {
            OpKind::Register => (self.instruction.op_register(operand).size() * 8).min(255) as u8,
            OpKind::Memory => (self.instruction.memory_size().size() * 8).min(255) as u8,
            _ => 64,
        }
    }

    /// The value of an operand in its width, zero-extended.
    pub(super) fn read(&mut self, operand: u32) -> Value {
        let instruction = self.instruction;
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                self.read_register(register, if operand == 0 { FIRST_OPERAND } else { SECOND_OPERAND })
            }
            OpKind::Memory => self.load(self.bits(operand)),
            _ => instruction.try_immediate(operand).map_or(Value::UNKNOWN, Value::constant),
        }
    }

    fn read_register(&mut self, register: Register, slot: u32) -> Value {
        let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        match number_of(register).filter(|_| !is_high) {
            Some(number) => {
                let value = self.state.named_register(number, self.position, slot);
                self.truncated(value, (register.size() * 8) as u8)
            }
            None => Value::Number(Bounds::full(if is_high { 8 } else { 64 })),
        }
    }

    /// The lowest `bits` bits of a value.
    pub(super) fn truncated(&self, value: Value, bits: u8) -> Value {
        match value {
            _ if bits >= 64 => value,
            Value::Symbol(symbol) => Value::Symbol(Symbol { bits: symbol.bits.min(bits), ..symbol }),
            Value::Number(bounds) => match bounds.as_constant() {
                Some(constant) => Value::constant(constant & mask(bits)),
                None if bounds.most <= mask(bits) => value,
                None => Value::Number(Bounds::full(bits)),
            },
            Value::Word { base, word } if bits == 32 && word.width == 4 => {
                Value::Word { base, word: Word { is_extended: false, ..word } }
            }
            Value::PerhapsWord { index, .. } if bits == 32 => Value::PerhapsWord { index, is_half: true },
            _ => Value::Number(Bounds::full(bits)),
        }
    }

    /// The memory operand's address.
    fn spot(&mut self) -> Spot {
        let instruction = self.instruction;
        if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
            return Spot::Unknown;
        }
        if instruction.is_ip_rel_memory_operand() {
            return Spot::Place { root: None, displacement: instruction.ip_rel_memory_address() };
        }
        let displacement = instruction.memory_displacement64();
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let base = (base != Register::None).then(|| self.read_register(base, BASE));
        let index = (index != Register::None).then(|| self.read_register(index, INDEX));
        let shift = instruction.memory_index_scale().trailing_zeros() as u8;
        let base = base.unwrap_or(Value::constant(0));
        let Some(index) = index else { return spot_of(base, displacement) };
        match (self.origin(base), index) {
            // A copy of a jump for the first round of a loop reads a fixed word, but its table is the one that every round
            // reads.
            (Some((name, origin)), index)
                if shift >= 2
                    && (name.is_some() || origin >= MIN_ADDRESS)
                    && index.as_constant().is_some_and(|it| it < MIN_ADDRESS) =>
            {
                let table = origin.wrapping_add(displacement);
                let bounds = self.state.bounds(index);
                let of = self.state.name(bounds, self.position, INDEX);
                Spot::Element { base: name, table, of, shift }
            }
            (_, index) if index.as_constant().is_some() => {
                let offset = index.as_constant().unwrap_or_default() << shift;
                spot_of(base, displacement.wrapping_add(offset))
            }
            (Some((name, origin)), Value::Symbol(of)) if shift >= 2 => {
                Spot::Element { base: name, table: origin.wrapping_add(displacement), of, shift }
            }
            (Some((name, origin)), Value::Element { table, of, shift: own }) if shift == 0 => {
                let table = table.wrapping_add(origin).wrapping_add(displacement);
                Spot::Element { base: name, table, of, shift: own }
            }
            // Elements of two or four bytes of an unknown table, and sums that may be the address of one.
            (_, Value::Element { of, shift, .. }) => {
                Spot::PerhapsElement { index: self.state.bounds_of(of), shift }
            }
            _ if let Value::Element { of, shift, .. } = base => {
                Spot::PerhapsElement { index: self.state.bounds_of(of), shift }
            }
            (_, index) if shift >= 2 => Spot::PerhapsElement { index: self.state.bounds(index), shift },
            _ => Spot::Unknown,
        }
    }

    /// The address that a base register holds, as a distance from a name if it is one of several.
    fn origin(&self, base: Value) -> Option<(Option<Root>, u64)> {
        match base {
            Value::Symbol(Symbol { root, add, bits: 64 }) if self.state.choice(root).is_some() => {
                Some((Some(root), add))
            }
            _ => base.as_constant().map(|origin| (None, origin)),
        }
    }

    /// Words of tables are only added to addresses. A value that the instruction compares, masks or adds a constant to is
    /// therefore an ordinary number, even if it was read from a table.
    pub(super) fn settle(&mut self, operand: u32) {
        if self.instruction.op_kind(operand) == OpKind::Register
            && let Some(number) = number_of(self.instruction.op_register(operand))
            && let value @ (Value::Word { .. } | Value::PerhapsWord { .. }) = self.state.register(number)
        {
            // Loads of four bytes clear the upper half, unless they extend the sign.
            let is_half = matches!(
                value,
                Value::Word { word: Word { width: 4, is_extended: false, .. }, .. }
                    | Value::PerhapsWord { is_half: true, .. }
            );
            let number_in = Value::Number(Bounds::full(if is_half { 32 } else { 64 }));
            self.state.set_register(number, number_in);
        }
    }

    /// The memory operand, if its place is known.
    pub(super) fn place(&mut self, bits: u8) -> Option<Place> {
        match self.spot() {
            Spot::Place { root, displacement } => {
                Some(Place { root, displacement, size: u64::from(bits / 8) })
            }
            _ => None,
        }
    }

    /// The value of the memory operand, which is remembered from then on.
    fn load(&mut self, bits: u8) -> Value {
        match self.spot() {
            Spot::Place { root, displacement } => {
                let place = Place { root, displacement, size: u64::from(bits / 8) };
                // If a small constant is read back, the compiler did not know it was constant, or it would have used it
                // directly. Its table is therefore written for all numbers.
                let stored = self.state.load(place);
                match stored.filter(|value| value.as_constant().is_none_or(|it| it >= MIN_ADDRESS)) {
                    Some(value) if !is_nameless(value) => value,
                    known => {
                        let bounds =
                            known.map_or(Bounds::full(bits.min(64)), |value| self.state.bounds(value));
                        let value = Value::Symbol(self.state.name(bounds, self.position, IN_MEMORY));
                        // Other places with the same constant hold this number too.
                        if let Some(stored) = stored.filter(|stored| stored.as_constant().is_some()) {
                            let same = self.state.cells.iter_mut().filter(|cell| cell.value == stored);
                            same.for_each(|cell| cell.value = value);
                        }
                        self.state.remember(place, value);
                        value
                    }
                }
            }
            Spot::Element { base, table, of, shift }
                if (shift, bits) == (2, 32) || (shift, bits) == (3, 64) =>
            {
                let index = self.state.bounds_of(of);
                let word = Word { table, width: bits / 8, index, is_extended: bits == 64 };
                self.read = Some((base, word));
                Value::Word { base, word }
            }
            Spot::PerhapsElement { index, shift } if (shift, bits) == (2, 32) || (shift, bits) == (3, 64) => {
                Value::PerhapsWord { index, is_half: bits == 32 }
            }
            _ => Value::Symbol(self.state.name(Bounds::full(bits.min(64)), self.position, IN_MEMORY)),
        }
    }

    /// The address that LEA computes.
    pub(super) fn address(&mut self) -> Value {
        let instruction = self.instruction;
        if instruction.is_ip_rel_memory_operand() {
            return Value::constant(instruction.ip_rel_memory_address());
        }
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = Value::constant(instruction.memory_displacement64());
        let mut sum = displacement;
        if base != Register::None {
            let base = self.read_register(base, BASE);
            sum = self.sum(base, sum, 64);
        }
        if index != Register::None {
            let index = self.read_register(index, INDEX);
            let shift = instruction.memory_index_scale().trailing_zeros() as u8;
            let scaled = self.scaled(index, shift);
            sum = self.sum(sum, scaled, 64);
        }
        sum
    }

    /// A value times two to the power of `shift`.
    pub(super) fn scaled(&self, value: Value, shift: u8) -> Value {
        match value {
            _ if shift == 0 => value,
            Value::Symbol(of) if (2..=3).contains(&shift) => Value::Element { table: 0, of, shift },
            _ => {
                let bounds = self.state.bounds(value);
                let fits = bounds.most.leading_zeros() >= u32::from(shift);
                let scaled = Bounds {
                    least: bounds.least << (shift & 63),
                    most: bounds.most << (shift & 63),
                    is_compared: false,
                };
                if fits { Value::Number(scaled) } else { Value::UNKNOWN }
            }
        }
    }

    /// Writes an operand of `bits` bits.
    pub(super) fn write(&mut self, operand: u32, value: Value) {
        let bits = self.bits(operand);
        match self.instruction.op_kind(operand) {
            OpKind::Register => self.write_register(self.instruction.op_register(operand), value),
            OpKind::Memory => {
                let place = self.place(bits);
                // Words that are stored for a later jump are stored sign-extended to 64 bits; a narrower store is of another
                // number.
                let is_number = bits < 64 && matches!(value, Value::Word { .. } | Value::PerhapsWord { .. });
                self.state.store(place, if is_number { Value::Number(Bounds::full(bits)) } else { value });
            }
            _ => {}
        }
    }

    pub(super) fn write_register(&mut self, register: Register, value: Value) {
        let Some(number) = number_of(register) else { return };
        let bits = (register.size() * 8) as u8;
        let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        if bits >= 32 {
            self.state.set_register(number, self.truncated(value, bits));
        } else if !is_high && self.state.bounds(self.state.register(number)).most <= mask(bits) {
            // The upper bits are already zero.
            self.state.set_register(number, self.truncated(value, bits));
        } else {
            let bounds = self.state.bounds(self.truncated(value, bits));
            let symbol = self.state.name(Bounds::full(64), self.position, WHOLE);
            if !is_high {
                self.state.learn(Symbol { bits, ..symbol }, Interval::new(bounds.least, bounds.most, bits));
            }
            self.state.set_register(number, Value::Symbol(symbol));
        }
    }
}

fn is_nameless(value: Value) -> bool {
    matches!(value, Value::Number(bounds) if bounds.as_constant().is_none())
}

/// The address `base` plus `displacement`.
fn spot_of(base: Value, displacement: u64) -> Spot {
    match base {
        Value::Symbol(Symbol { root, add, bits: 64 }) => {
            Spot::Place { root: Some(root), displacement: add.wrapping_add(displacement) }
        }
        Value::Element { table, of, shift } => {
            Spot::Element { base: None, table: table.wrapping_add(displacement), of, shift }
        }
        _ => match base.as_constant() {
            Some(address) => Spot::Place { root: None, displacement: address.wrapping_add(displacement) },
            None => Spot::Unknown,
        },
    }
}
