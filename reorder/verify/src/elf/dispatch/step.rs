//! The effect of one instruction on the state: exact for the forms that compilers use to get from an index to a jump. Any
//! other instruction only makes what it writes unknown.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::condition::{is_conditional_move, is_set};
use super::interval::mask;
use super::operand::Step;
use super::state::{Comparison, FRAME_POINTER, Place, STACK_POINTER, State, number_of};
use super::sums::counted;
use super::value::{Bounds, Symbol, Value, Word};

/// Bytes of a slot of the stack.
const SLOT: u64 = 8;

/// Applies `instruction` to `state`, without control flow; gives the words of tables of which it read one.
pub(super) fn step(
    state: &mut State,
    instruction: &Instruction,
    position: usize,
    factory: &mut InstructionInfoFactory,
) -> Vec<Word> {
    let mut step = Step { state, instruction, position, read: None };
    if !step.known(instruction.mnemonic()) {
        step.other(factory);
    }
    let read = step.read;
    read.map_or_else(Vec::new, |(base, word)| {
        counted(state, base, 0, word).into_iter().map(|(_, word)| word).collect()
    })
}

/// The target of a jump or call through a register or memory.
pub(super) fn operand(state: &mut State, instruction: &Instruction, position: usize) -> Value {
    Step { state, instruction, position, read: None }.read(0)
}

/// Pushes the return address of a call.
pub(super) fn push(state: &mut State, call: &Instruction) {
    Step { state, instruction: call, position: 0, read: None }.push(Value::constant(call.next_ip()));
}

impl Step<'_> {
    /// The forms that are understood; `false` for any other.
    fn known(&mut self, mnemonic: Mnemonic) -> bool {
        let instruction = self.instruction;
        let is_same = instruction.op_count() >= 2
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        let is_general = instruction.op_count() == 0
            || instruction.op0_kind() != OpKind::Register
            || number_of(instruction.op0_register()).is_some();
        if !is_general {
            return false;
        }
        match mnemonic {
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Pause | Mnemonic::Lfence => {}
            Mnemonic::Mov
                if instruction.op1_kind() != OpKind::Register
                    || number_of(instruction.op1_register()).is_some() =>
            {
                let value = self.read(1);
                self.write(0, value);
            }
            Mnemonic::Movzx => {
                let value = self.read(1);
                self.write(0, value);
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let (from, to) = (self.bits(1), self.bits(0));
                let value = self.read(1);
                let value = self.sign_extended(value, from, to);
                self.write(0, value);
            }
            Mnemonic::Cdqe => {
                let value = self.state.named_register(0, self.position, 3);
                let value = self.truncated(value, 32);
                let value = self.sign_extended(value, 32, 64);
                self.state.set_register(0, value);
            }
            Mnemonic::Lea => {
                let value = self.address();
                self.write(0, value);
            }
            Mnemonic::Xor | Mnemonic::Sub if is_same => {
                self.write(0, Value::constant(0));
                self.state.comparison = None;
            }
            Mnemonic::Add | Mnemonic::Inc => self.add(if mnemonic == Mnemonic::Inc { Some(1) } else { None }),
            Mnemonic::Sub | Mnemonic::Dec => self.subtract(mnemonic == Mnemonic::Dec),
            Mnemonic::Cmp => {
                // A zero word may be skipped.
                if !matches!(instruction.try_immediate(1), Ok(0)) {
                    self.settle(0);
                    self.settle(1);
                }
                let bits = self.bits(0);
                let (left, right) = (self.read(0), self.read(1));
                let (left, right) = (self.truncated(left, bits), self.truncated(right, bits));
                let place = (0..2).find(|operand| instruction.op_kind(*operand) == OpKind::Memory);
                let place = place.and_then(|_| self.place(bits));
                self.state.comparison = Some(Comparison { left, right, bits, zero_of: None, place });
            }
            Mnemonic::Test => self.test(is_same),
            Mnemonic::And => self.and(),
            Mnemonic::Shl | Mnemonic::Shr if instruction.op1_kind() == OpKind::Immediate8 => {
                self.shift(mnemonic == Mnemonic::Shl);
            }
            Mnemonic::Push => {
                let value =
                    if instruction.op0_kind() == OpKind::Register { self.read(0) } else { Value::UNKNOWN };
                self.push(value);
            }
            Mnemonic::Pop if instruction.op0_kind() == OpKind::Register => self.pop(),
            Mnemonic::Leave => {
                let frame = self.state.register(FRAME_POINTER);
                self.state.set_register(STACK_POINTER, frame);
                self.state.set_register(FRAME_POINTER, Value::UNKNOWN);
                self.move_stack(SLOT);
            }
            _ if is_conditional_move(mnemonic) => self.conditional_move(),
            _ if instruction.op_count() == 1 && is_set(mnemonic) => {
                self.write(0, Value::Number(Bounds { least: 0, most: 1, is_compared: false }));
            }
            _ => return false,
        }
        true
    }

    /// Makes unknown whatever else the instruction writes.
    fn other(&mut self, factory: &mut InstructionInfoFactory) {
        let instruction = self.instruction;
        if instruction.rflags_modified() != 0 {
            self.state.comparison = None;
        }
        // Vector instructions without results elsewhere are skipped early: they are frequent, and looking up their registers
        // is slow.
        let is_vector = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_vector_register()
            && instruction.rflags_modified() == 0;
        if is_vector {
            return;
        }
        let info = factory.info(instruction);
        let is_written = |access: OpAccess| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let registers: Vec<Register> = info
            .used_registers()
            .iter()
            .filter(|used| is_written(used.access()))
            .map(iced_x86::UsedRegister::register)
            .collect();
        let writes_memory = info.used_memory().iter().any(|used| is_written(used.access()));
        let has_plain_operand = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory;
        if writes_memory && has_plain_operand && self.bits(0) > 0 {
            self.write(0, Value::UNKNOWN);
        } else if writes_memory {
            self.state.store(None, Value::UNKNOWN);
        }
        for register in registers {
            let bits = (register.size() * 8).min(64) as u8;
            self.write_register(register, Value::Number(Bounds::full(bits)));
        }
    }

    fn sign_extended(&mut self, value: Value, from: u8, to: u8) -> Value {
        match value {
            Value::Word { base, word } if from == 32 && word.width == 4 => {
                Value::Word { base, word: Word { is_extended: to == 64, ..word } }
            }
            Value::PerhapsWord { index, .. } => Value::PerhapsWord { index, is_half: false },
            value if self.state.bounds(value).most <= mask(from) >> 1 => value,
            _ if (from, to) == (32, 64) => {
                // Earlier comparisons of the lower half still hold.
                let bounds = self.state.bounds(value);
                let symbol = self.state.name_signed(self.position, 0);
                let half = Symbol { bits: 32, ..symbol };
                self.state.learn(half, super::interval::Interval::new(bounds.least, bounds.most, 32));
                Value::Symbol(symbol)
            }
            _ => Value::Number(Bounds::full(to)),
        }
    }

    fn add(&mut self, constant: Option<u64>) {
        let bits = self.bits(0);
        if constant.is_some() || self.instruction.op1_kind() != OpKind::Register {
            self.settle(0);
        }
        let left = self.read(0);
        let right = constant.map_or_else(|| self.read(1), Value::constant);
        let sum = self.sum(left, right, bits);
        self.write(0, sum);
        self.result(sum, bits);
    }

    fn subtract(&mut self, is_decrement: bool) {
        self.settle(0);
        let bits = self.bits(0);
        let left = self.read(0);
        let right = if is_decrement { Value::constant(1) } else { self.read(1) };
        let right = self.truncated(right, bits);
        let difference = match right.as_constant() {
            Some(constant) => self.sum(left, Value::constant(constant.wrapping_neg() & mask(bits)), bits),
            None => Value::Number(Bounds::full(bits)),
        };
        self.write(0, difference);
        // A decrement does not set the carry flag, so it does not order its operands.
        if is_decrement {
            self.result(difference, bits);
        } else {
            // If the difference has a name, the left value is that name plus the constant.
            let left = match (difference, right.as_constant()) {
                (Value::Symbol(symbol), Some(constant)) => {
                    Value::Symbol(Symbol { add: symbol.add.wrapping_add(constant), ..symbol })
                }
                _ => left,
            };
            self.state.comparison = Some(Comparison { left, right, bits, zero_of: None, place: None });
        }
    }

    /// Records that the flags say whether a result is zero.
    fn result(&mut self, value: Value, bits: u8) {
        self.state.comparison = Some(Comparison {
            left: value,
            right: Value::constant(0),
            bits,
            zero_of: Some(mask(bits)),
            place: None,
        });
    }

    fn test(&mut self, is_same: bool) {
        let bits = self.bits(0);
        let left = self.read(0);
        let right = self.read(1);
        self.state.comparison = match right.as_constant() {
            _ if is_same => {
                Some(Comparison { left, right: Value::constant(0), bits, zero_of: None, place: None })
            }
            Some(constant) => {
                let zero_of = Some(constant & mask(bits));
                Some(Comparison { left, right: Value::constant(0), bits, zero_of, place: None })
            }
            None => None,
        };
    }

    fn and(&mut self) {
        self.settle(0);
        let bits = self.bits(0);
        let (left, right) = (self.read(0), self.read(1));
        let right = self.truncated(right, bits);
        let kept =
            [8, 16, 32].into_iter().find(|&kept| right.as_constant() == Some(mask(kept)) && kept <= bits);
        let result = match kept {
            Some(kept) => self.truncated(left, kept),
            None => {
                let (one, other) = (self.state.bounds(left), self.state.bounds(right));
                let least = if one.most <= other.most { one } else { other };
                // A mask is not a comparison: not all values that it admits need to occur.
                let is_compared = least.is_compared && least.as_constant().is_none();
                Value::Number(Bounds { least: 0, most: least.most, is_compared })
            }
        };
        self.write(0, result);
        let Value::Number(bounds) = result else {
            self.state.comparison = None;
            return;
        };
        // The flags describe the new value of the register.
        self.state.comparison = None;
        if bounds.as_constant().is_none() && self.instruction.op0_kind() == OpKind::Register && bits >= 32 {
            let result = self.read(0);
            self.result(result, bits);
        }
    }

    fn shift(&mut self, is_left: bool) {
        let bits = self.bits(0);
        let by = (self.instruction.immediate8() & 63).min(if bits == 64 { 63 } else { 31 });
        let value = self.read(0);
        let shifted = if is_left {
            let scaled = self.scaled(value, by);
            if bits == 64 { scaled } else { self.truncated(scaled, bits) }
        } else {
            let bounds = self.state.bounds(self.truncated(value, bits));
            Value::Number(Bounds { least: bounds.least >> by, most: bounds.most >> by, is_compared: false })
        };
        self.write(0, shifted);
        self.state.comparison = None;
    }

    /// Moves the stack pointer up.
    fn move_stack(&mut self, by: u64) {
        let top = self.state.register(STACK_POINTER);
        let moved = match top {
            Value::Symbol(symbol) if symbol.bits == 64 => {
                Value::Symbol(Symbol { add: symbol.add.wrapping_add(by), ..symbol })
            }
            _ => Value::UNKNOWN,
        };
        self.state.set_register(STACK_POINTER, moved);
    }

    fn top(&self) -> Option<Place> {
        match self.state.register(STACK_POINTER) {
            Value::Symbol(Symbol { root, add, bits: 64 }) => {
                Some(Place { root: Some(root), displacement: add, size: SLOT })
            }
            _ => None,
        }
    }

    fn push(&mut self, value: Value) {
        self.move_stack(SLOT.wrapping_neg());
        let top = self.top();
        self.state.store(top, value);
    }

    fn pop(&mut self) {
        let value = self.top().and_then(|top| self.state.load(top)).unwrap_or(Value::UNKNOWN);
        self.move_stack(SLOT);
        self.write(0, value);
    }
}
