//! Numbers that were taken for pointers to functions with copies, in an x86-64 program at a fixed address.
//!
//! The writer looks for what speaks for a pointer; this module looks for what speaks against one: an instruction that uses only a
//! part of the word, or uses it as a floating-point number, and text that fills the word before and ends in this one. And it looks for
//! numbers that still hold the original's address: a function has one address everywhere, or its pointers would differ from each other.

use std::collections::BTreeMap;

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::{SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY, SHT_PROGBITS};
use iced_x86::{Decoder, DecoderOptions, Instruction, MemorySize, Mnemonic, OpKind, Register};

use super::code::{aligned_words, has_known_format};
use super::copies::Copies;
use super::insides::is_listed;
use crate::bytes::{range, u64_at};
use crate::elf::absolute::{code_constants, data_constant, section_constants};
use crate::elf::recover::moves_between;
use crate::elf::view::{ElfView, SectionView};
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::remark::Remark;
use crate::report::{Check, Difference, Findings};
use crate::unchanged::Claims;
use reorder_base::address::{Address, FileOffset, NewAddress};
use reorder_base::error::Result;

/// Bytes of a pointer in data.
const WORD: u64 = 8;

/// Bytes before an entry that a list of patchable places may name.
const MAX_ROOM: u64 = 128;

/// Claims the words of data that hold the address of a copy instead of that of a function, and checks that nothing
/// contradicts them. Gives their number.
pub(super) fn check_words(
    copies: &mut Copies<'_>,
    functions: &AddressMoves,
    claims: &mut Claims,
    findings: &mut Findings,
) -> usize {
    if !may_have_assumed(copies) {
        return 0;
    }
    let (old, new) = (copies.old, copies.new.bytes);
    let mut words = Vec::new();
    for section in old.sections.iter().filter(|section| may_have_pointers(section)) {
        let first = (section.address.wrapping_neg() % WORD) as usize;
        for position in (first..section.bytes.len()).step_by(WORD as usize) {
            let (place, offset) =
                (section.address.wrapping_add(position as u64), section.offset + position as u64);
            let before = u64_at(section.bytes, position);
            let after = range(new, offset, WORD).and_then(|word| u64_at(word, 0));
            let (Some(before), Some(after)) = (before, after) else { continue };
            // The loader maps segments, not sections.
            let is_mapped = || old.mapped_offset(place, WORD) == Some(FileOffset(offset));
            let is_code = || {
                old.code_sections()
                    .any(|code| code.offset < offset + WORD && offset < code.offset + code.bytes.len() as u64)
            };
            if before != after
                && is_mapped()
                && !is_code()
                && copies.is_assumed_pointer(Address(before), NewAddress(after))
            {
                claims.add(offset, WORD);
                words.push(place);
                if continues_text(section.bytes, position) {
                    findings.differs(Difference::new(
                        Check::Copies,
                        Some(offset),
                        format!("the word at {}", Address(place)),
                        "no change: it holds the end of a text",
                        "the address of a copy",
                    ));
                }
            }
        }
    }
    for (place, instruction) in contradictions(old, functions, &words) {
        let name = format!("the word at {}", Address(place));
        let expected = "no change: the instruction at ".to_owned() + &Address(instruction).to_string();
        let found = "the address of a copy";
        findings.differs(Difference::new(
            Check::Copies,
            None,
            name,
            expected + " reads it as a number",
            found,
        ));
    }
    findings.checked(Check::Copies, "words that were taken for pointers", words.len());
    words.len()
}

/// Says that the proof rests on an assumption, if it does.
pub(super) fn tell(copies: &Copies<'_>, words: usize, findings: &mut Findings) {
    if may_have_assumed(copies) && !copies.led.is_empty() {
        findings.remark(Remark::PointersAssumed { functions: copies.led.len(), words });
    }
}

/// Whether nothing lists the pointers of this image.
fn may_have_assumed(copies: &Copies<'_>) -> bool {
    copies.old.header.e_type == ET_EXEC && copies.old.processor == Processor::X86_64
}

/// Whether words of a section may change: it holds the program's own data, or lists of functions.
fn may_have_pointers(section: &SectionView<'_>) -> bool {
    const KINDS: [u32; 4] = [SHT_PROGBITS, SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY];
    section.is_loaded() && !section.is_code() && KINDS.contains(&section.kind) && !has_known_format(section)
}

/// Whether the eight bytes before `position` are all text, and the word at `position` is at least one more byte of text, then only
/// zeros.
fn continues_text(bytes: &[u8], position: usize) -> bool {
    let word = |position: usize| bytes.get(position..)?.first_chunk::<{ WORD as usize }>();
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~');
    let ends_in_text = |word: &[u8; WORD as usize]| {
        let (text, rest) = word.split_at(word.iter().take_while(|byte| is_text(byte)).count());
        !text.is_empty() && rest.iter().all(|&byte| byte == 0)
    };
    let before = position.checked_sub(WORD as usize).and_then(word);
    before.is_some_and(|word| word.iter().all(is_text)) && word(position).is_some_and(ends_in_text)
}

/// Those of `words` (ascending) that some instruction reads or writes in part, or as a floating-point number: (word, instruction).
fn contradictions(image: &ElfView<'_>, functions: &AddressMoves, words: &[u64]) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    if words.is_empty() {
        return found;
    }
    for function in functions.as_slice() {
        let section = image.code_at(function.old_start.0, function.old_end().0);
        let code = section.and_then(|section| section.at(function.old_start.0, function.size));
        let code = code.unwrap_or_default();
        let decoder = Decoder::with_ip(64, code, function.old_start.0, DecoderOptions::NONE);
        for instruction in decoder {
            let Some(place) = stated_place(&instruction) else { continue };
            let size = instruction.memory_size();
            let (bytes, end) = (size.size() as u64, place.saturating_add(size.size() as u64));
            let first = words.partition_point(|word| word.saturating_add(WORD) <= place);
            let touched = words[first..].iter().take_while(|word| **word < end);
            let is_number = bytes < WORD || matches!(size, MemorySize::Float64 | MemorySize::Float80);
            for word in touched.filter(|word| is_number || place > **word || end < word.saturating_add(WORD))
            {
                found.insert(*word, instruction.ip());
            }
        }
    }
    found
}

/// [`crate::words_read_as_numbers`] for ELF.
pub(in crate::elf) fn read_as_numbers(image: &ElfView<'_>, words: &[Address]) -> Result<Vec<bool>> {
    let mut sorted: Vec<u64> = words.iter().map(|word| word.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let found = contradictions(image, &moves_between(image, image)?, &sorted);
    Ok(words.iter().map(|word| found.contains_key(&word.0)).collect())
}

/// The address that an instruction reads or writes, or that of the first element of an array.
fn stated_place(instruction: &Instruction) -> Option<u64> {
    let has_memory =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    if !has_memory {
        return None;
    }
    match instruction.memory_base() {
        Register::RIP => Some(instruction.ip_rel_memory_address()),
        Register::None => Some(instruction.memory_displacement64()),
        _ => None,
    }
}

/// Whether only no-operations are between `place` and `start`: room for a patch.
fn is_room(copies: &Copies<'_>, place: u64, start: u64) -> bool {
    let size = start.wrapping_sub(place);
    let code = copies.originals(Address(place)).filter(|_| (1..=MAX_ROOM).contains(&size));
    let code = code.and_then(|code| code.get(..usize::try_from(size).ok()?));
    let is_nop = |instruction: Instruction| instruction.mnemonic() == Mnemonic::Nop;
    code.is_some_and(|code| Decoder::with_ip(64, code, place, DecoderOptions::NONE).into_iter().all(is_nop))
}

/// Numbers of the new image that are the address of an original that is known by its copy: (address, place).
pub(super) fn still_held(copies: &Copies<'_>, functions: &AddressMoves) -> Vec<(Address, NewAddress)> {
    let mut held = Vec::new();
    if !may_have_assumed(copies) || copies.led.is_empty() {
        return held;
    }
    let mut note = |place: u64, value: u64| {
        if copies.led.contains(&Address(value)) {
            held.push((Address(value), NewAddress(place)));
        }
    };
    for section in &copies.new.sections {
        let is_old = copies.old.sections.iter().any(|old| old.address == section.address && old.is_code());
        if section.is_code() && is_old {
            section_constants(section, functions).for_each(|(place, value)| note(place, value));
            aligned_words(section).for_each(|(place, value)| note(place, value));
        } else if section.is_loaded() && !section.is_code() && !has_known_format(section) {
            for position in 0..section.bytes.len() {
                let place = section.address.wrapping_add(position as u64);
                if let Some(value) = data_constant(section.bytes, position, place) {
                    note(place, value);
                }
                // Flags that were added to a pointer.
                let word = u64_at(section.bytes, position).filter(|_| place.is_multiple_of(WORD));
                let flagged = |word: u64| {
                    let close = Address(word.saturating_sub(WORD - 1))..Address(word);
                    let function = functions.containing(Address(word));
                    let is_start = function.is_some_and(|function| function.old_start.0 == word);
                    copies.led.range(close).next_back().filter(|_| !is_start)
                };
                if let Some(start) = word.and_then(flagged).filter(|_| is_listed(copies, place)) {
                    note(place, start.0);
                }
                // A list of places before entries, where tools write.
                let room = word.and_then(|value| Some((value, copies.led.range(Address(value)..).next()?)));
                let room = room.filter(|(value, start)| is_room(copies, *value, start.0));
                if let Some((_, start)) = room {
                    note(place, start.0);
                }
            }
        }
    }
    for copied in &copies.by_copy {
        let bytes = copies.copied(copied.copy).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(copied.copy_size as usize)];
        code_constants(bytes, copied.copy.0).for_each(|(place, value)| note(place, value));
    }
    held
}
