//! Functions that can run without their first instruction: parts that compilers split off and that jumps enter
//! somewhere in the middle. A trace knows functions by their first instruction, so it cannot have these.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{Function, FunctionIndex, FunctionTable};

/// The functions that are entered in the middle by a jump from one of `running`, or from one that is entered so itself.
///
/// Each function is decoded once. On processors other than x86-64 there are none: their code is not decoded.
pub(super) fn entered_in_the_middle(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    running: &[FunctionIndex],
) -> BTreeSet<FunctionIndex> {
    let mut open = running.to_vec();
    let mut seen: BTreeSet<FunctionIndex> = running.iter().copied().collect();
    let mut entered = BTreeSet::new();
    while let Some(index) = open.pop() {
        for target in jumps_out_of(file, functions.get(index)) {
            let Some(other) = functions.containing(target) else { continue };
            if functions.get(other).start != target && seen.insert(other) {
                entered.insert(other);
                open.push(other);
            }
        }
    }
    entered
}

/// Where direct jumps lead that leave `function`.
fn jumps_out_of(file: &ElfFile<'_>, function: &Function) -> Vec<Address> {
    let mut targets = Vec::new();
    if file.processor != Processor::X86_64 {
        return targets;
    }
    let Some(bytes) = file.bytes_at(function.start, function.size()) else { return targets };
    for instruction in Decoder::with_ip(64, bytes, function.start.0, DecoderOptions::NONE) {
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        if is_jump && instruction.op0_kind() == OpKind::NearBranch64 {
            let target = Address(instruction.near_branch_target());
            if target < function.start || target >= function.end {
                targets.push(target);
            }
        }
    }
    targets
}
