//! Code of run-times that keep an address of their data in a register that calls preserve.
//!
//! V8's builtins do so with `r13`. Such a run-time knows each return address of its code, and looks it up when an exception is
//! thrown or garbage is collected. So what calls it must not return into a copy.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use reorder_image::decode::x86_64::is_preserved;

/// Instructions that are looked at. Compiled functions save a register and set it before they read memory through it.
const MAX_INSTRUCTIONS: usize = 64;

/// Whether x86-64 code that is called at the start of `bytes` reads memory through a register that calls preserve, before it sets it.
pub(super) fn expects_preserved_register(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut set = Vec::new();
    for _ in 0..MAX_INSTRUCTIONS {
        if !decoder.can_decode() {
            return false;
        }
        decoder.decode_out(&mut instruction);
        let base = instruction.memory_base().full_register();
        if instruction.is_invalid() {
            return false;
        }
        if is_preserved(base) && instruction.mnemonic() != Mnemonic::Lea && !set.contains(&base) {
            return true;
        }
        let is_end = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Interrupt
                | FlowControl::Exception
        );
        if is_end {
            return false;
        }
        let only_reads = matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Cmp | Mnemonic::Test);
        if !only_reads && instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register {
            set.push(instruction.op0_register().full_register());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::expects_preserved_register;

    #[test]
    fn only_code_that_sets_no_register_before_it_reads_through_it_expects_one() {
        // push rbp; mov rbp, rsp; mov rsi, [r13 + 0xd8]; ret
        assert!(expects_preserved_register(&[0x55, 0x48, 0x89, 0xe5, 0x49, 0x8b, 0xb5, 0xd8, 0, 0, 0, 0xc3]));
        // push r13; mov r13, rdi; mov rsi, [r13 + 0xd8]; ret
        let compiled = [0x41, 0x55, 0x49, 0x89, 0xfd, 0x49, 0x8b, 0xb5, 0xd8, 0, 0, 0, 0xc3];
        assert!(!expects_preserved_register(&compiled));
        // lea rax, [r13 + 8]; ret. Bytes that are no instruction.
        assert!(
            !expects_preserved_register(&[0x49, 0x8d, 0x45, 8, 0xc3]) && !expects_preserved_register(&[6])
        );
    }
}
