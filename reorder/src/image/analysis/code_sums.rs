//! Sums of an address of code and something that the code does not say.
//!
//! Takes the instructions of one block of x86-64 code; gives every addition one side of which may be a known address of code, with
//! what is known of the other side, if the block calls, jumps to, returns or returns to the sum. Registers, stack slots and pushed values
//! are followed along all paths at once: what something may hold on any path it holds here. A sum that the block only keeps or
//! hands on does not count: too often the address and the number come from different paths.

use std::collections::BTreeMap;

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::sum_parts::{Known, Part, Sum, bits};
use crate::address::Address;
use crate::image::analysis::pointers::PointersByPlace;
use crate::image::code::{CodeSpace, Region};

/// Passes over a block until nothing new is learned; loops within loops need a handful.
const MAX_PASSES: usize = 64;
const REGISTERS: usize = 16;
/// Numbers of the registers that a callee may use for itself: `rax`, `rcx`, `rdx`, `rsi`, `rdi`, `r8` to `r11`.
/// Source: System V ABI AMD64, "Registers".
const CALL_CLOBBERED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// What tells what an operand means.
#[derive(Clone, Copy)]
pub struct SumContext<'a, 'data> {
    /// The code of the image.
    pub code: &'a CodeSpace<'data>,
    /// What the loader, or the linker's relocations, put into data.
    pub pointers: &'a PointersByPlace,
}

/// The sums of `instructions`, which are one block or gap in address order.
pub fn code_sums(
    context: SumContext<'_, '_>,
    instructions: &[Instruction],
    factory: &mut InstructionInfoFactory,
) -> Vec<Sum> {
    let mut follower = Follower {
        context,
        instructions,
        factory,
        entered: BTreeMap::new(),
        own_places: Vec::new(),
        slots: BTreeMap::new(),
        pushed: Part::UNKNOWN,
        at_jumps: State::default(),
        at_calls: State::default(),
        known: Known::default(),
        sums: BTreeMap::new(),
        gone_to: 0,
        has_learned: true,
    };
    follower.index_branches();
    for _ in 0..MAX_PASSES {
        if !std::mem::take(&mut follower.has_learned) {
            break;
        }
        follower.pass();
    }
    if follower.has_learned {
        follower.add_everything();
    }
    let Follower { known, sums, gone_to, .. } = follower;
    let used = sums.into_iter().filter(|(bit, _)| gone_to >> bit & 1 == 1);
    used.map(|(bit, part)| Sum::new(&known, bit, part)).collect()
}

/// What each general register may hold.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct State([Part; REGISTERS]);

impl State {
    fn join(&mut self, other: &Self) -> bool {
        let before = *self;
        self.0.iter_mut().zip(other.0).for_each(|(part, other)| part.join(other));
        *self != before
    }
}

/// Where a value stands on the stack: the register that it is addressed by, and the displacement.
type Slot = (Register, u64);

struct Follower<'run, 'data> {
    context: SumContext<'run, 'data>,
    instructions: &'run [Instruction],
    factory: &'run mut InstructionInfoFactory,
    /// What registers may hold where a branch of the block arrives.
    entered: BTreeMap<usize, State>,
    /// Positions that the block calls, and where it calls them from: places in the block that whatever is there may learn.
    own_places: Vec<(usize, Address)>,
    slots: BTreeMap<Slot, Part>,
    pushed: Part,
    /// What registers held at jumps that name no target, which may lead to anything.
    at_jumps: State,
    /// What they held at calls, which landing pads may follow.
    at_calls: State,
    known: Known,
    /// By the bit of the code address.
    sums: BTreeMap<u8, Part>,
    /// Bits of the addresses whose sums control goes to.
    gone_to: u64,
    has_learned: bool,
}

impl Follower<'_, '_> {
    fn index_branches(&mut self) {
        for instruction in self.instructions.iter().filter(|found| found.op0_kind() == OpKind::NearBranch64) {
            let target = instruction.near_branch_target();
            let Ok(position) = self.instructions.binary_search_by_key(&target, Instruction::ip) else {
                continue;
            };
            match instruction.flow_control() {
                FlowControl::Call => self.own_places.push((position, Address(instruction.next_ip()))),
                _ => {
                    self.entered.insert(position, State::default());
                }
            }
        }
        self.own_places.sort_unstable();
    }

    fn pass(&mut self) {
        let mut state = State([Part::UNKNOWN; REGISTERS]);
        let mut arrives = true;
        for position in 0..self.instructions.len() {
            if let Some(entered) = self.entered.get_mut(&position) {
                if arrives {
                    self.has_learned |= entered.join(&state);
                }
                self.has_learned |= entered.join(&self.at_jumps);
                state = *entered;
            } else if !arrives {
                state = self.at_jumps;
                state.join(&self.at_calls);
            }
            let instruction = self.instructions[position];
            self.follow_target(position, &instruction, &state);
            self.step(position, &instruction, &mut state);
            match instruction.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => {
                    self.has_learned |= self.at_calls.join(&state);
                }
                FlowControl::IndirectBranch => self.has_learned |= self.at_jumps.join(&state),
                _ if instruction.op0_kind() == OpKind::NearBranch64 => {
                    let target = instruction.near_branch_target();
                    let target = self.instructions.binary_search_by_key(&target, Instruction::ip).ok();
                    if let Some(entered) = target.and_then(|target| self.entered.get_mut(&target)) {
                        self.has_learned |= entered.join(&state);
                    }
                }
                _ => {}
            }
            arrives = !matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
        }
    }

    fn is_pushed_before(&self, position: usize) -> bool {
        let before = position.checked_sub(1).and_then(|before| self.instructions.get(before));
        before.is_some_and(|before| before.mnemonic() == Mnemonic::Push)
    }

    fn follow_target(&mut self, position: usize, instruction: &Instruction, state: &State) {
        let target = match instruction.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch => self.operand(instruction, 0, state),
            // What was pushed just before is what it returns to.
            FlowControl::Return if self.is_pushed_before(position) => self.pushed,
            FlowControl::Return => state.0[0],
            _ => return,
        };
        self.has_learned |= target.sums & !self.gone_to != 0;
        self.gone_to |= target.sums;
    }

    fn step(&mut self, position: usize, instruction: &Instruction, state: &mut State) {
        let destination =
            (instruction.op_count() > 0).then(|| self.operand_register(instruction, 0)).flatten();
        match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                let value = self.operand(instruction, 1, state);
                match destination {
                    Some(register) => state.0[register] = value,
                    None => self.store(instruction, value, state),
                }
            }
            Mnemonic::Lea => {
                if let Some(register) = destination {
                    let value = self.address(instruction, state);
                    state.0[register] = value;
                }
            }
            Mnemonic::Add | Mnemonic::Sub => {
                let is_difference = instruction.mnemonic() == Mnemonic::Sub;
                let left = self.operand(instruction, 0, state);
                let right = self.operand(instruction, 1, state);
                let value = self.sum(left, if is_difference { right.negated() } else { right });
                match destination {
                    Some(register) => state.0[register] = value,
                    None => self.store(instruction, value, state),
                }
            }
            Mnemonic::Shl | Mnemonic::Sal => {
                if let Some(register) = destination {
                    let value = match immediate(instruction, 1) {
                        Some(bits) => state.0[register].scaled(bits),
                        None => Part::UNKNOWN,
                    };
                    state.0[register] = value;
                }
            }
            // Bits of low value are put into addresses and taken out again.
            Mnemonic::And | Mnemonic::Or if immediate(instruction, 1).is_some() => {}
            Mnemonic::Cdqe | Mnemonic::Cwde => {}
            // Multiples of a constant.
            Mnemonic::Imul if instruction.op_count() == 3 => {
                if let (Some(register), Some(factor)) = (destination, immediate(instruction, 2)) {
                    let value = self.known.constant(factor);
                    state.0[register] = value;
                }
            }
            Mnemonic::Neg => {
                if let Some(register) = destination {
                    let value = state.0[register].negated();
                    state.0[register] = value;
                }
            }
            Mnemonic::Xchg | Mnemonic::Xadd => self.exchange(instruction, state),
            Mnemonic::Push => {
                let mut value = self.operand(instruction, 0, state);
                value.join(self.pushed);
                self.has_learned |= value != self.pushed;
                self.pushed = value;
            }
            Mnemonic::Pop => {
                let mut value = self.pushed;
                let first = self.own_places.partition_point(|(called, _)| *called < position);
                let after = self.own_places.partition_point(|(called, _)| *called <= position);
                for index in first..after {
                    value.join(self.known_address(self.own_places[index].1));
                }
                if let Some(register) = destination {
                    state.0[register] = value;
                }
            }
            _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 2 => {
                if let Some(register) = destination {
                    let mut value = self.operand(instruction, 1, state);
                    value.join(state.0[register]);
                    state.0[register] = value;
                }
            }
            _ if is_call(instruction) => {
                CALL_CLOBBERED.iter().for_each(|register| state.0[*register] = Part::UNKNOWN);
            }
            _ => self.forget_written(instruction, state),
        }
    }

    fn forget_written(&mut self, instruction: &Instruction, state: &mut State) {
        for used in self.factory.info(instruction).used_registers() {
            let is_written = matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            if let Some(register) = number(used.register()).filter(|_| is_written) {
                state.0[register] = Part::UNKNOWN;
            }
        }
    }

    fn store(&mut self, instruction: &Instruction, value: Part, state: &State) {
        let Some(slot) = stack_slot(instruction, state) else { return };
        let held = self.slots.entry(slot).or_default();
        let before = *held;
        held.join(value);
        self.has_learned |= *held != before;
    }

    fn exchange(&mut self, instruction: &Instruction, state: &mut State) {
        let mut both = self.operand(instruction, 0, state);
        both.join(self.operand(instruction, 1, state));
        for operand in 0..2 {
            match self.operand_register(instruction, operand) {
                Some(register) => state.0[register] = both,
                None => self.store(instruction, both, state),
            }
        }
    }

    fn operand_register(&self, instruction: &Instruction, operand: u32) -> Option<usize> {
        match instruction.op_kind(operand) {
            OpKind::Register => number(instruction.op_register(operand)),
            _ => None,
        }
    }

    fn operand(&mut self, instruction: &Instruction, operand: u32, state: &State) -> Part {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                number(instruction.op_register(operand)).map_or(Part::UNKNOWN, |at| state.0[at])
            }
            OpKind::Memory => self.loaded(instruction, state),
            _ => match immediate(instruction, operand) {
                Some(value) if self.context.code.is_fixed_address && self.is_address(Address(value)) => {
                    self.known_address(Address(value))
                }
                Some(value) => self.known.constant(value),
                None => Part::UNKNOWN,
            },
        }
    }

    /// What stands at the memory operand.
    fn loaded(&mut self, instruction: &Instruction, state: &State) -> Part {
        let width = instruction.memory_size().size();
        if let Some(slot) = stack_slot(instruction, state) {
            return self.slots.get(&slot).copied().unwrap_or(Part::UNKNOWN);
        }
        if let Some(place) = self.stated_place(instruction).filter(|_| !has_registers(instruction)) {
            if width == 8
                && let Some(target) = self.context.pointers.at(place)
            {
                return self.known_address(target);
            }
            let table = self.known_address(place);
            return Part::loaded_from(table, width);
        }
        let mut table = Part::default();
        self.address_parts(instruction, state).into_iter().for_each(|part| table.join(part));
        if self.stated_place(instruction).is_none() {
            table = self.known.displaced(table, instruction.memory_displacement64());
        }
        Part::loaded_from(table, width)
    }

    /// The address of the memory operand, as `lea` forms it.
    fn address(&mut self, instruction: &Instruction, state: &State) -> Part {
        let parts = self.address_parts(instruction, state);
        let displacement = match self.stated_place(instruction) {
            Some(_) => 0,
            None => instruction.memory_displacement64(),
        };
        let sum = parts.into_iter().reduce(|left, right| self.sum(left, right)).unwrap_or(Part::UNKNOWN);
        if displacement == 0 {
            return sum;
        }
        let displacement = self.known.constant(displacement);
        self.sum(sum, displacement)
    }

    fn address_parts(&mut self, instruction: &Instruction, state: &State) -> Vec<Part> {
        let mut parts = Vec::with_capacity(3);
        if let Some(place) = self.stated_place(instruction) {
            parts.push(self.known_address(place));
        }
        if !instruction.is_ip_rel_memory_operand()
            && let Some(base) = number(instruction.memory_base())
        {
            parts.push(state.0[base]);
        }
        if let Some(index) = number(instruction.memory_index()) {
            let bits = u64::from(instruction.memory_index_scale().trailing_zeros());
            parts.push(state.0[index].scaled(bits));
        }
        parts
    }

    /// The address that the memory operand states, with or without registers.
    fn stated_place(&self, instruction: &Instruction) -> Option<Address> {
        if instruction.is_ip_rel_memory_operand() {
            return Some(Address(instruction.ip_rel_memory_address()));
        }
        let place = Address(instruction.memory_displacement64());
        (self.context.code.is_fixed_address && self.is_address(place)).then_some(place)
    }

    fn is_address(&self, value: Address) -> bool {
        matches!(self.context.code.region(value), Region::Arena | Region::Data)
    }

    fn known_address(&mut self, address: Address) -> Part {
        match self.context.code.arena_of(address) {
            Some(_) => self.known.code(address),
            None => self.known.data(address),
        }
    }

    fn sum(&mut self, left: Part, right: Part) -> Part {
        let mut sum = left.plus(right);
        for (base, other) in [(left, right), (right, left)] {
            for bit in bits(base.code) {
                let held = self.sums.entry(bit).or_default();
                let before = *held;
                held.join(other);
                self.has_learned |= *held != before;
            }
            sum.join(self.known.derived(base, other));
            if other.has_number() {
                sum.sums |= base.code;
            }
        }
        sum
    }

    /// Too much to be followed to the end: each known address takes part in a sum with anything.
    fn add_everything(&mut self) {
        let all = self.known.all_code();
        for bit in bits(all) {
            self.sums.entry(bit).or_default().join(Part::UNKNOWN);
        }
        self.gone_to = all;
    }
}

/// The register's number among the general ones.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn immediate(instruction: &Instruction, operand: u32) -> Option<u64> {
    instruction.try_immediate(operand).ok()
}

fn has_registers(instruction: &Instruction) -> bool {
    let has_base = instruction.memory_base() != Register::None && !instruction.is_ip_rel_memory_operand();
    has_base || instruction.memory_index() != Register::None
}

/// The slot that the memory operand is. The frame pointer may be a register like others.
fn stack_slot(instruction: &Instruction, state: &State) -> Option<Slot> {
    let base = instruction.memory_base();
    let is_frame = || number(base).is_some_and(|base| !state.0[base].has_address());
    let is_stack = base == Register::RSP || base == Register::RBP && is_frame();
    (is_stack && instruction.memory_index() == Register::None)
        .then(|| (base, instruction.memory_displacement64()))
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}
