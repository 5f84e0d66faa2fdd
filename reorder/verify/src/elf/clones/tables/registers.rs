//! Which registers may hold the address of a copied table, a distance that was read there, or the sum of both.
//!
//! Code runs in copies and originals in any mixture, so a register may hold the address of the copy, or that of the original
//! table. A distance may be added only to the address from which it was read: *tied* registers are known to fit.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::guarded::Sequence;
use crate::elf::dispatch::{RegisterSet, number_of};

/// General registers.
const REGISTERS: usize = 16;
/// The numbers of RAX and RDX, in which calls return results, and exceptions their description.
const RESULTS: [usize; 2] = [0, 2];
/// The numbers of RCX, RDX, RSI, RDI, R8 and R9, which pass arguments, and of RAX, which counts some of them.
const ARGUMENTS: [usize; 7] = [1, 2, 6, 7, 8, 9, 0];
/// An address of a table.
const TABLE: u8 = 1;
/// A distance that was read from a table.
const DISTANCE: u8 = 2;
/// The sum of an address and a distance: where to jump.
const SUM: u8 = 4;
/// A mixture of these and other bytes.
const MIXED: u8 = TABLE | DISTANCE | SUM;

/// What one register may hold instead of the original's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// A bit for each kind; none if the value is the original's.
    kinds: u8,
    /// For a table, the registers that hold the same address; for a distance, those with the address that it was read from.
    /// Each is the original's where this one is.
    tied: RegisterSet,
    /// Lowest bytes that were overwritten since, so that they are the original's.
    low: u8,
}

/// All registers at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    held: [Held; REGISTERS],
    /// Flags that depend on an address.
    flags: u32,
}

impl Registers {
    /// After an instruction that formed the address of the table in the register `number`.
    pub(super) fn form(&mut self, number: usize) {
        self.set(number, Held { kinds: TABLE, ..Held::default() });
    }

    /// After an instruction that loaded an entry of a table of addresses into the register `number`.
    pub(super) fn load_target(&mut self, number: usize) {
        self.set(number, Held { kinds: SUM, ..Held::default() });
    }

    /// Whether all values are those of the original.
    pub(super) fn are_originals(&self) -> bool {
        *self == Self::default()
    }

    /// Whether all values are those of the original, except in registers and flags that `sequence` overwrites.
    pub(super) fn are_originals_after(&self, sequence: &Sequence) -> bool {
        let mut after = Self { flags: 0, ..*self };
        sequence.overwritten.into_iter().for_each(|number| after.set(number, Held::default()));
        after.are_originals()
    }

    /// Whether the register `number` holds where to jump, if not the original's value.
    pub(super) fn is_sum(&self, number: usize) -> bool {
        self.held.get(number).is_some_and(|held| held.kinds == SUM)
    }

    /// Whether the register `number` may hold anything but the original's value or where to jump.
    pub(super) fn holds_other(&self, number: usize) -> bool {
        self.held.get(number).is_some_and(|held| held.kinds & (TABLE | DISTANCE) != 0)
    }

    /// The registers whose values fit to that of register `number`.
    fn tied_to(&self, number: usize) -> RegisterSet {
        match self.held[number] {
            Held { kinds: 0, .. } => (0..REGISTERS)
                .filter(|&other| self.held[other].kinds == 0)
                .fold(0, |set, other| set | 1 << other),
            held => held.tied,
        }
    }

    /// Lowest bytes of the register `number` that are the original's.
    fn low_of(&self, number: usize) -> u8 {
        if self.held[number].kinds == 0 { u8::MAX } else { self.held[number].low }
    }

    /// What holds on two ways to one place.
    pub(super) fn joined(&self, other: &Self) -> Self {
        let mut joined = Self { flags: self.flags | other.flags, ..Self::default() };
        for (number, held) in joined.held.iter_mut().enumerate() {
            let kinds = self.held[number].kinds | other.held[number].kinds;
            let tied = self.tied_to(number) & other.tied_to(number);
            let low = self.low_of(number).min(other.low_of(number));
            if kinds != 0 {
                *held = Held { kinds, tied, low };
            }
        }
        joined
    }

    /// Gives the register `number` a value that no other is tied to.
    fn set(&mut self, number: usize, held: Held) {
        self.held.iter_mut().for_each(|other| other.tied &= !(1 << number));
        self.held[number] = Held { tied: held.tied & !(1 << number), ..held };
    }

    /// After a call that keeps the registers `kept`. Those that it may return in count as overwritten. Compilers read others
    /// only if they know that the callee keeps them.
    pub(super) fn call(&mut self, kept: RegisterSet) {
        self.flags = 0;
        for number in RESULTS.into_iter().filter(|number| kept >> number & 1 == 0) {
            self.set(number, Held::default());
        }
    }

    /// Where another function begins: addresses that are left in the registers of arguments are none. Functions with any number
    /// of arguments save all these registers.
    pub(super) fn pass_arguments(&mut self) {
        self.flags = 0;
        ARGUMENTS.into_iter().for_each(|number| self.set(number, Held::default()));
    }

    /// Applies an instruction, apart from where it leads; `false` if it does anything with an address of a table or a distance
    /// but read, add, or move it.
    pub(super) fn apply(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
        if self.are_originals() {
            return true;
        }
        if instruction.rflags_read() & self.flags != 0 {
            return false;
        }
        // Its operand is not read.
        if instruction.mnemonic() == Mnemonic::Nop {
            return true;
        }
        if !self.understood(instruction) && !self.overwritten(instruction, factory) {
            return false;
        }
        self.flags &= !flags_replaced(instruction);
        if instruction.mnemonic() == Mnemonic::Add && self.holds_sum(instruction) {
            self.flags |= instruction.rflags_modified();
        }
        true
    }

    fn holds_sum(&self, instruction: &Instruction) -> bool {
        instruction.op0_kind() == OpKind::Register
            && number_of(instruction.op0_register()).is_some_and(|number| self.held[number].kinds != 0)
    }

    /// Applies one of the instructions of a dispatch to such values; `false` for any other.
    fn understood(&mut self, instruction: &Instruction) -> bool {
        let whole = |operand| {
            let is_register = instruction.op_kind(operand) == OpKind::Register;
            is_register.then(|| instruction.op_register(operand)).filter(|it| it.is_gpr64())
        };
        if instruction.op_count() != 2 {
            return false;
        }
        let Some(target) = whole(0).and_then(number_of) else { return false };
        let source = whole(1).and_then(number_of);
        match (instruction.mnemonic(), source) {
            (Mnemonic::Mov, Some(source)) if self.held[source].kinds != 0 => {
                self.copy(target, source);
                true
            }
            (Mnemonic::Movsxd, None) => self.read(instruction, target),
            (Mnemonic::Add, Some(source)) => self.add(target, source),
            _ => false,
        }
    }

    fn copy(&mut self, target: usize, source: usize) {
        if target == source {
            return;
        }
        let held = self.held[source];
        let is_table = held.kinds == TABLE;
        let same: RegisterSet = if is_table { 1 << source } else { 0 };
        self.set(target, Held { tied: held.tied | same, ..held });
        for number in (0..REGISTERS).filter(|&number| number != target) {
            let is_tied = self.held[number].tied >> source & 1 == 1 || is_table && number == source;
            self.held[number].tied |= RegisterSet::from(is_tied) << target;
        }
    }

    /// `movslq (table,index,4), target`.
    fn read(&mut self, instruction: &Instruction, target: usize) -> bool {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let is_plain = instruction.op1_kind() == OpKind::Memory
            && base.is_gpr64()
            && index.is_gpr64()
            && instruction.memory_index_scale() == 4
            && instruction.memory_displacement64() == 0
            && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        let numbers = number_of(base).zip(number_of(index)).filter(|_| is_plain);
        let Some((base, index)) = numbers else { return false };
        if (self.held[base].kinds, self.held[index].kinds) != (TABLE, 0) {
            return false;
        }
        let tied = self.held[base].tied | 1 << base;
        self.set(target, Held { kinds: DISTANCE, tied, low: 0 });
        true
    }

    /// `add source, target` of a table and a distance that was read there.
    fn add(&mut self, target: usize, source: usize) -> bool {
        let fits = |distance: usize, table: usize| {
            let kinds = (self.held[distance].kinds, self.held[table].kinds);
            kinds == (DISTANCE, TABLE) && self.held[distance].tied >> table & 1 == 1
        };
        let is_sum = fits(target, source) || fits(source, target);
        if is_sum {
            self.set(target, Held { kinds: SUM, ..Held::default() });
        }
        is_sum
    }

    /// Applies an instruction that only overwrites such values; `false` if it reads one.
    fn overwritten(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
        let used = factory.info(instruction).used_registers().iter();
        let used: Vec<(usize, OpAccess, Register)> = used
            .filter_map(|used| Some((number_of(used.register())?, used.access(), used.register())))
            .collect();
        let is_read = |access| {
            use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
            matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
        };
        let is_high =
            |register| matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        let is_other = |number: usize, register: Register| {
            let is_inside = !is_high(register) && register.size() <= usize::from(self.held[number].low);
            self.held[number].kinds != 0 && !is_inside
        };
        if used.iter().any(|&(number, access, register)| is_read(access) && is_other(number, register)) {
            return false;
        }
        for (number, access, register) in used {
            let held = self.held[number];
            match access {
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead => {}
                OpAccess::CondWrite => self.set(number, Held { tied: 0, ..held }),
                // Registers of 32 bits are extended to 64; others keep the rest of their bytes.
                _ if held.kinds != 0 && register.size() < 4 => {
                    let written = if is_high(register) { 0 } else { register.size() as u8 };
                    self.set(number, Held { kinds: MIXED, tied: 0, low: held.low.max(written) });
                }
                _ => self.set(number, Held::default()),
            }
        }
        true
    }
}

/// The flags that an instruction certainly sets anew. Shifts by zero and repetitions without a round leave them.
fn flags_replaced(instruction: &Instruction) -> u32 {
    let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let shifts = [
        Mnemonic::Shl,
        Mnemonic::Shr,
        Mnemonic::Sal,
        Mnemonic::Sar,
        Mnemonic::Shld,
        Mnemonic::Shrd,
        Mnemonic::Rol,
        Mnemonic::Ror,
        Mnemonic::Rcl,
        Mnemonic::Rcr,
    ];
    let last = instruction.op_count().saturating_sub(1);
    let is_constant = instruction.try_immediate(last).is_ok_and(|count| count & 0x1f != 0);
    let may_leave = is_repeated || shifts.contains(&instruction.mnemonic()) && !is_constant;
    if may_leave { 0 } else { instruction.rflags_modified() }
}

#[cfg(test)]
mod tests;
