//! Whether a function begins where an instruction says that something is.
//!
//! In compiled code that is nearly always so. Hand-written code keeps constants among its code, and these may decode, but hardly
//! ever to a branch exactly to a known function or to another place that something names: a distance has 2³² values. So one such
//! branch is evidence, if no path falls into filler or another function.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::search::Search;
use crate::decode::control::stops;
use crate::decode::padding::is_no_operation;
use reorder_base::address::Address;

/// Instructions that are looked at.
const MAX_INSTRUCTIONS: usize = 512;

/// Bytes of the shortest branch with four bytes of distance.
const NEAR: usize = 5;

/// What speaks for a function.
pub(super) enum Evidence {
    /// It calls or jumps to the start of a function that is known from elsewhere, to another place that something names, or to a stub
    /// of the linker.
    LeadsToFunction,
    /// The first instructions that control reaches decode, and control falls neither into filler nor into another function, except after a call:
    /// callees may not return.
    Decodes,
    /// Neither.
    None,
}

/// What speaks for a function at `place`. Each instruction takes one from `budget`; nothing speaks for one when it is used up.
pub(super) fn evidence(search: &Search<'_, '_>, place: Address, budget: &mut usize) -> Evidence {
    let (start, mut seen, mut waiting) = (place, BTreeSet::new(), vec![place]);
    let mut leads_to_function = false;
    while let Some(place) = waiting.pop() {
        let Some(arena) = search.code.arena_of(place) else { return Evidence::None };
        let bytes = search.code.bytes(place..arena.end);
        let mut decoder = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut follows_call = true;
        while decoder.can_decode() && seen.len() < MAX_INSTRUCTIONS && seen.insert(decoder.ip()) {
            let is_start = search.is_start(Address(decoder.ip()));
            decoder.decode_out(&mut instruction);
            let Some(rest) = budget.checked_sub(1) else { return Evidence::None };
            *budget = rest;
            let is_filler = is_no_operation(&instruction) || instruction.mnemonic() == Mnemonic::Int3;
            if (is_start || is_filler) && follows_call {
                break;
            }
            if is_start || instruction.mnemonic() == Mnemonic::Int3 || !is_ordinary(&instruction) {
                return Evidence::None;
            }
            if is_filler {
                break;
            }
            if instruction.op0_kind() == OpKind::NearBranch64 {
                let target = Address(instruction.near_branch_target());
                let is_in_code = search.code.arena_of(target).is_some();
                let is_stub = search.code.fixed.iter().any(|stubs| stubs.contains(&target));
                // One byte of distance fits by chance.
                let is_near = instruction.len() >= NEAR;
                match is_near && (is_stub || is_in_code && target != start && search.is_named(target)) {
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
    if leads_to_function { Evidence::LeadsToFunction } else { Evidence::Decodes }
}

/// Whether programs execute an instruction.
fn is_ordinary(instruction: &Instruction) -> bool {
    let is_of_system = instruction.is_privileged()
        || matches!(instruction.flow_control(), FlowControl::Interrupt | FlowControl::XbeginXabortXend);
    !instruction.is_invalid() && !is_of_system
}
