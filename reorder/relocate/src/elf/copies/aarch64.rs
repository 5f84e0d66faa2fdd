//! Steps of AArch64 code.
//! Source: Arm Architecture Reference Manual, DDI 0487, chapter C4.

use super::step::{Form, Reference, Step, Use};
use reorder_base::address::Address;
use reorder_image::code_reference::CodeForm;
use reorder_image::decode::aarch64::{Operation, WORD, decode};

/// The instruction at the start of `bytes`, which lie at `address`; `None` when they are not one.
pub(super) fn step(bytes: &[u8], address: Address) -> Option<Step> {
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let stated = |target, form, usage| Some(Reference { target, place: address, form, usage });
    let operation = decode(word, address);
    let (continues, reference) = match operation {
        Operation::Invalid => return None,
        Operation::Branch(target) => (false, stated(target, Form::Far(CodeForm::Branch26), Use::Jump)),
        Operation::Call(target) => (true, stated(target, Form::Far(CodeForm::Branch26), Use::Call)),
        Operation::ConditionalBranch(target) => {
            (true, stated(target, Form::Near(conditional_reach(word)), Use::Jump))
        }
        // The program's own handler may continue after a breakpoint.
        Operation::Trap if word & 0xffe0_001f == 0xd420_0000 => (true, None),
        Operation::BranchRegister(_) | Operation::Return | Operation::Trap => (false, None),
        Operation::Adr(_, target) => (true, stated(target, Form::Far(CodeForm::Adr), Use::Value)),
        // The instructions that complete it stay relative to the same page, so pairs need not be found.
        Operation::Adrp(_, target) => (true, stated(target, Form::Far(CodeForm::Page), Use::Value)),
        Operation::LoadLiteral(_, target) => {
            (true, stated(target, Form::Far(CodeForm::LoadLiteral), Use::Value))
        }
        _ => (true, None),
    };
    let is_call = matches!(operation, Operation::Call(_) | Operation::CallRegister(_));
    let is_trap = matches!(operation, Operation::Trap);
    Some(Step {
        length: WORD as u8,
        continues,
        is_call,
        is_skippable: false,
        is_trap,
        reference,
        guard: None,
    })
}

/// Bytes that a conditional branch reaches forwards: 14 bits of words where it tests a bit, else 19.
pub(super) fn conditional_reach(word: u32) -> u32 {
    /// `TBZ` and `TBNZ`.
    const TESTS_BIT: u32 = 0x3600_0000;
    if word & 0x7e00_0000 == TESTS_BIT { 0x7ffc } else { 0xf_fffc }
}
