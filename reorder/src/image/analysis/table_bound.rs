//! How many entries the code in front of a dispatch admits.
//!
//! Follows the index of the table's load backwards, through copies and small sums, to the unsigned comparison or
//! mask that bounds it. The result is a cross-check of a table's extent, never its only proof: a bound that admits
//! more entries than were found says that the extent is short.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Instructions looked at.
const WINDOW: usize = 96;
/// The branch that uses a comparison follows within this many instructions.
const BRANCH_DISTANCE: usize = 3;

/// Entries that the code before the jump at `position` lets through, if that can be told.
pub fn bound_before(instructions: &[Instruction], position: usize) -> Option<u64> {
    let dispatch = instructions[position].ip();
    let window = &instructions[position.saturating_sub(WINDOW)..position];
    let load = window.iter().rposition(|instruction| {
        matches!(instruction.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov)
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_index_scale() == 4
    })?;
    let mut index = Index { register: Some(window[load].memory_index().full_register()), memory: None };
    for (position, instruction) in window[..load].iter().enumerate().rev() {
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            // What stands before is not on the way to the dispatch, or clobbers the index.
            _ => return None,
        }
        if !index.is_operand_of(instruction) {
            continue;
        }
        match instruction.mnemonic() {
            Mnemonic::Cmp => {
                let following = window[position + 1..].iter().take(BRANCH_DISTANCE);
                let bound = following
                    .filter(|next| next.flow_control() == FlowControl::ConditionalBranch)
                    .find_map(|branch| admitted(instruction, branch, dispatch));
                if bound.is_some() {
                    return bound;
                }
            }
            Mnemonic::Test => {}
            Mnemonic::And => {
                let mask = instruction.try_immediate(1).ok()? & operand_mask(instruction);
                return ((mask + 1).is_power_of_two() && mask < 1 << 16).then_some(mask + 1);
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => {}
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                index.came_from(instruction)?
            }
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                index.register = Some(instruction.memory_base().full_register());
            }
            _ => return None,
        }
        // The original may be compared after the copy was made.
        if let Some(bound) = compared_after(&window[position + 1..load], &index, dispatch) {
            return Some(bound);
        }
    }
    None
}

/// The bound from the first comparison in `window` of where the value is, while it stays there.
fn compared_after(window: &[Instruction], index: &Index, dispatch: u64) -> Option<u64> {
    let position = window.iter().position(|instruction| index.is_operand_of(instruction))?;
    let comparison = &window[position];
    if comparison.mnemonic() != Mnemonic::Cmp {
        return None;
    }
    let following = window[position + 1..].iter().take(BRANCH_DISTANCE);
    following
        .filter(|next| next.flow_control() == FlowControl::ConditionalBranch)
        .find_map(|branch| admitted(comparison, branch, dispatch))
}

/// Where the value that will be the table's index is at some point before the load.
struct Index {
    register: Option<Register>,
    /// Base, index register and displacement of the memory it was loaded from.
    memory: Option<(Register, Register, u64)>,
}

impl Index {
    /// The instruction's first operand is where the value is.
    fn is_operand_of(&self, instruction: &Instruction) -> bool {
        match instruction.op0_kind() {
            OpKind::Register => self.register == Some(instruction.op0_register().full_register()),
            OpKind::Memory => self.memory == Some(memory_operand(instruction)),
            _ => false,
        }
    }

    /// Steps back over a copy; none when the value came from nowhere that can be followed.
    fn came_from(&mut self, instruction: &Instruction) -> Option<()> {
        match instruction.op1_kind() {
            OpKind::Register => self.register = Some(instruction.op1_register().full_register()),
            OpKind::Memory => {
                self.register = None;
                self.memory = Some(memory_operand(instruction));
            }
            _ => return None,
        }
        Some(())
    }
}

fn memory_operand(instruction: &Instruction) -> (Register, Register, u64) {
    (instruction.memory_base(), instruction.memory_index(), instruction.memory_displacement64())
}

/// Indices that pass the unsigned `comparison` on the way through or past `branch` to the dispatch.
fn admitted(comparison: &Instruction, branch: &Instruction, dispatch: u64) -> Option<u64> {
    let mask = operand_mask(comparison);
    let limit = comparison.try_immediate(1).ok()? & mask;
    let target = branch.near_branch_target();
    let leads_there = branch.ip() < target && target <= dispatch;
    match (branch.mnemonic(), leads_there) {
        (Mnemonic::Ja, false) | (Mnemonic::Jbe, true) => limit.checked_add(1),
        (Mnemonic::Jae, false) | (Mnemonic::Jb, true) => Some(limit),
        // The index was moved to the other end of the range: x ≥ −n as an unsigned number admits n values.
        (Mnemonic::Jb, false) | (Mnemonic::Jae, true) => Some(mask - limit + 1),
        (Mnemonic::Jbe, false) | (Mnemonic::Ja, true) => Some(mask - limit),
        _ => None,
    }
    .filter(|&bound| bound <= u64::from(u16::MAX))
}

/// All bits of the first operand's width, short of the full 64 so that sums do not wrap.
fn operand_mask(instruction: &Instruction) -> u64 {
    let size = match instruction.op0_kind() {
        OpKind::Memory => instruction.memory_size().size(),
        _ => instruction.op0_register().size(),
    };
    match size {
        1 => 0xff,
        2 => 0xffff,
        4 => 0xffff_ffff,
        _ => u64::MAX >> 1,
    }
}
