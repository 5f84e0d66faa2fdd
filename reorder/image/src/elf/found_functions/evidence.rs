//! Whether a function begins where an instruction says that something is.
//!
//! In compiled code that is nearly always so, but code that is written by hand keeps constants beside it. Their bytes may decode,
//! yet four of them state the distance to a function by chance in one case of 2³² divided by the number of functions. So one
//! branch to a known function is evidence, if it is found before control would run from these bytes into others.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::search::{Search, stops};
use crate::decode::padding::is_no_operation;
use reorder_base::address::Address;

/// Instructions that are looked at.
const MAX_INSTRUCTIONS: usize = 512;

/// Whether what control reaches from `place` decodes, and calls or jumps to the start of a function that is known from
/// elsewhere. Control does not run into filler, nor from one function into the next except after a call, which may not return.
pub(super) fn is_function(search: &Search<'_, '_>, place: Address) -> bool {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![place]);
    let mut leads_to_function = false;
    while let Some(place) = waiting.pop() {
        let Some(arena) = search.code.arena_of(place) else { return false };
        let bytes = search.code.bytes(place..arena.end);
        let mut decoder = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut follows_call = true;
        while decoder.can_decode() && seen.len() < MAX_INSTRUCTIONS && seen.insert(decoder.ip()) {
            let is_start = search.is_start(Address(decoder.ip()));
            decoder.decode_out(&mut instruction);
            let is_filler = is_no_operation(&instruction) || instruction.mnemonic() == Mnemonic::Int3;
            if (is_start || is_filler) && follows_call {
                break;
            }
            if is_start || instruction.mnemonic() == Mnemonic::Int3 || !is_ordinary(&instruction) {
                return false;
            }
            if is_filler {
                break;
            }
            if instruction.op0_kind() == OpKind::NearBranch64 {
                let target = Address(instruction.near_branch_target());
                let is_in_code = search.code.arena_of(target).is_some();
                match is_in_code && search.is_start(target) {
                    true => leads_to_function = true,
                    false if is_in_code && !instruction.is_call_near() => waiting.push(target),
                    false => {}
                }
            }
            if stops(&instruction) {
                break;
            }
            follows_call =
                matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        }
    }
    leads_to_function
}

/// Whether programs execute an instruction.
fn is_ordinary(instruction: &Instruction) -> bool {
    let is_of_system = instruction.is_privileged()
        || matches!(instruction.flow_control(), FlowControl::Interrupt | FlowControl::XbeginXabortXend);
    !instruction.is_invalid() && !is_of_system
}
