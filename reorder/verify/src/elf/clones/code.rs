//! The code outside of the copies: unchanged, except for branches and addresses that lead to copies.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::{
    SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_HASH, SHT_HASH, SHT_NOTE, SHT_RELA, SHT_STRTAB,
};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use super::copies::Copies;
use super::instruction::{Use, compare};
use crate::aarch64::{Form, form, page};
use crate::bytes::{displacement_at, range, u32_at, u64_at};
use crate::elf::absolute::section_constants;
use crate::elf::pointers::SHT_RELR;
use crate::elf::view::SectionView;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use crate::unchanged::Claims;
use reorder_base::address::{Address, NewAddress};

/// Checks all functions of the old image and claims those that changed.
pub(super) fn check_originals(
    copies: &mut Copies<'_>,
    functions: &AddressMoves,
    claims: &mut Claims,
    findings: &mut Findings,
) {
    let mut changed = 0;
    for function in functions.as_slice() {
        let (start, size) = (function.old_start, function.size);
        let Some(offset) = copies.old.offset_of(start.0).map(|offset| offset.0) else { continue };
        let (Some(old), Some(new)) =
            (range(copies.old.bytes, offset, size), range(copies.new.bytes, offset, size))
        else {
            continue;
        };
        if old == new {
            continue;
        }
        changed += 1;
        claims.add(offset, size);
        if let Err(at) = check_function(copies, (old, new), start) {
            let name = format!("the instruction at {at}");
            let expected = "the same, or one that leads to a copy of what it led to";
            let offset = Some(offset + at.distance_from(start));
            findings.differs(Difference::new(Check::Copies, offset, name, expected, "another one"));
        }
    }
    findings.checked(Check::Copies, "functions that lead to copies", changed);
}

/// Compares a function, which kept its place, in both images. The error is the address of the first instruction that differs
/// in more than a reference to a copy.
fn check_function(
    copies: &mut Copies<'_>,
    (old, new): (&[u8], &[u8]),
    start: Address,
) -> Result<(), Address> {
    let mut position = 0;
    while let (Some(before), Some(after)) = (old.get(position..), new.get(position..)) {
        let address = start.plus(position as u64);
        if before == after {
            return Ok(());
        }
        let pair = compare(copies.old.processor, (before, address), (after, NewAddress(address.0)))
            .ok_or(address)?;
        // Originals keep all their places.
        let length = pair.common_length().ok_or(address)?;
        if let Some((before, after, usage)) = pair.stated {
            let is_same = match usage {
                Use::Jump | Use::Call => copies.leads_to(before, after),
                Use::Value => copies.stands_for(before, after),
                Use::Same | Use::Entry => before.0 == after.0,
            };
            if !is_same {
                return Err(address);
            }
        }
        if pair.kept.is_some_and(|(before, after)| !copies.is_assumed_pointer(before, after)) {
            return Err(address);
        }
        position += length as usize;
    }
    Ok(())
}

/// Addresses among `wanted` that code of the new image may compute, at any division into instructions, each with a place
/// that does so. Originals keep their addresses, so `wanted` are addresses of the old image.
pub(super) fn formed(copies: &Copies<'_>, wanted: &BTreeSet<Address>) -> BTreeMap<Address, NewAddress> {
    let mut found = BTreeMap::new();
    for section in copies.new.code_sections() {
        match copies.new.processor {
            Processor::X86_64 => formed_x86_64(section, wanted, &mut found),
            Processor::Aarch64 => formed_aarch64(section, wanted, &mut found),
        }
    }
    found
}

/// Only `LEA` keeps an address, and its displacement is its last field.
fn formed_x86_64(
    section: &SectionView<'_>,
    wanted: &BTreeSet<Address>,
    found: &mut BTreeMap<Address, NewAddress>,
) {
    let formed = lea_targets(section).map(|(target, place)| (Address(target), NewAddress(place)));
    let formed = formed.filter(|(target, _)| wanted.contains(target));
    found.extend(formed);
}

/// For every byte sequence that is an `LEA` relative to the instruction pointer: the address that it computes, and the place
/// of its displacement.
pub(super) fn lea_targets<'view>(
    section: &'view SectionView<'_>,
) -> impl Iterator<Item = (u64, u64)> + 'view {
    section.bytes.windows(2).enumerate().filter_map(|(position, bytes)| {
        let is_lea = bytes[0] == 0x8d && bytes[1] & 0xc7 == 0x05;
        let distance = is_lea.then(|| displacement_at(section.bytes, position + 2))??;
        let place = section.address.wrapping_add(position as u64 + 2);
        Some((place.wrapping_add(4).wrapping_add(distance), place))
    })
}

/// The instruction that completes a page is not searched for: all addresses of a computed page count.
fn formed_aarch64(
    section: &SectionView<'_>,
    wanted: &BTreeSet<Address>,
    found: &mut BTreeMap<Address, NewAddress>,
) {
    for (kind, target, place) in distances(section) {
        let formed = match kind {
            Form::Adr => Address(target)..Address(target.saturating_add(1)),
            Form::Adrp => Address(page(target))..Address(page(target).saturating_add(0x1000)),
            _ => continue,
        };
        found.extend(wanted.range(formed).map(|address| (*address, NewAddress(place))));
    }
}

/// All words read as AArch64 instructions: form, stated address, place.
fn distances<'view>(section: &'view SectionView<'_>) -> impl Iterator<Item = (Form, u64, u64)> + 'view {
    (0..section.bytes.len()).step_by(4).filter_map(|position| {
        let word = u32_at(section.bytes, position)?;
        let place = section.address.wrapping_add(position as u64);
        Some((form(word), form(word).target(word, place), place))
    })
}

/// Checks that no code or data outside of a function with a copy holds an address inside it: a program may compare such an
/// address with an interrupted instruction pointer. Nothing at all may hold one to which a copied call of the original
/// returns: a program may compare it with a return address. Code is read at any division into instructions.
///
/// In images at a fixed address, constants are such addresses: operands of instructions, from the start and the end of each function
/// on (functions that overlap count as one), and words of eight bytes that lie in a list; on AArch64 eight bytes at any multiple
/// of four.
pub(super) fn check_insides(copies: &Copies<'_>, functions: &AddressMoves, findings: &mut Findings) {
    let image = copies.old;
    let mut differs = |target: u64, place: u64| {
        let (target, place) = (Address(target), Address(place));
        if copies.is_known_inside(target, place) {
            let name = format!("the function that contains {target}");
            let found = format!("a copy, although {place} refers to that address");
            findings.differs(Difference::new(Check::Copies, None, name, "no copy", found));
        }
    };
    for section in image.code_sections() {
        match image.processor {
            Processor::X86_64 => lea_targets(section).for_each(|(target, place)| differs(target, place)),
            Processor::Aarch64 => distances(section)
                .filter(|(kind, ..)| *kind == Form::Adr)
                .for_each(|(_, target, place)| differs(target, place)),
        }
    }
    if image.header.e_type != ET_EXEC {
        return;
    }
    let entries = match image.processor {
        Processor::X86_64 => own_entries(copies, functions),
        Processor::Aarch64 => BTreeSet::new(),
    };
    let is_operand = |place: u64| {
        let function = functions.containing(Address(place));
        let is_inside = function.is_some_and(|function| place + WORD <= function.old_end().0);
        image.processor == Processor::X86_64 && is_inside
    };
    let mut listed = Vec::new();
    for section in image.sections.iter().filter(|section| section.is_loaded()) {
        if section.is_code() && image.processor == Processor::X86_64 {
            section_constants(section, functions).for_each(|(place, value)| differs(value, place));
        }
        if section.is_code() || !has_known_format(section) {
            let words = aligned_words(section);
            let may_be_known = |place: u64| {
                image.processor == Processor::Aarch64
                    || is_listed(copies, place) && !entries.contains(&place) && !is_operand(place)
            };
            let words =
                words.filter(|(place, value)| copies.has_copy(Address(*value)) && may_be_known(*place));
            listed.extend(words.map(|(place, value)| (value, place)));
        }
    }
    if image.processor == Processor::X86_64 {
        retain_starts(copies, functions, &mut listed);
    }
    listed.into_iter().for_each(|(value, place)| differs(value, place));
}

/// Keeps those of `listed` whose address is the start of an instruction of its function: nothing is interrupted, or returns,
/// elsewhere. Functions with bytes that are no instructions have any.
fn retain_starts(copies: &Copies<'_>, functions: &AddressMoves, listed: &mut Vec<(u64, u64)>) {
    listed.sort_unstable();
    let mut decoded: Option<(Address, Option<BTreeSet<u64>>)> = None;
    listed.retain(|&(address, _)| {
        let Some(function) = functions.containing(Address(address)) else { return true };
        if decoded.as_ref().is_none_or(|(start, _)| *start != function.old_start) {
            let code = copies.originals(function.old_start).unwrap_or_default();
            let code = &code[..code.len().min(usize::try_from(function.size).unwrap_or(usize::MAX))];
            let decoder = Decoder::with_ip(64, code, function.old_start.0, DecoderOptions::NONE);
            let starts =
                decoder.into_iter().map(|instruction| (!instruction.is_invalid()).then(|| instruction.ip()));
            decoded = Some((function.old_start, starts.collect()));
        }
        let starts = decoded.as_ref().and_then(|(_, starts)| starts.as_ref());
        starts.is_none_or(|starts| starts.contains(&address))
    });
}

/// Whether the word at `place` may be one of a list of places: it is aligned, and one of the two words on each side is an address
/// of code, too.
fn is_listed(copies: &Copies<'_>, place: u64) -> bool {
    let is_code = |place: u64| {
        copies.old.word_at(place).is_some_and(|value| copies.old.code_at(value, value).is_some())
    };
    let close = [place.wrapping_sub(2 * WORD), place.wrapping_sub(WORD), place + WORD, place + 2 * WORD];
    place.is_multiple_of(WORD) && close.into_iter().any(is_code)
}

/// Bytes of an address.
const WORD: u64 = 8;

/// Places of entries of tables of addresses that a function jumps through, by one instruction or two: as far as the words from
/// the base on lead to code, up to the last that leads into the function itself.
fn own_entries(copies: &Copies<'_>, functions: &AddressMoves) -> BTreeSet<u64> {
    let image = copies.old;
    let mut places = BTreeSet::new();
    for function in functions.as_slice() {
        let Some(code) = copies.originals(function.old_start) else { continue };
        let code = &code[..code.len().min(usize::try_from(function.size).unwrap_or(usize::MAX))];
        let mut instructions =
            Decoder::with_ip(64, code, function.old_start.0, DecoderOptions::NONE).into_iter().peekable();
        while let Some(instruction) = instructions.next() {
            let register = instruction.op0_register();
            let is_load = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op1_kind() == OpKind::Memory
                && instructions.peek().is_some_and(|next| {
                    next.flow_control() == FlowControl::IndirectBranch
                        && (next.op0_kind(), next.op0_register()) == (OpKind::Register, register)
                });
            let is_jump = instruction.mnemonic() == Mnemonic::Jmp && instruction.op0_kind() == OpKind::Memory;
            let is_table = (is_load || is_jump)
                && (instruction.memory_base(), instruction.memory_index_scale()) == (Register::None, 8)
                && instruction.memory_index() != Register::None;
            let mut place = instruction.memory_displacement64();
            let mut waiting = Vec::new();
            while let Some(entry) = is_table.then(|| image.word_at(place)).flatten()
                && image.code_at(entry, entry).is_some()
            {
                waiting.push(place);
                if (function.old_start..function.old_end()).contains(&Address(entry)) {
                    places.extend(waiting.drain(..));
                }
                place = place.wrapping_add(WORD);
            }
        }
    }
    places
}

/// Whether this is a table of the loader or of the unwinder: the program compares nothing with what it holds.
pub(super) fn has_known_format(section: &SectionView<'_>) -> bool {
    const KINDS: [u32; 8] =
        [SHT_RELA, SHT_RELR, SHT_DYNSYM, SHT_STRTAB, SHT_HASH, SHT_GNU_HASH, SHT_DYNAMIC, SHT_NOTE];
    KINDS.contains(&section.kind) || section.name.starts_with(b".eh_frame")
}

/// Eight bytes at each multiple of four, as (place, value).
pub(super) fn aligned_words<'view>(
    section: &'view SectionView<'_>,
) -> impl Iterator<Item = (u64, u64)> + 'view {
    let places = (section.address..section.end()).filter(|place| place.is_multiple_of(4));
    places.filter_map(|place| {
        let position = usize::try_from(place - section.address).ok()?;
        Some((place, u64_at(section.bytes, position)?))
    })
}
