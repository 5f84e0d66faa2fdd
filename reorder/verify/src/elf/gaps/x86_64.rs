//! x86-64 code outside of functions.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::GapCode;
use super::prefixes::{MAX_LENGTH, MIN_LENGTH};
use crate::bytes::displacement_at;
use crate::elf::functions::{Naming, keeps_operand, stated_addresses};
use crate::elf::view::{ElfView, SectionView};
use crate::fields::{Addressing, addressing};
use crate::moves::AddressMoves;
use crate::padding::{TRAP, padding_length};
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// The part of a gap at `address` that may be executed or read: all but the padding at its start and the padding after
/// the last jump out of it.
pub(super) fn code_of_gap(bytes: &[u8], address: u64) -> Range<usize> {
    let start = padding_length(Processor::X86_64, bytes, address);
    let mut decoder =
        Decoder::with_ip(64, &bytes[start..], address.wrapping_add(start as u64), DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        let end = start + decoder.position();
        skip_padding(&mut decoder, &instruction, &bytes[end..]);
        if end < bytes.len() && !decoder.can_decode() {
            return start..end;
        }
    }
    start..bytes.len()
}

/// The last jump in `bytes` that skips only no-operations and lands on the function after them, or on its prefix, the few
/// bytes that callers may read. Gives the offsets of the jump's end and of its target.
///
/// `bytes` start at `address` and end where the function or the prefix that moved with it begins.
pub(super) fn jump_over_padding(bytes: &[u8], address: u64) -> Option<(usize, usize)> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut found = None;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        let end = decoder.position();
        if instruction.flow_control() == FlowControl::UnconditionalBranch {
            let target = usize::try_from(instruction.near_branch_target().wrapping_sub(address)).ok();
            let padding = target.and_then(|target| bytes.get(end..target));
            let is_padding = padding.is_some_and(|padding| {
                !padding.is_empty() && nops_length(padding, instruction.next_ip()) == padding.len()
            });
            found = target.filter(|_| is_padding).map(|target| (end, target)).or(found);
        }
        skip_padding(&mut decoder, &instruction, &bytes[end..]);
    }
    found.filter(|(_, target)| bytes.len() - target <= MAX_LENGTH)
}

/// The end of the code in a gap at `address`, and the start of the constants before the next function, if padding separates
/// the two. `longest` bounds the constants. Decoded in one run, all three would look like code.
///
/// Zeros do not count as padding here: they may be data of the function.
pub(super) fn padding_before_constants(bytes: &[u8], address: u64, longest: usize) -> Option<(usize, usize)> {
    (MIN_LENGTH..=longest.min(bytes.len())).find_map(|length| {
        let constants = bytes.len() - length;
        let code = code_of_gap(&bytes[..constants], address);
        let padding = &bytes[code.end..constants];
        let is_filled = padding.iter().all(|&byte| byte == TRAP)
            || nops_length(padding, address.wrapping_add(code.end as u64)) == padding.len();
        (!code.is_empty() && !padding.is_empty() && is_filled).then_some((code.end, constants))
    })
}

/// Length in bytes of the no-operations at the start of `bytes`. Zeros, which are padding elsewhere, do not count: they may
/// be the upper bytes of a number that the program reads.
fn nops_length(bytes: &[u8], address: u64) -> usize {
    let decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let nops = decoder.into_iter().take_while(|instruction| instruction.mnemonic() == Mnemonic::Nop);
    nops.map(|instruction| instruction.len()).sum()
}

/// Moves `decoder` over padding that control does not reach, so that zeros are not read as instructions. `rest` is
/// what follows `instruction`.
fn skip_padding(decoder: &mut Decoder<'_>, instruction: &Instruction, rest: &[u8]) {
    let leaves = matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    ) || matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Int3);
    if leaves {
        let padding = padding_length(Processor::X86_64, rest, decoder.ip());
        // `rest` is the end of the decoder's bytes, so the position stays within them.
        if decoder.set_position(decoder.position() + padding).is_ok() {
            decoder.set_ip(decoder.ip().wrapping_add(padding as u64));
        }
    }
}

/// Bytes of a piece of code whose names count as those of one function, at most.
const MAX_PIECE: usize = 1 << 13;

/// Checks that the code, at the same addresses in both images, keeps its bytes and that whatever it refers to kept its
/// place, because its fields are never rewritten.
pub(super) fn check(
    image: &ElfView<'_>,
    (old, new): (&SectionView<'_>, &SectionView<'_>),
    code: &Range<u64>,
    moves: &AddressMoves,
    findings: &mut Findings,
) -> GapCode {
    check_bytes(old, new, code, findings);
    let section = old;
    let bytes = section.at(code.start, code.end - code.start).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, bytes, code.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut seen = GapCode::default();
    let (mut named, mut piece) = (Vec::new(), 0);
    while decoder.can_decode() {
        let position = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            seen.opaque_bytes += bytes.len() - position;
            check_opaque(section, code.start + position as u64..code.end, moves, findings);
            break;
        }
        seen.instructions += 1;
        named.extend(stated_addresses(image, &instruction));
        if let Addressing::Field(field) = addressing(&decoder, &instruction) {
            if moves.containing(Address(field.target)).is_some_and(|range| range.is_moved()) {
                findings.differs(Difference::new(
                    Check::Gaps,
                    Some(section.offset + (instruction.ip() - section.address)),
                    format!("code outside of functions at {}", Address(instruction.ip())),
                    format!("its target {} where it was", Address(field.target)),
                    format!("moved to {}", moves.map(Address(field.target))),
                ));
            }
            if !field.is_branch {
                seen.references.push(Address(field.target));
                named.extend(keeps_operand(&instruction).then_some(Address(field.target)));
            }
        }
        let end = decoder.position();
        skip_padding(&mut decoder, &instruction, &bytes[end..]);
        // Padding is between functions.
        if decoder.position() > end || end - piece > MAX_PIECE {
            seen.naming.extend(Naming::new(std::mem::take(&mut named)));
            piece = decoder.position();
        }
    }
    seen.naming.extend(Naming::new(named));
    seen
}

fn check_bytes(old: &SectionView<'_>, new: &SectionView<'_>, code: &Range<u64>, findings: &mut Findings) {
    let size = code.end - code.start;
    let (before, after) =
        (old.at(code.start, size).unwrap_or_default(), new.at(code.start, size).unwrap_or_default());
    if let Some(at) = before.iter().zip(after).position(|(before, after)| before != after) {
        let address = code.start + at as u64;
        let place = format!("code outside of functions at {}", Address(address));
        let offset = new.offset + (address - new.address);
        findings.differs(Difference::number(
            Check::Gaps,
            offset,
            &place,
            before[at].into(),
            after[at].into(),
        ));
    }
}

/// Checks code that cannot be decoded in sequence. It may still hold calls and jumps, and none may lead to the start of a
/// function that moved.
fn check_opaque(section: &SectionView<'_>, code: Range<u64>, moves: &AddressMoves, findings: &mut Findings) {
    /// Bytes of a near distance.
    const DISTANCE: usize = 4;
    let bytes = section.at(code.start, code.end - code.start).unwrap_or_default();
    for (at, pair) in bytes.windows(2).enumerate() {
        let is_branch = matches!(pair, [_, 0xe8 | 0xe9] | [0x0f, 0x80..=0x8f]);
        let Some(distance) = displacement_at(bytes, at + 2).filter(|_| is_branch) else { continue };
        let target = Address(code.start.wrapping_add((at + 2 + DISTANCE) as u64).wrapping_add(distance));
        if moves.containing(target).is_some_and(|range| range.is_moved() && range.old_start == target) {
            let address = code.start + at as u64;
            findings.differs(Difference::new(
                Check::Gaps,
                Some(section.offset + (address - section.address)),
                format!("a possible branch in undecodable code at {}", Address(address)),
                format!("its target {target} where it was"),
                format!("moved to {}", moves.map(target)),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_over_padding_may_reach_a_function_prefix() {
        // To the signature of a function, and to the function itself.
        let jumped_over = [0xe9, 3, 0, 0, 0, 0x90, 0x90, 0x90, 0xfe, 0xca, 0x05, 0xc1, 1, 2, 3, 4];
        assert_eq!(jump_over_padding(&jumped_over, 0x1000), Some((5, 8)));
        assert_eq!(jump_over_padding(&jumped_over[..8], 0x1000), Some((5, 8)));
        // Elsewhere; over something else; too far from the function.
        assert_eq!(jump_over_padding(&[0xe9, 2, 0, 0, 0, 0x90, 0x90, 0x90], 0x1000), Some((5, 7)));
        assert_eq!(jump_over_padding(&[0xeb, 2, 0x90, 0xc3, 1], 0x1000), None);
        assert_eq!(jump_over_padding(&[0xc3, 0, 0, 0, 0, 0, 0, 0], 0x1000), None);
        assert_eq!(jump_over_padding(&[0xc3, 0x90, 0x90, 1], 0x1000), None);
        let long = [&[0xeb, 1, 0x90][..], &[0x31; 2 * MAX_LENGTH]].concat();
        assert_eq!(jump_over_padding(&long, 0x1000), None);
    }

    #[test]
    fn only_padding_around_gap_code_is_free() {
        let cases: [(&[u8], Range<usize>); 13] = [
            (&[0x90, 0xcc, 0x0f, 0x1f, 0x00], 5..5),
            (&[0x00, 0x00, 0x00], 3..3),
            // One object's padding, then the linker's.
            (&[0x66, 0x90, 0x00, 0x00], 4..4),
            (&[0xc3, 0x00, 0x90, 0x00], 0..1),
            // Zeros before code may be its first instruction, unless they lead to an aligned address.
            (&[0x90, 0x00, 0x00, 0x00, 0xc3], 1..5),
            (&[0x90, 0x00, 0x00, 0xc3], 3..4),
            (&[0xc3, 0x00, 0x00, 0xc3, 0x00, 0x90], 0..4),
            (&[0x90, 0xc3, 0x90, 0x90], 1..2),
            // A call may return: what follows it is not padding.
            (&[0xe8, 0, 0, 0, 0, 0x90], 0..6),
            // It would return to the linker's first trap, not after it.
            (&[0xe8, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc], 0..6),
            // Padding between two pieces of code stays as it is.
            (&[0xc3, 0x90, 0xc3, 0xcc], 0..3),
            // After a byte that is not an instruction, the rest is unknown.
            (&[0xc3, 0x06, 0x90], 0..3),
            (&[], 0..0),
        ];
        for (bytes, code) in cases {
            let found = code_of_gap(bytes, 0x11);
            assert_eq!((found.is_empty(), found.end), (code.is_empty(), code.end), "{bytes:02x?}");
            assert!(code.is_empty() || found.start == code.start, "{bytes:02x?}: {found:?}");
        }
    }

    #[test]
    fn only_traps_and_no_operations_before_constants_are_padding() {
        let split = |between: &[u8], constants: &[u8]| {
            // jmp .
            let bytes = [&[0xeb, 0xfe], between, constants].concat();
            padding_before_constants(&bytes, 0x1000, 8)
        };
        let signature = [0xfe, 0xca, 0x05, 0xc1, 0xb7, 0xeb, 0x2a, 0x12];
        assert_eq!(split(&[0xcc; 6], &signature), Some((2, 8)));
        // nopw 0x0(%rax,%rax,1)
        assert_eq!(split(&[0x66, 0x0f, 0x1f, 0x44, 0, 0], &signature), Some((2, 8)));
        // Data that ends in zeros, directly before the next function.
        assert_eq!(split(&[0; 14], &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f]), None);
        assert_eq!(split(&[], &signature), None);
    }
}
