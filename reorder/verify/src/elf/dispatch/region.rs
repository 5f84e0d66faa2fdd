//! The code of a function with the parts that compilers split off, which control enters only by jumps.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::endings::Endings;
use super::formed::{Formed, RegisterSet, written_by};
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use reorder_base::address::Address;

/// Parts of a region; only functions that are written by hand have more.
const MAX_PARTS: usize = 32;
/// Marks a byte at which no instruction starts.
const NONE: u32 = u32::MAX;

/// A jump from one function into the middle of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// Where it leads.
    pub(crate) target: Address,
    /// Index of the jumping function in the moves.
    pub(crate) source: u32,
}

/// Small functions that jump to the address in a register, with the number of the register.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thunks(Vec<(u64, usize)>);

impl Thunks {
    /// The thunks among all functions of `image`.
    pub(crate) fn of(image: &ElfView<'_>, moves: &AddressMoves) -> Self {
        const MAX_SIZE: u64 = 64;
        let small = moves.iter().filter(|range| range.size <= MAX_SIZE);
        Self(small.filter_map(|range| Some((range.old_start.0, thunk(image, range.old_start.0)?))).collect())
    }

    /// The register that the thunk at `target` jumps to.
    pub(crate) fn register(&self, target: u64) -> Option<usize> {
        let at = self.0.binary_search_by_key(&target, |&(start, _)| start).ok()?;
        Some(self.0[at].1)
    }
}

/// The register that the code at `start` jumps to, if it does nothing else.
fn thunk(image: &ElfView<'_>, start: u64) -> Option<usize> {
    const MAX_INSTRUCTIONS: usize = 8;
    const MAX_DISTANCE: u64 = 64;
    let section = image.section_at(start)?;
    let at = |address: u64| section.bytes.get(usize::try_from(address.checked_sub(section.address)?).ok()?..);
    let mut decoder = Decoder::with_ip(64, at(start)?, start, DecoderOptions::NONE);
    let mut returns_to = None;
    for _ in 0..MAX_INSTRUCTIONS {
        let instruction = decoder.decode();
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Lfence | Mnemonic::Pause | Mnemonic::Nop => {}
            Mnemonic::Call if instruction.op0_kind() == OpKind::NearBranch64 && returns_to.is_none() => {
                let target = instruction.near_branch_target();
                if target.wrapping_sub(start) > MAX_DISTANCE {
                    return None;
                }
                decoder = Decoder::with_ip(64, at(target)?, target, DecoderOptions::NONE);
                returns_to = Some(NONE as usize);
            }
            Mnemonic::Mov if replaces_return_address(&instruction) && returns_to.is_some() => {
                returns_to = Some(instruction.op1_register().full_register().number());
            }
            Mnemonic::Ret => return returns_to.filter(|&number| number != NONE as usize),
            Mnemonic::Jmp if instruction.op0_kind() == OpKind::Register => {
                return Some(instruction.op0_register().full_register().number());
            }
            _ => return None,
        }
    }
    None
}

/// Whether an instruction writes a register to where the stack pointer points.
pub(crate) fn replaces_return_address(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() == OpKind::Register
        && instruction.op1_register().is_gpr64()
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
}

/// One function of a region.
#[derive(Clone, Debug)]
struct Part {
    start: u64,
    /// For each byte, the index of the instruction that starts there, or [`NONE`].
    positions: Vec<u32>,
}

/// The instructions of a function and its parts.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(super) instructions: Vec<Instruction>,
    parts: Vec<Part>,
    /// Indices in the moves.
    pub(crate) members: Vec<u32>,
    /// Where other functions jump into it.
    pub(super) entries: Vec<u64>,
}

impl Region {
    /// The region of the function at index `owner` of the moves; `None` when some of it cannot be decoded. `entries` are
    /// sorted.
    pub(crate) fn of(
        image: &ElfView<'_>,
        moves: &AddressMoves,
        entries: &[Entry],
        owner: u32,
    ) -> Option<Self> {
        let members = members(moves, entries, owner);
        let mut region = Self { instructions: Vec::new(), parts: Vec::new(), members, entries: Vec::new() };
        for &member in &region.members {
            let range = moves.as_slice().get(member as usize)?;
            let (start, end) = (range.old_start.0, range.old_end().0);
            let bytes = image.code_at(start, end)?.at(start, range.size)?;
            let mut positions = vec![NONE; bytes.len()];
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            while decoder.can_decode() {
                positions[decoder.position()] = u32::try_from(region.instructions.len()).ok()?;
                let instruction = decoder.decode();
                if instruction.is_invalid() {
                    return None;
                }
                region.instructions.push(instruction);
            }
            region.parts.push(Part { start, positions });
            let inner = entries_into(entries, start, end);
            region
                .entries
                .extend(inner.iter().filter(|e| !region.members.contains(&e.source)).map(|e| e.target.0));
        }
        Some(region)
    }

    /// A function with this code, all of which is instructions.
    #[cfg(test)]
    pub(super) fn of_code(code: &[u8], start: u64) -> Self {
        let mut positions = vec![NONE; code.len()];
        let instructions: Vec<Instruction> =
            Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter().collect();
        for (position, instruction) in instructions.iter().enumerate() {
            positions[(instruction.ip() - start) as usize] = position as u32;
        }
        Self { instructions, parts: vec![Part { start, positions }], members: vec![0], entries: Vec::new() }
    }

    /// The position of the instruction that starts at `address`.
    pub(crate) fn position(&self, address: u64) -> Option<usize> {
        let part = self.parts.iter().find(|part| {
            address.checked_sub(part.start).is_some_and(|within| within < part.positions.len() as u64)
        })?;
        let position = part.positions[(address - part.start) as usize];
        (position != NONE).then_some(position as usize)
    }

    /// Whether `address` lies in the region.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.parts.iter().any(|part| {
            address.checked_sub(part.start).is_some_and(|within| within < part.positions.len() as u64)
        })
    }

    /// Where control enters the region from outside: the start of its function, and the targets of jumps of other functions.
    pub(crate) fn outer_entries(&self) -> impl Iterator<Item = u64> {
        self.starts().take(1).chain(self.entries.iter().copied())
    }

    /// Addresses of data that its instructions compute.
    pub(crate) fn named_data(&self, image: &ElfView<'_>) -> Vec<u64> {
        let formed = self.instructions.iter().filter(|instruction| instruction.mnemonic() == Mnemonic::Lea);
        let mut named: Vec<u64> = formed
            .filter(|instruction| instruction.is_ip_rel_memory_operand())
            .map(Instruction::ip_rel_memory_address)
            .filter(|&address| image.section_at(address).is_some_and(|section| !section.is_code()))
            .collect();
        named.sort_unstable();
        named.dedup();
        named
    }

    /// Numbers of indices that comparisons with constants may admit, ascending: compilers compare an index with such a
    /// constant before they read a table.
    pub(crate) fn compared_counts(&self) -> Vec<u64> {
        let compared = self.instructions.iter().filter(|instruction| instruction.mnemonic() == Mnemonic::Cmp);
        let mut counts: Vec<u64> = compared
            .filter_map(|instruction| instruction.try_immediate(1).ok())
            .filter(|&constant| constant < u64::from(u16::MAX))
            .flat_map(|constant| [constant, constant + 1])
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// The position of the instruction that control reaches after the one at `position`.
    pub(super) fn next(&self, position: usize) -> Option<usize> {
        self.position(self.instructions[position].next_ip())
    }

    /// Where each part begins; the function's own start comes first.
    pub(super) fn starts(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.start)
    }

    /// For each instruction, whether a block starts there; exceptions are caught at `pads`.
    pub(super) fn leaders(&self, pads: &[u64]) -> Vec<bool> {
        let mut is_leader = vec![false; self.instructions.len()];
        let places = self.starts().chain(self.entries.iter().copied()).chain(pads.iter().copied());
        for position in places.filter_map(|place| self.position(place)) {
            is_leader[position] = true;
        }
        for (position, instruction) in self.instructions.iter().enumerate() {
            if instruction.op0_kind() == OpKind::NearBranch64
                && let Some(target) = self.position(instruction.near_branch_target())
            {
                is_leader[target] = true;
            }
            let is_branch = !matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
            );
            if is_branch && let Some(next) = is_leader.get_mut(position + 1) {
                *next = true;
            }
        }
        is_leader
    }

    /// For each instruction, whether control certainly reaches it from `from`. `jumps` gives the targets of a computed jump,
    /// without the tables that the caller leaves out; `endings` says which calls never return.
    pub(crate) fn reached(
        &self,
        from: impl IntoIterator<Item = u64>,
        jumps: impl Fn(u64) -> Vec<u64>,
        endings: &Endings<'_>,
    ) -> Vec<bool> {
        let mut reached = vec![false; self.instructions.len()];
        let mut is_leader = self.leaders(&[]);
        let mut factory = InstructionInfoFactory::new();
        let mut work: Vec<usize> = from.into_iter().filter_map(|address| self.position(address)).collect();
        // Registers are unknown where control comes from elsewhere.
        work.iter().for_each(|&root| is_leader[root] = true);
        let is_jump = |instruction: &&Instruction| instruction.flow_control() == FlowControl::IndirectBranch;
        let places = self.instructions.iter().filter(is_jump).flat_map(|jump| jumps(jump.ip()));
        places.filter_map(|place| self.position(place)).for_each(|position| is_leader[position] = true);
        while let Some(mut position) = work.pop() {
            let mut formed = Formed::default();
            while !reached[position] {
                reached[position] = true;
                let instruction = &self.instructions[position];
                if is_leader[position] {
                    formed = Formed::default();
                }
                let flow = instruction.flow_control();
                let called = formed.called(instruction).filter(|_| flow == FlowControl::IndirectCall);
                let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
                formed.follow(
                    instruction,
                    if is_call { RegisterSet::MAX } else { written_by(instruction, &mut factory) },
                );
                let is_direct = instruction.op0_kind() == OpKind::NearBranch64;
                if is_direct {
                    work.extend(self.position(instruction.near_branch_target()));
                }
                if flow == FlowControl::IndirectBranch || flow == FlowControl::UnconditionalBranch {
                    work.extend(
                        jumps(instruction.ip()).into_iter().filter_map(|target| self.position(target)),
                    );
                }
                let ends = matches!(
                    flow,
                    FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                        | FlowControl::Return
                        | FlowControl::Exception
                ) || matches!(instruction.mnemonic(), Mnemonic::Int3 | Mnemonic::Hlt)
                    || endings.is_last(instruction)
                    || called.is_some_and(|(_, target)| endings.never_returns_from(target));
                match self.next(position).filter(|_| !ends) {
                    Some(next) => position = next,
                    None => break,
                }
            }
        }
        reached
    }
}

/// The function, those that jump into its middle and those into whose middle it jumps, and so on.
fn members(moves: &AddressMoves, entries: &[Entry], owner: u32) -> Vec<u32> {
    let mut members = vec![owner];
    let mut at = 0;
    while at < members.len() && members.len() < MAX_PARTS {
        let member = members[at];
        at += 1;
        let Some(range) = moves.as_slice().get(member as usize) else { continue };
        let into = entries_into(entries, range.old_start.0, range.old_end().0);
        let mut others: Vec<u32> = into.iter().map(|entry| entry.source).collect();
        others.sort_unstable();
        others.dedup();
        members.extend(others.into_iter().filter(|other| !members.contains(other)).collect::<Vec<_>>());
    }
    members.truncate(MAX_PARTS);
    members
}

fn entries_into(entries: &[Entry], start: u64, end: u64) -> &[Entry] {
    let first = entries.partition_point(|entry| entry.target.0 <= start);
    let last = entries.partition_point(|entry| entry.target.0 < end);
    entries.get(first..last).unwrap_or_default()
}
