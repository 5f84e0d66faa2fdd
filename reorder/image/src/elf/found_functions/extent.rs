//! Where a function ends that control was seen to enter.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

use crate::decode::control::stops;
use crate::decode::padding::is_no_operation;
use reorder_base::address::Address;

/// More instructions than compilers give one function.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// The function that begins at `start`, with the first byte of `code`; the code ends where the next known function begins. The
/// function goes up to the last instruction that direct branches lead to from its start, with nothing but filler between.
/// `None` where control leads to bytes that are no instruction, or into the middle of one.
///
/// Jump tables are not read, so a function may end early. What control is seen to enter after that is a function of its own.
#[must_use]
pub fn extent(code: &[u8], start: Address) -> Option<Range<Address>> {
    let end = start.0.checked_add(code.len() as u64)?;
    let reached = reached(code, start.0..end)?;
    let is_reached = |place: &u64| reached.contains_key(place);
    let mut decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut last = start.0;
    while decoder.can_decode() {
        let place = decoder.ip();
        decoder.decode_out(&mut instruction);
        let next = instruction.next_ip();
        if is_reached(&place) {
            last = next;
        } else if instruction.is_invalid() || !is_filler(&instruction) {
            break;
        }
        // Another reading of these bytes.
        if reached.range(place + 1..next).next().is_some() {
            return None;
        }
    }
    (last > start.0).then_some(start..Address(last))
}

/// The instructions that direct branches lead to from the start of `range`, with their lengths.
fn reached(code: &[u8], range: Range<u64>) -> Option<BTreeMap<u64, usize>> {
    let (mut reached, mut waiting) = (BTreeMap::new(), vec![range.start]);
    let mut instruction = Instruction::default();
    while let Some(place) = waiting.pop() {
        let bytes = code.get(usize::try_from(place - range.start).ok()?..)?;
        let mut decoder = Decoder::with_ip(64, bytes, place, DecoderOptions::NONE);
        while decoder.can_decode() {
            let place = decoder.ip();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() || reached.len() == MAX_INSTRUCTIONS {
                return None;
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
        extent(code, START).map(|range| range.end.distance_from(range.start))
    }

    #[test]
    fn a_function_goes_up_to_the_last_instruction_that_branches_lead_to() {
        // je +2; ret; int3; xor eax, eax; ret; then another function
        assert_eq!(size(&[0x74, 2, 0xc3, 0xcc, 0x31, 0xc0, 0xc3, 0x55, 0xc3]), Some(7));
        assert_eq!(size(&[0xc3, 0x90, 0x90, 0x55]), Some(1), "filler after it belongs to none");
        // A jump back into it, and a call that is no way to go on in it.
        assert_eq!(size(&[0x90, 0xe8, 4, 0, 0, 0, 0xeb, 0xf8, 0x90, 0x90, 0x55]), Some(8));
    }

    #[test]
    fn code_that_branches_do_not_reach_ends_it() {
        // je over a jump through a register and its case, to a return.
        assert_eq!(size(&[0x74, 3, 0xff, 0xe0, 0x55, 0xc3]), Some(4));
    }

    #[test]
    fn bytes_that_are_read_in_two_ways_are_no_function() {
        // je into the middle of mov eax, imm32
        assert_eq!(size(&[0x74, 1, 0xb8, 0x90, 0x90, 0x90, 0xc3, 0xc3]), None);
        assert_eq!(size(&[0x06]), None, "no instruction");
        assert_eq!(size(&[]), None);
    }
}
