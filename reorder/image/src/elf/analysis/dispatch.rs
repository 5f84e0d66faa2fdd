//! Explains jumps through a register by following the register's definitions backwards.
//!
//! Takes one block's instructions. Each such jump goes either to "a pointer" (loaded, popped, returned, passed in or
//! demangled: the code that made it used a listed reference) or through "a table" (the sum of a base and a loaded distance),
//! with the base addresses found and the largest index that the code can reach. Any other jump is unknown and pins the
//! block.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::decode::padding::is_no_operation;
use crate::decode::x86_64::is_call;
use crate::elf::analysis::index_value::LargestIndex;
use crate::elf::analysis::table_bound::bound_of_load;
use reorder_base::address::Address;

/// Where a jump through a register goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// To an address that was a listed reference.
    Pointer,
    /// To base + loaded distance.
    Table {
        /// Addresses that the base register may hold, each with the largest index that the code can reach, if the code
        /// before the load bounds it; empty if the register could not be followed.
        bases: BTreeMap<Address, Option<LargestIndex>>,
        /// Whether the base of some sum is formed nowhere in the block: it is loaded, passed in or computed.
        has_loaded_base: bool,
        /// Whether all bases are addresses that the block forms, on every path.
        is_named: bool,
    },
    /// To the target of a word in memory that holds a distance from itself.
    SelfRelative,
    /// Not explained.
    Unknown,
}

/// A block's instructions with their predecessors.
pub(crate) struct BlockFlow {
    instructions: Vec<Instruction>,
    /// (target position, branch position) of the branches inside the block, sorted.
    branches: Vec<(usize, usize)>,
    /// Positions of the jumps through a register.
    register_jumps: Vec<usize>,
}

/// Bound on the steps of one search; a block with longer chains of definitions is pinned.
const MAX_VISITED: usize = 20_000;
/// Bound on jumps through a register in one block; interpreters have hundreds.
const MAX_JUMPS: usize = 2_000;
/// Number of instructions that the search for the load of a distance goes back.
const LOAD_WINDOW: usize = 64;
/// Bound on the number of instructions between the load of a self-relative distance and its sum.
const SUM_WINDOW: usize = 16;

/// Sources of the value in a register.
#[derive(Default)]
struct Sources {
    pointer: bool,
    unknown: bool,
    /// Addresses formed by `lea reg, [rip + …]` outside the text.
    bases: BTreeSet<Address>,
    /// Whether a four-byte distance was loaded from memory and sign-extended.
    loaded_distance: bool,
    /// The loads of such distances, as positions.
    loads: BTreeSet<usize>,
    /// Known places from which sign-extended four-byte distances were loaded.
    loaded_at: BTreeSet<Address>,
    /// Whether it is the sum of an address and the distance loaded from that address.
    self_relative: bool,
    /// Sums, as (position, left register, right register).
    sums: Vec<(usize, Register, Register)>,
}

impl Sources {
    /// Whether this can only be the distance stored at the one address that `base` may be.
    fn is_distance_from(&self, base: &Self) -> bool {
        let is_clean = |sources: &Self| {
            !sources.pointer
                && !sources.unknown
                && !sources.loaded_distance
                && !sources.self_relative
                && sources.sums.is_empty()
        };
        let is_distance = self.loaded_at.len() == 1 && self.bases.is_empty();
        let is_base = base.loaded_at.is_empty() && base.bases == self.loaded_at;
        is_clean(self) && is_clean(base) && is_distance && is_base
    }
}

impl BlockFlow {
    /// Indexes the branches of `instructions`, which are one block in address order.
    pub(crate) fn new(instructions: Vec<Instruction>) -> Self {
        let mut branches: Vec<(usize, usize)> = instructions
            .iter()
            .enumerate()
            .filter(|(_, instruction)| instruction.op0_kind() == OpKind::NearBranch64)
            .filter(|(_, instruction)| instruction.flow_control() != FlowControl::Call)
            .filter_map(|(position, instruction)| {
                let target = instruction.near_branch_target();
                instructions
                    .binary_search_by_key(&target, Instruction::ip)
                    .ok()
                    .map(|found| (found, position))
            })
            .collect();
        branches.sort_unstable();
        let register_jumps = (0..instructions.len())
            .filter(|&position| {
                let instruction = &instructions[position];
                instruction.code() == Code::Jmp_rm64 && instruction.op0_kind() == OpKind::Register
            })
            .collect();
        Self { instructions, branches, register_jumps }
    }

    /// The block's instructions, by address.
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Predecessors of `position` without jump tables: (position, whether its branch is taken).
    pub(super) fn predecessors(&self, position: usize) -> impl Iterator<Item = (usize, bool)> + '_ {
        let falls_in = position > 0 && continues(&self.instructions[position - 1]);
        let first = self.branches.partition_point(|(target, _)| *target < position);
        let jumps = self.branches[first..].iter().take_while(move |(target, _)| *target == position);
        let jumps = jumps.map(|(_, source)| (*source, true));
        falls_in.then(|| (position - 1, false)).into_iter().chain(jumps)
    }

    /// Whether a branch of the block goes to `position`.
    pub(super) fn is_branch_target(&self, position: usize) -> bool {
        self.branches.binary_search_by_key(&position, |(target, _)| *target).is_ok()
    }

    /// Instructions that neither a branch or call of the block nor the instruction before them reaches and whose address the
    /// block does not form, by address.
    pub(super) fn orphans(&self) -> impl Iterator<Item = Address> + '_ {
        let is_filler = |instruction: &Instruction| {
            is_no_operation(instruction) || instruction.mnemonic() == Mnemonic::Int3
        };
        let formed: BTreeSet<u64> = self
            .instructions
            .iter()
            .filter(|instruction| instruction.is_ip_rel_memory_operand())
            .map(Instruction::ip_rel_memory_address)
            .collect();
        let is_near_call = |instruction: &&Instruction| {
            instruction.flow_control() == FlowControl::Call && instruction.op0_kind() == OpKind::NearBranch64
        };
        let called: BTreeSet<u64> =
            self.instructions.iter().filter(is_near_call).map(Instruction::near_branch_target).collect();
        let mut is_reached = true;
        self.instructions.iter().enumerate().filter_map(move |(position, instruction)| {
            is_reached |= position == 0 || self.is_branch_target(position);
            is_reached |= formed.contains(&instruction.ip()) || called.contains(&instruction.ip());
            if is_filler(instruction) {
                return None;
            }
            let is_orphan = !is_reached;
            is_reached = continues(instruction);
            is_orphan.then(|| Address(instruction.ip()))
        })
    }

    /// Explains every jump through a register: (address of the jump, explanation). `is_code` tells whether such a jump may
    /// go to an address without a table, `is_entered` whether a table may lead to it.
    pub(crate) fn dispatches(
        &self,
        is_code: &dyn Fn(Address) -> bool,
        is_entered: &dyn Fn(Address) -> bool,
        factory: &mut InstructionInfoFactory,
    ) -> Vec<(Address, Dispatch)> {
        self.register_jumps
            .iter()
            .enumerate()
            .map(|(index, &position)| {
                let instruction = &self.instructions[position];
                if index >= MAX_JUMPS {
                    return (Address(instruction.ip()), Dispatch::Unknown);
                }
                let register = instruction.op0_register();
                let dispatch = self.explain(is_code, is_entered, position, register, factory);
                (Address(instruction.ip()), dispatch)
            })
            .collect()
    }

    fn explain(
        &self,
        is_code: &dyn Fn(Address) -> bool,
        is_entered: &dyn Fn(Address) -> bool,
        position: usize,
        register: Register,
        factory: &mut InstructionInfoFactory,
    ) -> Dispatch {
        let sources = self.sources(position, register, factory);
        if sources.unknown || sources.loaded_distance || !sources.loaded_at.is_empty() {
            return Dispatch::Unknown;
        }
        if sources.bases.iter().any(|&base| !is_code(base)) {
            return Dispatch::Unknown;
        }
        if sources.self_relative {
            return if sources.sums.is_empty() { Dispatch::SelfRelative } else { Dispatch::Unknown };
        }
        if sources.sums.is_empty() {
            let explained = sources.pointer || !sources.bases.is_empty();
            return if explained { Dispatch::Pointer } else { Dispatch::Unknown };
        }
        let mut bases = BTreeMap::new();
        let (count, mut self_relative) = (sources.sums.len(), 0);
        let (mut has_loaded_base, mut is_named) = (false, true);
        for (sum, left, right) in sources.sums {
            let left = self.sources(sum, left, factory);
            let right = self.sources(sum, right, factory);
            if left.self_relative || right.self_relative {
                return Dispatch::Unknown;
            }
            if left.is_distance_from(&right) || right.is_distance_from(&left) {
                self_relative += 1;
                continue;
            }
            if !left.loaded_at.is_empty() || !right.loaded_at.is_empty() {
                return Dispatch::Unknown;
            }
            let (base, distance) = if left.loaded_distance { (right, left) } else { (left, right) };
            if !distance.loaded_distance || distance.unknown || !distance.sums.is_empty() {
                return Dispatch::Unknown;
            }
            has_loaded_base |= base.bases.is_empty();
            is_named &= !base.bases.is_empty() && !base.pointer && !base.unknown && base.sums.is_empty();
            self.bound_bases(&base.bases, &distance.loads, is_entered, &mut bases, factory);
        }
        match self_relative {
            0 => {}
            _ if self_relative == count => return Dispatch::SelfRelative,
            _ => return Dispatch::Unknown,
        }
        Dispatch::Table { bases, has_loaded_base, is_named }
    }

    /// Adds each base with the largest bound of the loads that may read from it, without a bound if one of them has none.
    fn bound_bases(
        &self,
        found: &BTreeSet<Address>,
        loads: &BTreeSet<usize>,
        is_entered: &dyn Fn(Address) -> bool,
        bases: &mut BTreeMap<Address, Option<LargestIndex>>,
        factory: &mut InstructionInfoFactory,
    ) {
        let is_entered = |position: usize| is_entered(Address(self.instructions[position].ip()));
        let mut bounds: BTreeMap<Address, Option<LargestIndex>> = BTreeMap::new();
        for &load in loads {
            let bound = bound_of_load(self, load, &is_entered, factory);
            let register = self.instructions[load].memory_base().full_register();
            for base in self.sources(load, register, factory).bases {
                let known = bounds.entry(base).or_insert(Some(LargestIndex::default()));
                *known = known.and_then(|known| bound.map(|bound| bound.max(known)));
            }
        }
        for &base in found {
            let bound = bounds.get(&base).copied().flatten();
            let known = bases.entry(base).or_insert(bound);
            *known = known.and_then(|known| bound.map(|bound| bound.max(known)));
        }
    }

    /// All definitions of `register` that reach the instruction at `position`.
    fn sources(&self, position: usize, register: Register, factory: &mut InstructionInfoFactory) -> Sources {
        let mut sources = Sources::default();
        let mut visited = BTreeSet::new();
        let mut came_from_dispatch = BTreeSet::new();
        let mut pending = vec![(position, register.full_register())];
        while let Some((position, register)) = pending.pop() {
            if !visited.insert((position, register)) {
                continue;
            }
            if visited.len() > MAX_VISITED {
                sources.unknown = true;
                return sources;
            }
            let mut has_predecessor = false;
            for (predecessor, _) in self.predecessors(position) {
                has_predecessor = true;
                self.step(predecessor, register, factory, &mut sources, &mut pending);
            }
            if position == 0 {
                // The caller's value, an argument: made from a listed reference elsewhere.
                sources.pointer = true;
            } else if !has_predecessor && came_from_dispatch.insert(register) {
                // Reached only through a jump table, or as a landing pad, which keeps the registers that calls preserve:
                // the value is the one at some dispatch.
                pending.extend(self.register_jumps.iter().map(|&jump| (jump, register)));
            }
        }
        sources
    }

    fn step(
        &self,
        position: usize,
        register: Register,
        factory: &mut InstructionInfoFactory,
        sources: &mut Sources,
        pending: &mut Vec<(usize, Register)>,
    ) {
        let instruction = &self.instructions[position];
        if is_call(instruction) {
            match register {
                Register::RAX => sources.pointer = true,
                Register::RCX | Register::RDX | Register::RSI | Register::RDI => sources.unknown = true,
                Register::R8 | Register::R9 | Register::R10 | Register::R11 => sources.unknown = true,
                _ => pending.push((position, register)),
            }
            return;
        }
        if !writes(instruction, register, factory) {
            pending.push((position, register));
            return;
        }
        let is_register = |operand: u32| instruction.op_kind(operand) == OpKind::Register;
        let second = || instruction.op_register(1).full_register();
        match instruction.mnemonic() {
            Mnemonic::Pop => sources.pointer = true,
            Mnemonic::Lodsq if register == Register::RAX => sources.pointer = true,
            Mnemonic::Mov
                if instruction.code() == Code::Mov_r64_rm64 || instruction.code() == Code::Mov_rm64_r64 =>
            {
                if is_register(1) {
                    pending.push((position, second()));
                } else {
                    sources.pointer = true;
                }
            }
            // Entry k of a table is at base + 4·k: any other operand is another kind of table.
            Mnemonic::Movsxd if instruction.is_ip_rel_memory_operand() => {
                sources.loaded_at.insert(Address(instruction.ip_rel_memory_address()));
            }
            Mnemonic::Movsxd if !is_register(1) => {
                let is_entry =
                    instruction.memory_index_scale() == 4 && instruction.memory_displacement64() == 0;
                sources.loaded_distance |= is_entry;
                sources.unknown |= !is_entry;
                sources.loads.extend(is_entry.then_some(position));
            }
            // The distance was loaded as 32 bits first: follow that load.
            Mnemonic::Movsxd => self.follow_narrow(position, second(), factory, sources),
            Mnemonic::Cdqe => self.follow_narrow(position, Register::RAX, factory, sources),
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                sources.bases.insert(Address(instruction.ip_rel_memory_address()));
            }
            Mnemonic::Lea
                if instruction.memory_index() != Register::None
                    && instruction.memory_index_scale() == 1
                    && instruction.memory_displacement64() == 0 =>
            {
                let left = instruction.memory_base().full_register();
                let right = instruction.memory_index().full_register();
                self.follow_sum(position, left, right, factory, sources);
            }
            Mnemonic::Add if is_register(1) && instruction.op0_register().is_gpr64() => {
                self.follow_sum(position, register, second(), factory, sources);
            }
            // glibc stores some pointers rotated and mixed with a per-thread secret.
            Mnemonic::Xor if instruction.segment_prefix() == Register::FS => sources.pointer = true,
            _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 2 => {
                pending.push((position, register));
                if is_register(1) {
                    pending.push((position, second()));
                } else {
                    sources.pointer = true;
                }
            }
            _ => sources.unknown = true,
        }
    }

    fn follow_sum(
        &self,
        position: usize,
        left: Register,
        right: Register,
        factory: &mut InstructionInfoFactory,
        sources: &mut Sources,
    ) {
        let is_self_relative = self.is_loaded_from(position, right, left, factory)
            || self.is_loaded_from(position, left, right, factory);
        match is_self_relative {
            true => sources.self_relative = true,
            false => sources.sums.push((position, left, right)),
        }
    }

    /// Whether, shortly before `position`, `distance` was loaded from the address that `base` still holds.
    fn is_loaded_from(
        &self,
        position: usize,
        distance: Register,
        base: Register,
        factory: &mut InstructionInfoFactory,
    ) -> bool {
        for load in (position.saturating_sub(SUM_WINDOW)..position).rev() {
            let is_entered = self.branches.binary_search_by_key(&(load + 1), |(target, _)| *target).is_ok();
            let instruction = &self.instructions[load];
            if is_entered || !continues(instruction) || is_call(instruction) {
                return false;
            }
            if writes(instruction, distance, factory) {
                return instruction.mnemonic() == Mnemonic::Movsxd
                    && instruction.op1_kind() == OpKind::Memory
                    && instruction.memory_base() == base
                    && instruction.memory_index() == Register::None
                    && instruction.memory_displacement64() == 0
                    && distance != base;
            }
            if writes(instruction, base, factory) {
                return false;
            }
        }
        false
    }

    /// Whether the 32-bit value in `register` before `position` is a load from memory.
    fn follow_narrow(
        &self,
        position: usize,
        register: Register,
        factory: &mut InstructionInfoFactory,
        sources: &mut Sources,
    ) {
        for (load, instruction) in self.instructions[..position].iter().enumerate().rev().take(LOAD_WINDOW) {
            if writes(instruction, register, factory) {
                let is_load =
                    instruction.mnemonic() == Mnemonic::Mov && instruction.op1_kind() == OpKind::Memory;
                sources.loaded_distance |= is_load;
                sources.unknown |= !is_load;
                let is_entry = is_load && instruction.memory_index_scale() == 4;
                sources.loads.extend(is_entry.then_some(load));
                return;
            }
        }
        sources.unknown = true;
    }
}

/// Whether control can continue from `instruction` to the next one.
pub(super) fn continues(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    )
}

pub(super) fn writes(
    instruction: &Instruction,
    register: Register,
    factory: &mut InstructionInfoFactory,
) -> bool {
    factory.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == register
            && matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
    })
}
