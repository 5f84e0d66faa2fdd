//! Whether the place that an address names is a function's start.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

use super::search::{Search, stops};
use reorder_base::address::Address;

/// Instructions that are looked at.
const MAX_INSTRUCTIONS: usize = 512;

/// Whether what control reaches from `place` decodes, and calls or jumps to the start of a function that is known from
/// elsewhere. Four bytes of data state the distance to one by chance in one case of 2³² divided by the number of functions.
pub(super) fn is_function(search: &Search<'_, '_>, place: Address) -> bool {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![place]);
    let mut leads_to_function = false;
    while let Some(place) = waiting.pop() {
        let Some(arena) = search.code.arena_of(place) else { return false };
        let bytes = search.code.bytes(place..arena.end);
        let mut decoder = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() && seen.len() < MAX_INSTRUCTIONS && seen.insert(decoder.ip()) {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return false;
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
        }
    }
    leads_to_function
}
