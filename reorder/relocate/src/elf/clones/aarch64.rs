//! Steps of AArch64 code.
//! Source: Arm Architecture Reference Manual, DDI 0487, chapter C4.

use super::step::{Reference, Step, Use};
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
        Operation::Branch(target) => (false, stated(target, Some(CodeForm::Branch26), Use::Jump)),
        Operation::Call(target) => (true, stated(target, Some(CodeForm::Branch26), Use::Call)),
        Operation::ConditionalBranch(target) => (true, stated(target, None, Use::Jump)),
        // The program's own handler may continue after a breakpoint.
        Operation::Trap if word & 0xffe0_001f == 0xd420_0000 => (true, None),
        Operation::BranchRegister(_) | Operation::Return | Operation::Trap => (false, None),
        Operation::Adr(_, target) => (true, stated(target, Some(CodeForm::Adr), Use::Value)),
        // The instructions that complete it stay relative to the same page, so pairs need not be found.
        Operation::Adrp(_, target) => (true, stated(target, Some(CodeForm::Page), Use::Value)),
        Operation::LoadLiteral(_, target) => (true, stated(target, Some(CodeForm::LoadLiteral), Use::Value)),
        _ => (true, None),
    };
    let is_call = matches!(operation, Operation::Call(_) | Operation::CallRegister(_));
    Some(Step { length: WORD as u8, continues, is_call, reference })
}
