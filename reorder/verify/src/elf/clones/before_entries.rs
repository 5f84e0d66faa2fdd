//! What stands right before a function: callers may read it through the function's address, as they read a type hash before
//! they call. A copy has nothing before it, so such a function keeps the address of the original.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::copies::Copies;
use crate::aarch64::runs_on;
use crate::elf::functions::falls_through;
use crate::elf::gaps::ends_with_padding;
use crate::elf::view::ElfView;
use crate::moves::{AddressMoves, Move};
use crate::padding::padding_length;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// Checks that callers cannot read anything before a function whose address is that of its copy. Code of another function ends there
/// with a jump, a return or a call; what does not end is data of this one.
pub(super) fn check_before_entries(copies: &Copies<'_>, functions: &AddressMoves, findings: &mut Findings) {
    for &start in &copies.led {
        if is_read_from_before(copies.old, functions.as_slice(), start) {
            let name = format!("the address of the function at {start}");
            let found = "that of a copy, although callers may read the bytes before the function";
            findings.differs(Difference::new(Check::Copies, None, name, "that of the original", found));
        }
    }
}

/// Whether the bytes before `start` may belong to the function there. `functions` are in address order.
pub(super) fn is_read_from_before(image: &ElfView<'_>, functions: &[Move], start: Address) -> bool {
    let after = functions.partition_point(|function| function.old_start < start);
    let Some(previous) = functions[..after].last() else { return false };
    if previous.old_end() > start {
        // Nothing tells what stands before an entry inside a function.
        return true;
    }
    let code = start.0.checked_add(1).and_then(|end| {
        let section = image.code_at(previous.old_start.0, end)?;
        section.at(previous.old_start.0, start.distance_from(previous.old_start))
    });
    // In another section there is nothing of `previous`.
    let parts = code.and_then(|code| code.split_at_checked(usize::try_from(previous.size).ok()?));
    let Some((function, between)) = parts else { return false };
    let is_padding = padding_length(image.processor, between, previous.old_end().0) == between.len();
    match image.processor {
        Processor::Aarch64 if is_padding => runs_on(function),
        Processor::Aarch64 => !ends_with_padding(Processor::Aarch64, between, start.0) || runs_on(between),
        Processor::X86_64 if is_padding => function_runs_on(function),
        Processor::X86_64 => !gap_ends(between, previous.old_end()),
    }
}

/// Whether control runs past the end of an x86-64 function; one whose bytes are not all instructions may end anywhere.
fn function_runs_on(code: &[u8]) -> bool {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut runs_on = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return true;
        }
        if !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            runs_on = falls_through(instruction.flow_control(), instruction.code());
        }
    }
    runs_on
}

/// Whether the x86-64 code of no function in `gap` at `start` ends before the end of the gap: with an instruction that control does not
/// pass and padding after it, or with a direct jump. A constant may look like the last bytes of a shorter instruction.
fn gap_ends(gap: &[u8], start: Address) -> bool {
    let mut decoder = Decoder::with_ip(64, gap, start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut ends = false;
    while decoder.can_decode() {
        let position = decoder.position();
        let padding = padding_length(Processor::X86_64, &gap[position..], decoder.ip());
        if padding > 0 && decoder.try_set_position(position + padding).is_ok() {
            decoder.set_ip(start.0 + (position + padding) as u64);
            ends = !falls_through(instruction.flow_control(), instruction.code());
            continue;
        }
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return false;
        }
        ends = instruction.flow_control() == FlowControl::UnconditionalBranch;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_with_a_symbol_run_on() {
        assert!(function_runs_on(&[0x90, 0xb8, 1, 2, 3, 4]));
        // Room for a patch after the hash; the end of a function, with filler; bytes that are no instructions.
        assert!(function_runs_on(&[0xb8, 1, 2, 3, 4, 0x90]));
        assert!(!function_runs_on(&[0xb8, 1, 2, 3, 4, 0xc3, 0x66, 0x90]) && !function_runs_on(&[]));
        assert!(function_runs_on(&[0xb8, 1, 2]) && function_runs_on(&[0x06, 0x90]));
    }

    #[test]
    fn gaps_end_with_a_jump_or_with_padding_after_code() {
        let ends = |gap: &[u8]| gap_ends(gap, Address(0x1000));
        assert!(ends(&[0x31, 0xc0, 0xc3, 0x90]) && ends(&[0xeb, 0xfe]) && ends(&[0xc3, 0x66, 0x90]));
        // Hashes, one of them after padding; a signature and a hash that looks like a return.
        assert!(!ends(&[0xb8, 1, 2, 3, 4]) && !ends(&[0xc3, 0x90, 0xb8, 1, 2, 3, 4]));
        assert!(!ends(&[0xc3, 0x90, 0xfe, 0xca, 0x05, 0xc1, 0x31, 0xc0, 0x5b, 0xc3]));
        assert!(!ends(&[0xc3, 0x90, 0x06]) && !ends(&[0x31, 0xc0, 0x90]));
    }
}
