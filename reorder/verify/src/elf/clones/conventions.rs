//! Some code reads its data through a register that calls preserve, and never sets it. Its run-time set the register, and knows where
//! calls of that code return to. A copied call returns elsewhere.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::copies::{Copies, bytes_from};
use crate::aarch64::{Form, effects, form, register};
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// Instructions of the callee that are read.
const MAX_INSTRUCTIONS: usize = 48;
const PRESERVED: [Register; 5] = [Register::RBX, Register::R12, Register::R13, Register::R14, Register::R15];

/// Which registers that calls preserve are used to address memory, and which are operands themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PreservedRegisters {
    addressing: [bool; PRESERVED.len()],
    named: [bool; PRESERVED.len()],
}

impl PreservedRegisters {
    /// Takes note of the operands of `instruction`.
    pub(super) fn note(&mut self, instruction: &Instruction) {
        for operand in 0..instruction.op_count() {
            let (list, register) = match instruction.op_kind(operand) {
                OpKind::Register => (&mut self.named, instruction.op_register(operand)),
                OpKind::Memory if instruction.mnemonic() != Mnemonic::Lea => {
                    (&mut self.addressing, instruction.memory_base())
                }
                _ => continue,
            };
            if let Some(number) = PRESERVED.iter().position(|&known| known == register.full_register()) {
                list[number] = true;
            }
        }
    }

    /// Whether the code addresses memory through a register that it never names otherwise.
    pub(super) fn are_expected(&self) -> bool {
        self.addressing.iter().zip(&self.named).any(|(is_used, is_named)| *is_used && !is_named)
    }
}

/// Checks the callee of the copy at `copy` of the call at `original`.
///
/// # Errors
/// It expects a register that calls preserve.
pub(super) fn check_callee(
    copies: &Copies<'_>,
    (copy, original): (NewAddress, Address),
) -> Result<(), Difference> {
    if !callee(copies, original).is_some_and(|target| expects(copies, target)) {
        return Ok(());
    }
    let name = format!("the copied call at {copy}");
    let expected = "no copy: the callee addresses memory through a register that only its run-time sets";
    Err(Difference::new(Check::Copies, copies.offset(copy), name, expected, "a copy"))
}

fn callee(copies: &Copies<'_>, call: Address) -> Option<u64> {
    let code = copies.originals(call)?;
    if copies.old.processor == Processor::Aarch64 {
        let word = u32::from_le_bytes(*code.first_chunk()?);
        return (form(word) == Form::Call).then(|| Form::Call.target(word, call.0));
    }
    let instruction = Decoder::with_ip(64, code, call.0, DecoderOptions::NONE).decode();
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch_target())
}

fn expects(copies: &Copies<'_>, target: u64) -> bool {
    let section = copies.old.code_at(target, target.saturating_add(1));
    let code = section.and_then(|section| bytes_from(section, target)).unwrap_or_default();
    match copies.old.processor {
        Processor::X86_64 => expects_on_x86_64(code, target),
        Processor::Aarch64 => expects_on_aarch64(code),
    }
}

fn expects_on_x86_64(code: &[u8], target: u64) -> bool {
    let mut registers = PreservedRegisters::default();
    let decoder = Decoder::with_ip(64, code, target, DecoderOptions::NONE);
    for instruction in decoder.into_iter().take(MAX_INSTRUCTIONS) {
        if instruction.is_invalid() {
            return false;
        }
        registers.note(&instruction);
        let goes_on = matches!(
            instruction.flow_control(),
            FlowControl::Next
                | FlowControl::ConditionalBranch
                | FlowControl::Call
                | FlowControl::IndirectCall
        );
        if !goes_on {
            break;
        }
    }
    registers.are_expected()
}

/// Code that neither calls nor jumps through a register does not let its run-time look at return addresses.
fn expects_on_aarch64(code: &[u8]) -> bool {
    /// `x19` to `x28`, bit by number.
    const PRESERVED_BITS: u32 = 0x3ff << 19;
    const BRANCH_TO_REGISTER: u32 = 0xd61f_0000;
    let (mut addressing, mut named, mut calls) = (0_u32, 0_u32, false);
    let (words, _) = code.as_chunks::<4>();
    for word in words.iter().take(MAX_INSTRUCTIONS).map(|word| u32::from_le_bytes(*word)) {
        let effects = effects(word);
        let class = word >> 25 & 0xf;
        let is_access = class & 0b0101 == 0b0100 && word & 0x3b00_0000 != 0x1800_0000;
        let base = if is_access { 1 << register(word, 5) } else { 0 };
        addressing |= base;
        // Compiled functions store the register before they use it.
        named |= effects.writes | if is_access { effects.reads & !base } else { 0 };
        calls |= effects.is_call || word & 0xffff_fc1f == BRANCH_TO_REGISTER;
        if effects.ends {
            break;
        }
    }
    calls && addressing & !named & PRESERVED_BITS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_expected_if_it_only_addresses_memory() {
        let are_expected = |code: &[u8]| {
            let mut registers = PreservedRegisters::default();
            Decoder::new(64, code, DecoderOptions::NONE).iter().for_each(|one| registers.note(&one));
            registers.are_expected()
        };
        // push [r13 + 8]; with push r13 before it; lea rax, [r13 + 8]; mov rax, [rbp + 8]
        assert!(are_expected(&[0x41, 0xff, 0x75, 8]));
        assert!(!are_expected(&[0x41, 0x55, 0x41, 0xff, 0x75, 8]));
        assert!(!are_expected(&[0x49, 0x8d, 0x45, 8]) && !are_expected(&[0x48, 0x8b, 0x45, 8]));
    }

    #[test]
    fn aarch64_code_that_calls_and_never_names_its_base_expects_it() {
        let expects = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            expects_on_aarch64(&bytes)
        };
        // ldr x0, [x26, 8]; bl; ret
        let (read, call, ret) = (0xf940_0740, 0x9400_4000, 0xd65f_03c0);
        assert!(expects(&[read, call, ret]));
        // stp x26, x27, [sp, -16]! before it; no call; the call comes after the end.
        assert!(!expects(&[0xa9bf_6ffa, read, call, ret]));
        assert!(!expects(&[read, ret]) && !expects(&[read, ret, call]));
        // bl before the read; br x16 after it.
        assert!(expects(&[call, read, ret]) && expects(&[read, 0xd61f_0200]));
    }
}
