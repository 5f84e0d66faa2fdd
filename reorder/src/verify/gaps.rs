//! Everything in code sections that is not a function: run-time start code, stubs, padding.
//!
//! Code outside of functions never moves, so it must be untouched and must not refer to anything that moved. All
//! other bytes between the new functions are either what they were or filler that traps or does nothing.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::bytes::displacement_at;
use super::elf_view::{ElfView, SectionView};
use super::fields::{Addressing, addressing};
use super::recover::AddressMoves;
use super::report::{Check, Difference, Findings};
use crate::address::{Address, NewAddress};

/// Checks the gaps of all code sections; gives the data addresses that gap code refers to.
pub(super) fn check_gaps(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    moves: &AddressMoves,
    findings: &mut Findings,
) -> Vec<u64> {
    let mut references = Vec::new();
    let (mut instructions, mut padding, mut opaque) = (0usize, 0usize, 0usize);
    for section in old.code_sections() {
        let Some(new_section) = new.code_at(section.address, section.end()) else { continue };
        let old_functions = moves.iter().map(|range| range.old_start.0..range.old_end().0);
        let mut fixed = Vec::new();
        for gap in complement(section.address..section.end(), old_functions) {
            let Some(bytes) = section.at(gap.start, gap.end - gap.start) else { continue };
            let code = code_of_gap(bytes, gap.start);
            if code.is_empty() {
                continue;
            }
            let code = gap.start + code.start as u64..gap.start + code.end as u64;
            let seen = check_references(section, &code, moves, &mut references, findings);
            instructions += seen.instructions;
            opaque += seen.opaque_bytes;
            fixed.push(code);
        }
        check_fixed(section, new_section, &fixed, moves, findings);
        padding += check_padding(section, new_section, &fixed, moves, findings);
    }
    references.sort_unstable();
    references.dedup();
    findings.checked(Check::Gaps, "instructions", instructions);
    findings.checked(Check::Padding, "bytes", padding);
    if opaque > 0 {
        findings.remark(format!(
            "{opaque} bytes of code outside of functions could not be decoded; they are unchanged"
        ));
    }
    references
}

/// Bytes at the start of `bytes`, which stand at `address`, that do nothing or trap: what linkers and assemblers
/// put between functions. Control must not arrive there. Zeros count when more padding, the end, or an aligned
/// address follows them: otherwise they may belong to the code behind.
pub(super) fn padding_length(bytes: &[u8], address: u64) -> usize {
    /// What linkers insert zeros for.
    const ALIGNMENT: u64 = 4;
    let mut length = 0;
    let mut position = 0;
    while position < bytes.len() {
        let rest = &bytes[position..];
        position += rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len());
        if position == bytes.len() || address.wrapping_add(position as u64).is_multiple_of(ALIGNMENT) {
            length = position;
        }
        let filler = padding_instruction_length(&bytes[position..]);
        if filler == 0 {
            break;
        }
        position += filler;
        length = position;
    }
    length
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// The part of a gap at `address` that may be executed or read: all but leading padding and padding behind the
/// last jump away.
fn code_of_gap(bytes: &[u8], address: u64) -> Range<usize> {
    let start = padding_length(bytes, address);
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

/// Moves `decoder` over padding that control does not reach, so that zeros are not read as instructions. `rest` is
/// what stands behind `instruction`.
fn skip_padding(decoder: &mut Decoder<'_>, instruction: &Instruction, rest: &[u8]) {
    let leaves = matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    ) || instruction.mnemonic() == Mnemonic::Hlt;
    if leaves {
        let padding = padding_length(rest, decoder.ip());
        // The position stays inside the bytes of the decoder, of which `rest` is the end.
        if decoder.set_position(decoder.position() + padding).is_ok() {
            decoder.set_ip(decoder.ip().wrapping_add(padding as u64));
        }
    }
}

struct GapCode {
    instructions: usize,
    opaque_bytes: usize,
}

/// Whatever gap code refers to must be where it was: its fields are never rewritten.
fn check_references(
    section: &SectionView<'_>,
    code: &Range<u64>,
    moves: &AddressMoves,
    references: &mut Vec<u64>,
    findings: &mut Findings,
) -> GapCode {
    let bytes = section.at(code.start, code.end - code.start).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, bytes, code.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut seen = GapCode { instructions: 0, opaque_bytes: 0 };
    while decoder.can_decode() {
        let position = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            seen.opaque_bytes += bytes.len() - position;
            check_opaque(section, code.start + position as u64..code.end, moves, findings);
            break;
        }
        seen.instructions += 1;
        let addressing = addressing(&decoder, &instruction);
        let end = decoder.position();
        skip_padding(&mut decoder, &instruction, &bytes[end..]);
        let Addressing::Field(field) = addressing else { continue };
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
            references.push(field.target);
        }
    }
    seen
}

/// Code that cannot be read in a line may still hold calls and jumps: none may lead to the start of what moved.
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
                format!("what may be a branch in unreadable code at {}", Address(address)),
                format!("its target {target} where it was"),
                format!("moved to {}", moves.map(target)),
            ));
        }
    }
}

/// Gap code keeps its bytes and its place to itself.
fn check_fixed(
    old: &SectionView<'_>,
    new: &SectionView<'_>,
    fixed: &[Range<u64>],
    moves: &AddressMoves,
    findings: &mut Findings,
) {
    for code in fixed {
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
        let overlapping = moves
            .containing_new(NewAddress(code.start))
            .or_else(|| moves.containing_new(NewAddress(code.end - 1)));
        if let Some(range) = overlapping {
            findings.differs(Difference::new(
                Check::Gaps,
                None,
                format!("code outside of functions at {}", Address(code.start)),
                "no function in its place",
                range.to_string(),
            ));
        }
    }
}

/// Bytes between new functions, without gap code: as before, or filler. Gives the number of bytes.
fn check_padding(
    old: &SectionView<'_>,
    new: &SectionView<'_>,
    fixed: &[Range<u64>],
    moves: &AddressMoves,
    findings: &mut Findings,
) -> usize {
    let mut total = 0;
    let mut taken: Vec<Range<u64>> = moves
        .iter_by_new_start()
        .map(|range| range.new_start.0..range.new_end().0)
        .chain(fixed.iter().cloned())
        .collect();
    taken.sort_unstable_by_key(|range| range.start);
    for free in complement(new.address..new.end(), taken.into_iter()) {
        let size = free.end - free.start;
        total += size as usize;
        let (Some(before), Some(after)) = (old.at(free.start, size), new.at(free.start, size)) else {
            continue;
        };
        let Some(at) = first_foreign_byte(before, after) else { continue };
        if !is_carried_along(old, &free, at, after, moves) {
            let address = free.start + at as u64;
            findings.differs(Difference::new(
                Check::Padding,
                Some(new.offset + (address - new.address)),
                format!("padding at {}", NewAddress(address)),
                format!("{:#04x} or filler", before[at]),
                format!("{:#04x}", after[at]),
            ));
        }
    }
    total
}

/// Whether a hole, from its byte `at` on, is the old padding in front of the next function, moved with it.
fn is_carried_along(
    old: &SectionView<'_>,
    hole: &Range<u64>,
    at: usize,
    after: &[u8],
    moves: &AddressMoves,
) -> bool {
    let Some(next) = moves.containing_new(NewAddress(hole.end)) else { return false };
    let carried = &after[at..];
    let start = next.old_start.0.wrapping_sub(carried.len() as u64);
    let is_free = (start..next.old_start.0).all(|address| moves.containing(Address(address)).is_none());
    is_free
        && old.at(start, carried.len() as u64) == Some(carried)
        && is_end_of_padding(old, start, carried.len(), moves)
}

/// Whether these bytes of the old image are the end of a run that is padding as a whole.
fn is_end_of_padding(old: &SectionView<'_>, start: u64, size: usize, moves: &AddressMoves) -> bool {
    let after_previous = moves.preceding(Address(start)).map_or(old.address, |range| range.old_end().0);
    let run_start = after_previous.max(old.address);
    let run = old.at(run_start, (start + size as u64).saturating_sub(run_start));
    run.is_some_and(|run| padding_length(run, run_start) == run.len())
}

/// The first byte of a hole that is neither as before nor part of an instruction that does nothing or traps.
fn first_foreign_byte(before: &[u8], after: &[u8]) -> Option<usize> {
    if before == after {
        return None;
    }
    let mut position = 0;
    while position < after.len() {
        let filler = padding_instruction_length(&after[position..]);
        if filler > 0 {
            position += filler;
        } else if before[position] == after[position] || after[position] == 0 {
            // Some linkers fill with zeros, which the way back to such a layout restores.
            position += 1;
        } else {
            return Some(position);
        }
    }
    None
}

fn padding_instruction_length(bytes: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if is_padding(&instruction) { instruction.len() } else { 0 }
}

/// The parts of `whole` outside of `parts`, which are sorted and disjoint.
fn complement(whole: Range<u64>, parts: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut position = whole.start;
    for part in parts.skip_while(|part| part.end <= whole.start).take_while(|part| part.start < whole.end) {
        if part.start > position {
            rest.push(position..part.start);
        }
        position = position.max(part.end);
    }
    if position < whole.end {
        rest.push(position..whole.end);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_padding_around_gap_code_is_free() {
        let cases: [(&[u8], Range<usize>); 12] = [
            (&[0x90, 0xcc, 0x0f, 0x1f, 0x00], 5..5),
            (&[0x00, 0x00, 0x00], 3..3),
            // One object's padding, then the linker's.
            (&[0x66, 0x90, 0x00, 0x00], 4..4),
            (&[0xc3, 0x00, 0x90, 0x00], 0..1),
            // Zeros in front of code may be its first instruction, unless they lead to an aligned address.
            (&[0x90, 0x00, 0x00, 0x00, 0xc3], 1..5),
            (&[0x90, 0x00, 0x00, 0xc3], 3..4),
            (&[0xc3, 0x00, 0x00, 0xc3, 0x00, 0x90], 0..4),
            (&[0x90, 0xc3, 0x90, 0x90], 1..2),
            // A call may return: what follows it is not padding.
            (&[0xe8, 0, 0, 0, 0, 0x90], 0..6),
            // Padding between two pieces of code stays as it is.
            (&[0xc3, 0x90, 0xc3, 0xcc], 0..3),
            // Nothing is known about bytes behind one that is no instruction.
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
    fn holes_hold_old_bytes_or_filler() {
        assert_eq!(first_foreign_byte(&[1, 2, 3, 4], &[1, 0x0f, 0x1f, 0x00]), None);
        assert_eq!(first_foreign_byte(&[1, 2, 3, 4], &[0xcc, 2, 0x90, 4]), None);
        assert_eq!(first_foreign_byte(&[1, 2, 3, 4], &[1, 2, 9, 4]), Some(2));
    }

    proptest::proptest! {
        #[test]
        fn complement_and_parts_make_the_whole(starts in proptest::collection::btree_set(0u64..200, 0..20)) {
            let bounds: Vec<u64> = starts.into_iter().collect();
            let parts: Vec<Range<u64>> = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let rest = complement(50..150, parts.iter().cloned());
            for address in 0..200u64 {
                let expected = (50..150).contains(&address) && !parts.iter().any(|part| part.contains(&address));
                proptest::prop_assert_eq!(rest.iter().any(|part| part.contains(&address)), expected);
            }
        }
    }
}
