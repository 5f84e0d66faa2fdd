//! Code of run-times that keep an address of their data in a register that calls preserve.
//!
//! V8's builtins do so with `r13`, and with `x26` on AArch64. Such a run-time knows each return address of its code, and looks it up
//! when an exception is thrown or garbage is collected. So what calls it must not return into a copy.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use reorder_base::address::Address;
use reorder_image::decode::aarch64::{Operation, WORD, decode, uses};
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

/// The same for AArch64. Code that neither calls nor jumps elsewhere is not of this kind: nothing in it lets the run-time look at the
/// stack. Compilers that save space move parts of functions out into such code, which uses its callers' registers.
pub(super) fn expects_preserved_register_aarch64(bytes: &[u8]) -> bool {
    /// Branches to what is looked at stay in the function.
    const WINDOW: Address = Address(MAX_INSTRUCTIONS as u64 * WORD);
    let (words, _) = bytes.as_chunks::<4>();
    let (mut set, mut reads, mut leaves, mut reached) = (0, false, false, Address(0));
    for (place, word) in (0..).step_by(WORD as usize).map(Address).zip(words).take(MAX_INSTRUCTIONS) {
        let word = u32::from_le_bytes(*word);
        reads |= base(word) & PRESERVED & !set != 0;
        let mut ends = false;
        match decode(word, place) {
            Operation::ConditionalBranch(target) if target < WINDOW => reached = reached.max(target),
            Operation::Branch(target) if target < WINDOW => {
                reached = reached.max(target);
                ends = true;
            }
            Operation::Branch(_) | Operation::BranchRegister(_) => (leaves, ends) = (true, true),
            Operation::Call(_) | Operation::CallRegister(_) => leaves = true,
            Operation::Return => ends = true,
            _ => leaves |= is_in_class_of_calls(word),
        }
        if reads && leaves {
            return true;
        }
        if ends && reached <= place {
            return false;
        }
        if !names_no_destination(word) {
            set |= uses(word).writes;
        }
    }
    false
}

/// Whether the lowest five bits of `word` are a number or a source, although `uses` counts them as written: in MSR and SYS, and in
/// prefetches of a literal.
fn names_no_destination(word: u32) -> bool {
    word & 0xffe0_0000 == 0xd500_0000 || word & 0xff00_0000 == 0xd800_0000
}

/// Whether `word` is a call through a register, as far as its class tells: some encodings are not allocated.
fn is_in_class_of_calls(word: u32) -> bool {
    word & 0xfe60_0000 == 0xd620_0000
}

/// `x19` to `x28`, a bit for each.
const PRESERVED: u32 = 0x1ff8_0000;

/// The bit of the register that an AArch64 load or store has as its base.
fn base(word: u32) -> u32 {
    let is_access = word & 0x0a00_0000 == 0x0800_0000 && word & 0x3b00_0000 != 0x1800_0000;
    if is_access { 1 << (word >> 5 & 31) } else { 0 }
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

    #[test]
    fn aarch64_code_that_reads_through_its_callers_register_and_calls_expects_one() {
        let expects = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            super::expects_preserved_register_aarch64(&bytes)
        };
        const READ: u32 = 0xf940_0740; // ldr x0, [x26, 8]
        const SAVE: u32 = 0xf81f_0ffa; // str x26, [sp, -16]!
        const SET: u32 = 0xaa00_03fa; // mov x26, x0
        const CALL: u32 = 0x9400_4000;
        const JUMP: u32 = 0xd61f_0000;
        const RETURN: u32 = 0xd65f_03c0;
        assert!(expects(&[READ, CALL, RETURN]) && expects(&[READ, JUMP]) && expects(&[SAVE, READ, CALL]));
        assert!(expects(&[CALL, READ, RETURN]));
        assert!(!expects(&[SAVE, SET, READ, CALL, RETURN]));
        // msr tpidr_el0, x26 reads the register, mrs x26, tpidr_el0 sets it.
        assert!(expects(&[0xd51b_d05a, READ, CALL, RETURN]));
        assert!(!expects(&[0xd53b_d05a, READ, CALL, RETURN]));
        assert!(expects(&[READ, 0xd6bf_03e0, RETURN]));
        // Without a call it is code that a compiler moved there.
        assert!(!expects(&[READ, RETURN, CALL]));
        // cbz x0, 8: goes on after the return.
        assert!(expects(&[READ, 0xb400_0040, RETURN, CALL]) && !expects(&[READ, RETURN, 0xb400_0040, CALL]));
        assert!(!expects(&[]) && !expects(&[READ]));
    }
}
