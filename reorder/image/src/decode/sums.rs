//! Sums of addresses in x86-64 code: sums that are called or jumped to, sums with addresses of functions, and constants
//! that are added to a pointer before it is called.
//!
//! Instructions are scanned in the order of their addresses, regardless of control flow. That errs on the side of seeing a
//! sum: compilers compute an address before a loop and use it inside.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::decode::x86_64::CALL_CLOBBERED;
use crate::elf::code::CodeSpace;
use reorder_base::address::Address;

/// Which registers were made by an addition within the last few instructions.
#[derive(Default)]
pub(super) struct RecentSums {
    last: [Option<Register>; 4],
    position: usize,
}

impl RecentSums {
    /// Goes on to the next instruction.
    pub(super) fn follow(&mut self, code: &CodeSpace<'_>, instruction: &Instruction) {
        // The code after this instruction is entered from elsewhere.
        if matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
        ) {
            *self = Self::default();
            return;
        }
        let is_sum = match instruction.mnemonic() {
            Mnemonic::Add => instruction.op1_kind() != OpKind::Immediate8to64,
            Mnemonic::Lea => {
                instruction.memory_index() != Register::None || adds_to_plain_address(code, instruction)
            }
            _ => false,
        };
        if let Some(register) = written(instruction) {
            // A register that is written again no longer holds the sum.
            self.last.iter_mut().filter(|last| **last == Some(register)).for_each(|last| *last = None);
            self.last[self.position] = is_sum.then_some(register);
        } else {
            self.last[self.position] = None;
        }
        self.position = (self.position + 1) % self.last.len();
    }

    /// Whether the instruction calls such a sum or jumps to it.
    pub(super) fn is_target(&self, instruction: &Instruction) -> bool {
        instruction.op0_kind() == OpKind::Register
            && self.last.contains(&Some(instruction.op0_register().full_register()))
    }
}

/// Which registers hold an address of code that earlier instructions formed.
#[derive(Default)]
pub(super) struct CodeAddresses {
    /// A bit for each of the sixteen registers.
    held: u16,
}

impl CodeAddresses {
    /// Goes on to the next instruction; whether it adds an unknown value to the address of code, or subtracts one.
    pub(super) fn follow(&mut self, code: &CodeSpace<'_>, instruction: &Instruction) -> bool {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            self.held &= !CALL_CLOBBERED.iter().fold(0, |all, &register| all | bit(register));
            return false;
        }
        let Some(register) = written(instruction) else { return false };
        let from = match instruction.op1_kind() {
            OpKind::Register => instruction.op1_register(),
            _ => Register::None,
        };
        let (holds, is_sum) = match instruction.mnemonic() {
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                (is_code(code, instruction.ip_rel_memory_address()), false)
            }
            Mnemonic::Lea => {
                let (base, index) = (instruction.memory_base(), instruction.memory_index());
                let is_held = self.held & (bit(base) | bit(index)) != 0;
                let has_both = base != Register::None && index != Register::None;
                (is_held && !has_both, is_held && has_both || adds_to_plain_address(code, instruction))
            }
            Mnemonic::Mov if from != Register::None => (self.held & bit(from) != 0, false),
            Mnemonic::Mov => (plain_address(code, instruction), false),
            Mnemonic::Add | Mnemonic::Sub if is_immediate(instruction) => {
                let is_held = self.held & bit(register) != 0;
                (is_held, !is_held && plain_address(code, instruction))
            }
            Mnemonic::Add => (false, self.held & (bit(register) | bit(from)) != 0),
            // The difference of two addresses is not an address, nor is a number minus an address.
            Mnemonic::Sub => (false, self.held & bit(register) != 0 && self.held & bit(from) == 0),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push => return false,
            _ => (false, false),
        };
        match holds {
            true => self.held |= bit(register),
            false => self.held &= !bit(register),
        }
        is_sum
    }
}

/// A constant that code adds to a pointer before it calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallOffset {
    /// The constant.
    pub offset: u64,
    /// The call itself names the register. Otherwise the pointer may not be the one that is called.
    pub is_certain: bool,
}

/// The constant that was last added to each register since it was loaded.
#[derive(Default)]
pub(super) struct CallOffsets([u64; 16]);

/// Larger constants are not offsets of an address.
pub(crate) const MAX_BIAS: u64 = 1 << 12;
/// Flags are in the lowest four bits at most.
const MAX_FLAG: u64 = 16;

impl CallOffsets {
    /// Goes on to the next instruction.
    pub(super) fn follow(&mut self, instruction: &Instruction) {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            CALL_CLOBBERED.iter().filter_map(|&register| index(register)).for_each(|index| self.0[index] = 0);
            return;
        }
        if !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            *self = Self::default();
            return;
        }
        let Some(to) = written(instruction).and_then(index) else { return };
        let held = |register: Register| index(register).map_or(0, |index| self.0[index]);
        let constant = || instruction.try_immediate(1).unwrap_or(0);
        self.0[to] = match instruction.mnemonic() {
            Mnemonic::Add if is_immediate(instruction) => self.0[to].wrapping_add(constant()),
            Mnemonic::Sub if is_immediate(instruction) => self.0[to].wrapping_sub(constant()),
            Mnemonic::Inc => self.0[to].wrapping_add(1),
            Mnemonic::Dec => self.0[to].wrapping_sub(1),
            Mnemonic::Lea
                if instruction.memory_index() == Register::None
                    && !instruction.is_ip_rel_memory_operand() =>
            {
                held(instruction.memory_base()).wrapping_add(instruction.memory_displacement64())
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => held(instruction.op1_register()),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push => return,
            _ => 0,
        };
    }

    /// The constants that were added to the address that the instruction calls or jumps to.
    ///
    /// A direct call may lead to a thunk, which calls a register. If the thunk's code does not show which register, every
    /// constant up to the size of a flag counts, as uncertain. A call within the block of the bytes `own` leads to a thunk
    /// only if the bytes show one.
    pub(super) fn of_target(
        &self,
        code: &CodeSpace<'_>,
        own: &Range<Address>,
        instruction: &Instruction,
    ) -> Vec<CallOffset> {
        let within = |offset: u64, most: u64, is_certain| {
            let is_within = offset != 0 && (offset <= most || offset.wrapping_neg() <= most);
            is_within.then_some(CallOffset { offset, is_certain })
        };
        match instruction.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if instruction.op0_kind() == OpKind::Register =>
            {
                let offset = index(instruction.op0_register()).map(|index| self.0[index]);
                offset.into_iter().filter_map(|offset| within(offset, MAX_BIAS, true)).collect()
            }
            FlowControl::Call | FlowControl::UnconditionalBranch if self.0.iter().any(|&it| it != 0) => {
                let target = Address(instruction.near_branch_target());
                let called = register_of_thunk(code, target)
                    .or_else(|| register_of_thunk(code, Address(instruction.next_ip())));
                let offset = |(index, &offset): (usize, &u64)| match called == Some(index) {
                    true => within(offset, MAX_BIAS, true),
                    false => within(offset, MAX_FLAG, false).filter(|_| !own.contains(&target)),
                };
                self.0.iter().enumerate().filter_map(offset).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The register that the thunk at `start` calls, if there is one.
fn register_of_thunk(code: &CodeSpace<'_>, start: Address) -> Option<usize> {
    /// A call over a waiting loop, and the store.
    const MAX_BYTES: u64 = 32;
    let end = start.plus(MAX_BYTES).min(code.arena_of(start)?.end);
    register_in_thunk(code.bytes(start..end))
}

/// The register that the thunk in `bytes` calls. Thunks return to the address that `mov %register,(%rsp)` stores over their
/// return address, and hold a loop that waits (GCC's -mindirect-branch, clang's -mretpoline). Inline thunks follow a jump
/// over them.
fn register_in_thunk(bytes: &[u8]) -> Option<usize> {
    /// The top of the stack as an operand of `mov`, without the register.
    const STACK_TOP: u8 = 0x04;
    /// Instructions of the loop.
    const PAUSE: [u8; 2] = [0xf3, 0x90];
    let rest = bytes.windows(PAUSE.len()).position(|bytes| bytes == PAUSE).map(|at| &bytes[at..])?;
    rest.windows(5).find_map(|window| match *window {
        [rex @ (0x48 | 0x4c), 0x89, operand, 0x24, 0xc3 | 0xf3 | 0xe9] if operand & 0xc7 == STACK_TOP => {
            Some(usize::from(operand >> 3 & 7 | (rex & 4) << 1))
        }
        _ => None,
    })
}

fn index(register: Register) -> Option<usize> {
    let register = register.full_register();
    register.is_gpr64().then(|| register.number())
}

/// The register that an instruction writes first.
fn written(instruction: &Instruction) -> Option<Register> {
    let has_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    has_register.then(|| instruction.op0_register().full_register())
}

fn bit(register: Register) -> u16 {
    let register = register.full_register();
    if register.is_gpr64() { 1 << register.number() } else { 0 }
}

fn is_immediate(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
}

fn is_code(code: &CodeSpace<'_>, address: u64) -> bool {
    code.arena_of(Address(address)).is_some()
}

/// Whether the second operand is an absolute address of code, which only code at a fixed address has.
fn plain_address(code: &CodeSpace<'_>, instruction: &Instruction) -> bool {
    let value = || instruction.try_immediate(1).ok();
    code.is_fixed_address && is_immediate(instruction) && value().is_some_and(|value| is_code(code, value))
}

/// Whether a register is added to such a number.
fn adds_to_plain_address(code: &CodeSpace<'_>, instruction: &Instruction) -> bool {
    let has_register =
        instruction.memory_base() != Register::None || instruction.memory_index() != Register::None;
    code.is_fixed_address
        && has_register
        && !instruction.is_ip_rel_memory_operand()
        && is_code(code, instruction.memory_displacement64())
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn after(code: &[u8]) -> CallOffsets {
        let mut offsets = CallOffsets::default();
        let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        decoder.into_iter().for_each(|instruction| offsets.follow(&instruction));
        offsets
    }

    #[test]
    fn constants_add_up_until_the_register_is_loaded_again() {
        const RAX: usize = 0;
        const RCX: usize = 1;
        const RDX: usize = 2;
        const RBX: usize = 3;
        // mov rax, [rbx]; sub rax, 16; mov rcx, rax; lea rdx, [rax - 1]; inc rcx; mov rax, [rbx]
        let code = [
            0x48, 0x8b, 0x03, 0x48, 0x83, 0xe8, 0x10, 0x48, 0x89, 0xc1, 0x48, 0x8d, 0x50, 0xff, 0x48, 0xff,
            0xc1, 0x48, 0x8b, 0x03,
        ];
        let CallOffsets(found) = after(&code);
        assert_eq!((found[RAX], found[RCX], found[RDX]), (0, -15_i64 as u64, -17_i64 as u64));
        // sub rax, 16; mov rbx, rax; call rcx: the call may change RAX, but keeps RBX.
        let CallOffsets(found) = after(&[0x48, 0x83, 0xe8, 0x10, 0x48, 0x89, 0xc3, 0xff, 0xd1]);
        assert_eq!((found[RAX], found[RBX]), (0, -16_i64 as u64));
    }

    #[test]
    fn a_thunk_calls_the_register_that_it_stores() {
        // call 1f; 2: pause; lfence; jmp 2b; 1: mov [rsp], register; ret
        let thunk = |rex, operand| {
            let start = [0xe8, 7, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9];
            [&start[..], &[rex, 0x89, operand, 0x24, 0xc3]].concat()
        };
        assert_eq!(register_in_thunk(&thunk(0x48, 0x04)), Some(0));
        assert_eq!(register_in_thunk(&thunk(0x4c, 0x1c)), Some(11));
        // Without the loop it is a plain store.
        assert_eq!(register_in_thunk(&thunk(0x48, 0x04)[12..]), None);
    }
}
