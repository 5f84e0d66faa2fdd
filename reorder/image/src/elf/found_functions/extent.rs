//! Where a function ends that control was seen to enter.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::search::{Stated, stated};
use crate::decode::control::stops;
use crate::decode::padding::is_no_operation;
use reorder_base::address::Address;

/// More instructions than compilers give one function.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// A function that control was seen to enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its bytes.
    pub range: Range<Address>,
    /// Addresses that its instructions read or write.
    pub read: Vec<Address>,
}

/// The function at `start`. `code` begins there and ends at the next known function. The function goes up to the last instruction
/// that direct branches lead to from its start, with nothing but filler between. Each instruction takes one from `budget`.
/// `None` where control leads to bytes that are no instruction, or into the middle of one, and when the budget is used up.
///
/// Jump tables are not read, so a function may end too early; its later parts are then functions of their own when control enters
/// them.
#[must_use]
pub fn extent(code: &[u8], start: Address, budget: &mut usize) -> Option<Extent> {
    let end = start.0.checked_add(code.len() as u64)?;
    let reached = reached(code, start.0..end, budget)?;
    let is_reached = |place: &u64| reached.contains_key(place);
    let mut decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut last, mut read) = (start.0, Vec::new());
    while decoder.can_decode() {
        let place = decoder.ip();
        decoder.decode_out(&mut instruction);
        let next = instruction.next_ip();
        if is_reached(&place) {
            last = next;
            if let Some(Stated::Read(place)) = stated(&instruction) {
                read.push(Address(place));
            }
        } else if instruction.is_invalid() || !is_filler(&instruction) {
            break;
        }
        // A branch leads into the middle of this instruction.
        if reached.range(place + 1..next).next().is_some() {
            return None;
        }
    }
    (last > start.0).then_some(Extent { range: start..Address(last), read })
}

/// The instructions that direct branches lead to from the start of `range`, with their lengths. Filler after a call counts as
/// reached, because loops are aligned, unless it is a trap.
fn reached(code: &[u8], range: Range<u64>, budget: &mut usize) -> Option<BTreeMap<u64, usize>> {
    let (mut reached, mut waiting) = (BTreeMap::new(), vec![range.start]);
    let mut instruction = Instruction::default();
    while let Some(place) = waiting.pop() {
        let bytes = code.get(usize::try_from(place - range.start).ok()?..)?;
        let mut decoder = Decoder::with_ip(64, bytes, place, DecoderOptions::NONE);
        let mut follows_call = false;
        while decoder.can_decode() {
            let place = decoder.ip();
            decoder.decode_out(&mut instruction);
            *budget = budget.checked_sub(1)?;
            if instruction.is_invalid() || reached.len() == MAX_INSTRUCTIONS {
                return None;
            }
            if follows_call && instruction.mnemonic() == Mnemonic::Int3 {
                break;
            }
            if reached.insert(place, instruction.len()).is_some() {
                break;
            }
            let is_jump = instruction.op0_kind() == OpKind::NearBranch64 && !instruction.is_call_near();
            let target = instruction.near_branch_target();
            if is_jump && range.contains(&target) {
                waiting.push(target);
            }
            if stops(&instruction) {
                break;
            }
            follows_call =
                matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        }
    }
    Some(reached)
}

/// What linkers and compilers put between instructions that run.
fn is_filler(instruction: &Instruction) -> bool {
    is_no_operation(instruction) || instruction.mnemonic() == Mnemonic::Int3
}

#[cfg(test)]
mod tests {
    use super::extent;
    use reorder_base::address::Address;

    const START: Address = Address(0x1000);

    fn size(code: &[u8]) -> Option<u64> {
        let mut budget = 100;
        extent(code, START, &mut budget).map(|found| found.range.end.distance_from(found.range.start))
    }

    #[test]
    fn a_function_goes_up_to_the_last_instruction_that_branches_lead_to() {
        // je +2; ret; int3; xor eax, eax; ret; then another function
        assert_eq!(size(&[0x74, 2, 0xc3, 0xcc, 0x31, 0xc0, 0xc3, 0x55, 0xc3]), Some(7));
        assert_eq!(size(&[0xc3, 0x90, 0x90, 0x55]), Some(1), "filler after it belongs to none");
        // A jump back into it, and a call that is no way to go on in it.
        assert_eq!(size(&[0x90, 0xe8, 4, 0, 0, 0, 0xeb, 0xf8, 0x90, 0x90, 0x55]), Some(8));
        assert_eq!(size(&[0xe8, 4, 0, 0, 0, 0xcc, 0x90, 0x55, 0xc3]), Some(5), "the call does not return");
        assert_eq!(size(&[0xe8, 4, 0, 0, 0, 0x90, 0x90, 0x55, 0xc3]), Some(9), "an aligned loop");
    }

    #[test]
    fn code_that_branches_do_not_reach_ends_it() {
        // je over a jump through a register and its case, to a return.
        assert_eq!(size(&[0x74, 3, 0xff, 0xe0, 0x55, 0xc3]), Some(4));
    }

    #[test]
    fn what_a_function_reads_is_known() {
        // mov eax, [rip+2]; ret
        let found = extent(&[0x8b, 0x05, 2, 0, 0, 0, 0xc3], START, &mut 10).expect("a function");
        assert_eq!(found.read, [Address(0x1008)]);
    }

    #[test]
    fn bytes_that_are_read_in_two_ways_are_no_function() {
        // je into the middle of mov eax, imm32
        assert_eq!(size(&[0x74, 1, 0xb8, 0x90, 0x90, 0x90, 0xc3, 0xc3]), None);
        assert_eq!(size(&[0x06]), None, "no instruction");
        assert_eq!(size(&[]), None);
        assert_eq!(extent(&[0x90, 0x90, 0xc3], START, &mut 2), None, "the budget is used up");
    }
}
