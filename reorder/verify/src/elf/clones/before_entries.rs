//! What stands right before a function: callers may read it through the function's address, as they read a type hash before
//! they call. A copy has nothing before it, so such a function keeps the address of the original.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use super::copies::Copies;
use crate::aarch64::runs_on;
use crate::elf::functions::falls_through;
use crate::elf::gaps::ends_with_padding;
use crate::elf::view::ElfView;
use crate::moves::{AddressMoves, Move};
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// Checks that control cannot run into a function whose address is that of its copy: what it would run over is no code of the
/// function before, which ends with a jump, a return or a call, but belongs to this one.
pub(super) fn check_before_entries(copies: &Copies<'_>, functions: &AddressMoves, findings: &mut Findings) {
    for &start in &copies.led {
        if is_run_into(copies.old, functions.as_slice(), start) {
            let name = format!("the address of the function at {start}");
            let found = "that of a copy, although callers may read the bytes before the function";
            findings.differs(Difference::new(Check::Copies, None, name, "that of the original", found));
        }
    }
}

/// Whether code or data that reaches up to `start` goes on there. `functions` are in address order.
fn is_run_into(image: &ElfView<'_>, functions: &[Move], start: Address) -> bool {
    let after = functions.partition_point(|function| function.old_start < start);
    let previous = functions[..after].last().filter(|previous| previous.old_end() <= start);
    let code = previous.and_then(|previous| {
        let section = image.code_at(previous.old_start.0, start.0.checked_add(1)?)?;
        section.at(previous.old_start.0, start.distance_from(previous.old_start))
    });
    let (Some(previous), Some(code)) = (previous, code) else { return false };
    let (function, between) = code.split_at(previous.size as usize);
    match image.processor {
        Processor::Aarch64 => between.is_empty() && runs_on(function),
        Processor::X86_64 if between.is_empty() => runs_past_its_end(function),
        // What linkers fill up with, zeros too, comes after the code and right before the next function.
        Processor::X86_64 => {
            !ends_with_padding(Processor::X86_64, between, start.0) && runs_past_its_end(between)
        }
    }
}

/// Whether control runs past the end of x86-64 code; not where its bytes are not all instructions.
fn runs_past_its_end(code: &[u8]) -> bool {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut runs_on = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return false;
        }
        if !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            runs_on = falls_through(instruction.flow_control(), instruction.code());
        }
    }
    runs_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_before_an_entry_is_told_from_the_end_of_code() {
        let hash = [0x90, 0xb8, 1, 2, 3, 4];
        assert!(runs_past_its_end(&hash));
        // Room for a patch after the hash; the end of a function, with filler; bytes that are no instructions.
        assert!(runs_past_its_end(&[0xb8, 1, 2, 3, 4, 0x90]));
        assert!(
            !runs_past_its_end(&[0xb8, 1, 2, 3, 4, 0xc3, 0x66, 0x90]) && !runs_past_its_end(&[0xb8, 1, 2])
        );
        assert!(!runs_past_its_end(&[]) && !runs_past_its_end(&[0x06, 0x90]));
    }
}
