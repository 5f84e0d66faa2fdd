//! Pointers that carry a mark, which code subtracts before it calls them.
//!
//! Before each call through a register, the instructions are scanned backwards, up to another call or jump, for the constant
//! that was last added to that register. Where the constant leads from an address in the data to the start of a function, that
//! function and the code at the address must have moved by the same distance; otherwise the call now goes elsewhere. The same
//! holds for addresses that code forms. On AArch64 only addresses of function starts, and of code outside functions, are checked:
//! any other address lies inside the function that is called, and moves with it. Constants that a register keeps across a call
//! are not checked.

use std::collections::BTreeSet;

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::{SHT_DYNAMIC, SHT_DYNSYM, SHT_RELA};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use rayon::prelude::*;

use super::functions::formed_entries;
use super::pair::ImagePair;
use super::pointers::{RELA_SIZE, written_places};
use crate::aarch64::effects;
use crate::bytes::{u32_at, u64_at};
use crate::elf::view::{ElfView, SectionView};
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// The largest mark.
const MAX_MARK: u64 = 1 << 12;

/// Pairs of an address and a constant that are tried.
const MAX_TRIES: usize = 1 << 28;

/// Checks every address in the data, and every address of code that code forms, with every constant. `formed` are those of
/// x86-64 code.
pub(crate) fn check_marked_pointers(pair: ImagePair<'_>, formed: &[Address], findings: &mut Findings) {
    let marks: BTreeSet<u64> = pair
        .moves
        .as_slice()
        .par_iter()
        .flat_map_iter(|range| {
            let code = pair.old.code_at(range.old_start.0, range.old_end().0);
            let bytes = code.and_then(|section| section.at(range.old_start.0, range.size));
            marks_in(pair.old.processor, bytes.unwrap_or_default(), range.old_start.0)
        })
        .collect();
    if marks.is_empty() {
        return;
    }
    let entries;
    let formed = match pair.old.processor {
        Processor::X86_64 => formed,
        Processor::Aarch64 => {
            entries = formed_entries(pair);
            &entries
        }
    };
    let held = held_addresses(pair.old);
    let addresses = held.len() + formed.len();
    if addresses.saturating_mul(marks.len()) > MAX_TRIES {
        let found = format!("{addresses} addresses and {} constants", marks.len());
        let what = "pointers that are called with something added";
        findings.differs(Difference::new(Check::Functions, None, what, "fewer to try", found));
        return;
    }
    for (&held, &mark) in formed.iter().flat_map(|held| marks.iter().map(move |mark| (held, mark))) {
        check_sum(pair, held, mark, &[pair.mapped(held)], findings);
    }
    let held_now: BTreeSet<NewAddress> = held_addresses(pair.new).into_iter().map(NewAddress).collect();
    for held in held.into_iter().map(Address) {
        // Padding right before a function may stay or move with it: what the new image stores decides which.
        let readings = [Some(pair.mapped(held)), pair.carried(held)];
        let mut readings: Vec<NewAddress> =
            readings.into_iter().flatten().filter(|reading| held_now.contains(reading)).collect();
        if readings.is_empty() {
            readings.push(pair.mapped(held));
        }
        marks.iter().for_each(|&mark| check_sum(pair, held, mark, &readings, findings));
    }
}

/// Checks that `held` with `mark` added, if that is the start of a function, still is in one of the `readings` of `held`.
fn check_sum(
    pair: ImagePair<'_>,
    held: Address,
    mark: u64,
    readings: &[NewAddress],
    findings: &mut Findings,
) {
    let target = held.plus(mark);
    let Some(function) = pair.moves.containing(target) else { return };
    let follows = |reading: &NewAddress| reading.plus(mark) == function.new_start;
    if function.old_start != target || readings.iter().all(follows) {
        return;
    }
    findings.differs(Difference::new(
        Check::Functions,
        None,
        format!("{function}, which is called as {held} with {:+} added", mark.cast_signed()),
        pair.mapped(held).plus(mark).to_string(),
        function.new_start.to_string(),
    ));
}

/// Addresses in code that the loader stores; in an image at a fixed address, also words of data that may be such addresses.
/// The numbers are addresses of `image`, old or new.
fn held_addresses(image: &ElfView<'_>) -> BTreeSet<u64> {
    let tables = image.sections.iter().filter(|section| section.kind == SHT_RELA && section.is_loaded());
    let addends = tables.flat_map(|table| table.bytes.chunks_exact(RELA_SIZE));
    let mut held: BTreeSet<u64> = addends.filter_map(|entry| u64_at(entry, 16)).collect();
    let word = |place: u64| image.section_at(place).and_then(|section| u64_at(section.at(place, 8)?, 0));
    held.extend(written_places(image).into_iter().filter_map(word));
    if image.header.e_type == ET_EXEC {
        // The loader alone reads these two, and calls what they name as it is.
        let is_of_loader = |kind: u32| matches!(kind, SHT_DYNAMIC | SHT_DYNSYM);
        let data = image.sections.iter().filter(|section| section.is_loaded() && !section.is_code());
        let data = data.filter(|section| !is_of_loader(section.kind));
        let words = data.flat_map(|section| {
            let skipped = (section.address.wrapping_neg() % 8) as usize;
            section.bytes.get(skipped..).unwrap_or_default().chunks_exact(8)
        });
        held.extend(words.filter_map(|word| u64_at(word, 0)));
    }
    // A mark can move an address to the end of its section.
    held.retain(|&address| {
        image.code_at(address, address).is_some()
            || image.section_at(address.wrapping_sub(1)).is_some_and(SectionView::is_code)
    });
    held
}

/// The constants that the code `bytes` at `start` adds to addresses before it calls them.
fn marks_in(processor: Processor, bytes: &[u8], start: u64) -> Vec<u64> {
    let marks = match processor {
        Processor::Aarch64 => marks_in_words(bytes),
        Processor::X86_64 if calls_register(bytes) => marks_in_instructions(bytes, start),
        Processor::X86_64 => Vec::new(),
    };
    let is_mark = |mark: &u64| *mark != 0 && mark.cast_signed().unsigned_abs() <= MAX_MARK;
    marks.into_iter().filter(is_mark).collect()
}

/// Whether `bytes` may contain a call or jump through a register. Most functions contain none and need not be decoded.
fn calls_register(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair[0] == 0xff && matches!(pair[1], 0xd0..=0xd7 | 0xe0..=0xe7))
}

fn marks_in_instructions(bytes: &[u8], start: u64) -> Vec<u64> {
    let mut before: Vec<Instruction> = Vec::new();
    let mut marks = Vec::new();
    for instruction in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
        let is_through =
            matches!(instruction.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch)
                && instruction.op0_kind() == OpKind::Register;
        if is_through {
            marks.extend(mark_of(&before, instruction.op0_register()));
        }
        // Nothing before a call or jump is looked at.
        if is_other(&instruction) {
            before.clear();
        }
        before.push(instruction);
    }
    marks
}

/// Whether control may go on elsewhere and come back with other values, or may not come back.
fn is_other(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
}

/// The constant that the last of these instructions added to the earlier value of `register`; `None` if it is not a known
/// sum.
fn mark_of(before: &[Instruction], register: Register) -> Option<u64> {
    let mut register = register.full_register();
    let mut mark = 0u64;
    for instruction in before.iter().rev() {
        if is_other(instruction) {
            return None;
        }
        let is_written = instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == register
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
        if !is_written {
            continue;
        }
        let constant = || instruction.try_immediate(1).ok();
        match instruction.mnemonic() {
            Mnemonic::Add => mark = mark.wrapping_add(constant()?),
            Mnemonic::Sub => mark = mark.wrapping_sub(constant()?),
            Mnemonic::Inc => mark = mark.wrapping_add(1),
            Mnemonic::Dec => mark = mark.wrapping_sub(1),
            Mnemonic::Lea
                if instruction.memory_index() == Register::None && instruction.memory_base().is_gpr64() =>
            {
                mark = mark.wrapping_add(instruction.memory_displacement64());
                register = instruction.memory_base();
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                register = instruction.op1_register().full_register();
            }
            // An address that the code forms.
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => return Some(mark),
            Mnemonic::Mov => return Some(mark),
            _ => return None,
        }
    }
    Some(mark)
}

fn marks_in_words(bytes: &[u8]) -> Vec<u64> {
    let words: Vec<u32> = bytes.chunks_exact(4).filter_map(|word| u32_at(word, 0)).collect();
    // BR and BLR.
    let calls = words.iter().enumerate().filter(|(_, word)| **word & 0xffdf_fc1f == 0xd61f_0000);
    calls.filter_map(|(at, word)| mark_of_words(&words[..at], word >> 5 & 31)).collect()
}

fn mark_of_words(before: &[u32], register: u32) -> Option<u64> {
    let mut register = register;
    let mut mark = 0u64;
    // What the mark was before the last number was added: that number may be the rest of an address.
    let mut without_last = None;
    for &word in before.iter().rev() {
        let effects = effects(word);
        if effects.ends || effects.is_call {
            return None;
        }
        if effects.writes >> register & 1 == 0 {
            continue;
        }
        let number = u64::from(word >> 10 & 0xfff) << (12 * (word >> 22 & 1));
        let known = mark;
        match word {
            // ADD and SUB of an immediate, 64 bits; MOV of a register; ADR; loads; ADRP.
            _ if word & 0xff80_0000 == 0x9100_0000 => mark = mark.wrapping_add(number),
            _ if word & 0xff80_0000 == 0xd100_0000 => mark = mark.wrapping_sub(number),
            _ if word & 0xffe0_ffe0 == 0xaa00_03e0 => {
                register = word >> 16 & 31;
                continue;
            }
            _ if word & 0x9f00_0000 == 0x1000_0000 || word >> 25 & 5 == 4 => return Some(mark),
            _ if word & 0x9f00_0000 == 0x9000_0000 => return without_last,
            _ => return None,
        }
        without_last = Some(known);
        register = word >> 5 & 31;
    }
    Some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_before_a_call_are_read_backwards() {
        let marks = |bytes: &[u8]| marks_in(Processor::X86_64, bytes, 0x1000);
        // mov rax, [rbx]; sub rax, 0x10; mov rdi, rbp; call rax
        let code = [0x48, 0x8b, 0x03, 0x48, 0x83, 0xe8, 0x10, 0x48, 0x89, 0xef, 0xff, 0xd0];
        assert_eq!(marks(&code), [16u64.wrapping_neg()]);
        // mov rax, [rbx]; lea rcx, [rax - 1]; jmp rcx
        let code = [0x48, 0x8b, 0x03, 0x48, 0x8d, 0x48, 0xff, 0xff, 0xe1];
        assert_eq!(marks(&code), [u64::MAX]);
        // add rax, rcx; call rax: a sum, which other checks handle.
        assert!(marks(&[0x48, 0x01, 0xc8, 0xff, 0xd0]).is_empty());
        assert!(marks(&[0x48, 0x8b, 0x03, 0xff, 0xd0]).is_empty());
    }

    #[test]
    fn the_same_in_words() {
        let marks = |words: &[u32]| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            marks_in(Processor::Aarch64, &code, 0x1000)
        };
        // ldr x1, [x0]; sub x1, x1, #16; mov x0, x2; blr x1
        assert_eq!(marks(&[0xf940_0001, 0xd100_4021, 0xaa02_03e0, 0xd63f_0020]), [16u64.wrapping_neg()]);
        // adrp x1, 0; add x1, x1, #16; br x1
        assert!(marks(&[0x9000_0001, 0x9100_4021, 0xd61f_0020]).is_empty());
        // adrp x1, 0; add x1, x1, #16; sub x1, x1, #16; br x1; and the same with adr x1, 0 for the first two
        assert_eq!(marks(&[0x9000_0001, 0x9100_4021, 0xd100_4021, 0xd61f_0020]), [16u64.wrapping_neg()]);
        assert_eq!(marks(&[0x1000_0001, 0xd100_4021, 0xd61f_0020]), [16u64.wrapping_neg()]);
        // add x9, x19, #32; ldar x9, [x9]; blr x9: what is called was loaded.
        assert!(marks(&[0x9100_8269, 0xc8df_fd29, 0xd63f_0120]).is_empty());
        // The same with other instructions between: a page is one however far away it was formed.
        let far = [&[0x9000_0001, 0x9100_4021][..], &[0x9100_0463; 40], &[0xd61f_0020]].concat();
        assert!(marks(&far).is_empty());
        let far = [&[0xf940_0001, 0xd100_4021][..], &[0x9100_0463; 40], &[0xd61f_0020]].concat();
        assert_eq!(marks(&far), [16u64.wrapping_neg()]);
    }
}
