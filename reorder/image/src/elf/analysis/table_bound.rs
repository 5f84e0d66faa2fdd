//! The number of entries of a jump table that the code can reach.
//!
//! Follows the index of the load backwards over *every* path, through copies, extensions and sums with constants, to
//! the comparison or mask that bounds it. The result is the largest index of all paths plus one; if any path has no bound,
//! neither has the table. It is an upper bound: if the compiler knew more than the comparison or mask states, the table is shorter.
//!
//! The result is sound because a comparison counts only if no instruction writes the value between it and its branch, only
//! for the side of the branch that leads here, and only if it is as wide as the known part of the value.

use std::collections::BTreeSet;

use iced_x86::{ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::dispatch::{BlockFlow, writes};
use super::index_value::{IndexValue, LargestIndex, Location, Range, Step, step_back};
use crate::decode::x86_64::is_call;

/// Bound on the states that one search visits; a longer search gives no bound.
const MAX_STATES: usize = 4_000;
/// Bound on the instructions between a comparison and its branch, and between a copy and the comparison of its source.
const MAX_DISTANCE: usize = 32;
/// Bound on the entries of one table; compilers emit fewer.
const MAX_ENTRIES: u64 = 1 << 16;

/// One state of a search: the value before the instruction at `position`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    position: usize,
    value: IndexValue,
}

/// The largest index that the load at `load` can read. `is_entered` tells which positions a jump table may lead to; their
/// predecessors are not known here.
pub(crate) fn bound_of_load(
    flow: &BlockFlow,
    load: usize,
    is_entered: &dyn Fn(usize) -> bool,
    factory: &mut InstructionInfoFactory,
) -> Option<LargestIndex> {
    let index = flow.instructions()[load].memory_index();
    if index == Register::None {
        return None;
    }
    let mut largest = LargestIndex::default();
    let mut visited = BTreeSet::new();
    let mut pending = vec![State { position: load, value: IndexValue::in_register(index) }];
    while let Some(state) = pending.pop() {
        if visited.len() >= MAX_STATES || is_entered(state.position) {
            return None;
        }
        if !visited.insert(state.clone()) {
            continue;
        }
        let mut has_predecessor = false;
        for (before, is_taken) in flow.predecessors(state.position) {
            has_predecessor = true;
            let mut value = state.value.clone();
            if let Some(range) = range_on_edge(flow, before, is_taken, &value, factory) {
                match value.restrict(range) {
                    Some(last) => {
                        largest = largest.max(last);
                        continue;
                    }
                    None => value.remember(range),
                }
            }
            let instruction = &flow.instructions()[before];
            if is_call(instruction) && !value.location.survives_call() {
                return None;
            }
            match step_back(instruction, &value, factory) {
                Step::Same => pending.push(State { position: before, value }),
                Step::Known(last) => largest = largest.max(last),
                Step::From(values) => {
                    pending.extend(values.into_iter().map(|value| State { position: before, value }));
                }
                Step::Unknown => return None,
            }
        }
        if !has_predecessor || state.position == 0 {
            return None;
        }
    }
    (largest.index < MAX_ENTRIES).then_some(largest)
}

/// The range of the value that the branch at `branch` admits on this path.
fn range_on_edge(
    flow: &BlockFlow,
    branch: usize,
    is_taken: bool,
    value: &IndexValue,
    factory: &mut InstructionInfoFactory,
) -> Option<Range> {
    let instructions = flow.instructions();
    if instructions[branch].flow_control() != FlowControl::ConditionalBranch {
        return None;
    }
    let comparison = comparison_before(flow, branch)?;
    let instruction = &instructions[comparison];
    let compared = Location::of_operand(instruction, 0)?;
    // The comparison must be of the value as it is at the branch.
    let is_written =
        |location: &Location, range: std::ops::Range<usize>, factory: &mut InstructionInfoFactory| {
            instructions[range].iter().any(|between| location.is_written_by(between, factory))
        };
    if is_written(&value.location, comparison + 1..branch, factory) {
        return None;
    }
    let is_same = compared.is_same_place(&value.location)
        || is_copy(flow, comparison, &compared, &value.location, value.bits, factory);
    if !is_same {
        return None;
    }
    Range::admitted(instruction, instructions[branch].condition_code(), is_taken)
}

/// The comparison whose flags the branch at `branch` reads, if no other code can jump in between.
fn comparison_before(flow: &BlockFlow, branch: usize) -> Option<usize> {
    let mut position = branch;
    while position > 0 && branch - position < MAX_DISTANCE {
        if flow.is_branch_target(position) {
            return None;
        }
        position -= 1;
        let instruction = &flow.instructions()[position];
        if instruction.mnemonic() == Mnemonic::Cmp {
            return matches!(
                instruction.op1_kind(),
                OpKind::Immediate8
                    | OpKind::Immediate8to16
                    | OpKind::Immediate8to32
                    | OpKind::Immediate8to64
                    | OpKind::Immediate16
                    | OpKind::Immediate32
                    | OpKind::Immediate32to64
            )
            .then_some(position);
        }
        let keeps_flags = instruction.rflags_modified() == 0
            && matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
        if !keeps_flags {
            return None;
        }
    }
    None
}

/// Whether `left` and `right` hold the same lowest `bits` at `position`, because one was copied from the other earlier.
fn is_copy(
    flow: &BlockFlow,
    position: usize,
    left: &Location,
    right: &Location,
    bits: u32,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let mut current = position;
    while current > 0 && position - current < MAX_DISTANCE {
        if flow.is_branch_target(current) {
            return false;
        }
        current -= 1;
        let instruction = &flow.instructions()[current];
        if !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            return false;
        }
        let source = |destination: &Location, source: &Location| {
            instruction.mnemonic() == Mnemonic::Mov
                && instruction.condition_code() == ConditionCode::None
                && Location::of_operand(instruction, 0).is_some_and(|to| to.is_same_place(destination))
                && Location::of_operand(instruction, 1)
                    .is_some_and(|from| from.is_same_place(source) && from.bits() >= bits.min(32))
        };
        let writes_left = left.is_written_by(instruction, factory);
        let writes_right = right.is_written_by(instruction, factory);
        if writes_left || writes_right {
            return (writes_left && source(left, right)) || (writes_right && source(right, left));
        }
    }
    false
}

/// Whether `instruction` writes `register`, calls included.
pub(super) fn writes_register(
    instruction: &Instruction,
    register: Register,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let is_kept = matches!(
        register,
        Register::RBX
            | Register::RBP
            | Register::RSP
            | Register::R12
            | Register::R13
            | Register::R14
            | Register::R15
    );
    if is_call(instruction) { !is_kept } else { writes(instruction, register, factory) }
}
