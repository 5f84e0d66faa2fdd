//! Who may know a place inside a function with a copy, and compare it with an interrupted or returning program counter.
//!
//! Code is read at any division into instructions; a function that can be read in one way only is read in that way. In images at a fixed address, constants are such places: operands of
//! instructions, from the start and the end of each function on (functions that overlap count as one), and words of eight bytes.
//! On AArch64 those count at any multiple of four. On x86-64 a word counts if it is the address of an instruction and stands in a list
//! with another one: a lone number is mostly text. Entries of tables through which functions jump are no such list.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::header::ET_EXEC;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::code::{aligned_words, distances, has_known_format, lea_targets};
use super::copies::Copies;
use crate::aarch64::Form;
use crate::elf::absolute::section_constants;
use crate::elf::whole_functions::WholeFunctions;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

/// Bytes of an address.
const WORD: u64 = 8;

/// Checks that no code or data outside of a function with a copy holds an address inside it. Nothing at all may hold one to which
/// a copied call of the original returns.
pub(super) fn check_insides(copies: &Copies<'_>, functions: &AddressMoves, findings: &mut Findings) {
    let image = copies.old;
    let mut whole = WholeFunctions::new(image, functions);
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
            Processor::X86_64 => {
                let is_known = |target, place| copies.is_known_inside(Address(target), Address(place));
                let known = lea_targets(section).filter(|(target, place)| is_known(*target, *place));
                known
                    .filter(|(target, place)| !whole.is_no_lea(*target, *place))
                    .for_each(|(target, place)| differs(target, place));
            }
            Processor::Aarch64 => distances(section)
                .filter(|(kind, ..)| *kind == Form::Adr)
                .for_each(|(_, target, place)| differs(target, place)),
        }
    }
    if image.header.e_type != ET_EXEC {
        return;
    }
    let is_x86 = image.processor == Processor::X86_64;
    let entries = if is_x86 { own_entries(copies, functions) } else { BTreeSet::new() };
    let mut listed = Vec::new();
    for section in image.sections.iter().filter(|section| section.is_loaded()) {
        if section.is_code() && is_x86 {
            section_constants(section, functions).for_each(|(place, value)| differs(value, place));
        }
        if section.is_code() || !has_known_format(section) {
            let words = aligned_words(section).filter(|(_, value)| copies.has_copy(Address(*value)));
            let may_be_known = |place: u64| !is_x86 || is_listed(copies, place) && !entries.contains(&place);
            listed.extend(words.filter(|(place, _)| may_be_known(*place)));
        }
    }
    if is_x86 {
        retain_places(copies, functions, &mut listed);
        listed.retain(|(place, _)| {
            let mut close = code_close_to(copies, *place);
            close.any(|address| !whole.is_within_instruction(address))
        });
    }
    listed.into_iter().for_each(|(place, value)| differs(value, place));
}

/// Keeps those words, as (place, value), that hold the address of an instruction and are no part of one. In a function that does
/// not decode completely, every address and every word counts.
fn retain_places(copies: &Copies<'_>, functions: &AddressMoves, listed: &mut Vec<(u64, u64)>) {
    let mut decoded: Option<(Address, Option<BTreeSet<u64>>)> = None;
    // Ascending queries decode each function once.
    let mut is_instruction = |address: u64| {
        let function = functions.containing(Address(address))?;
        if decoded.as_ref().is_none_or(|(start, _)| *start != function.old_start) {
            let starts = instructions(copies, function.old_start, function.size)
                .map(|instruction| (!instruction.is_invalid()).then(|| instruction.ip()));
            decoded = Some((function.old_start, starts.collect()));
        }
        let starts = decoded.as_ref().and_then(|(_, starts)| starts.as_ref())?;
        Some(starts.contains(&address))
    };
    listed.sort_unstable_by_key(|(_, value)| *value);
    listed.retain(|(_, value)| is_instruction(*value).unwrap_or(true));
    listed.sort_unstable();
    let ends = |place: u64| functions.containing(Address(place)).map(|function| function.old_end().0);
    listed.retain(|(place, _)| {
        let is_inside =
            ends(*place).is_some_and(|end| place.checked_add(WORD).is_some_and(|after| after <= end));
        !(is_inside && is_instruction(*place).is_some())
    });
}

fn instructions(copies: &Copies<'_>, start: Address, size: u64) -> impl Iterator<Item = Instruction> + use<> {
    let code = copies.originals(start).unwrap_or_default();
    let code = code[..code.len().min(usize::try_from(size).unwrap_or(usize::MAX))].to_vec();
    let mut position = 0;
    std::iter::from_fn(move || {
        let rest = code.get(position..).filter(|rest| !rest.is_empty())?;
        let address = start.plus(position as u64);
        let instruction = Decoder::with_ip(64, rest, address.0, DecoderOptions::NONE).decode();
        position += instruction.len().max(1);
        Some(instruction)
    })
}

/// Whether the word at `place` may be one of a list of places: it is aligned, and one of the two words on each side is an address
/// of code, too.
pub(super) fn is_listed(copies: &Copies<'_>, place: u64) -> bool {
    place.is_multiple_of(WORD) && code_close_to(copies, place).next().is_some()
}

/// The addresses of code among the two words on each side of that at `place`.
fn code_close_to(copies: &Copies<'_>, place: u64) -> impl Iterator<Item = u64> {
    let close = [1, 2].map(|words| [place.wrapping_sub(words * WORD), place.wrapping_add(words * WORD)]);
    let words = close.into_iter().flatten().filter_map(|place| copies.old.word_at(place));
    words.filter(|value| copies.old.code_at(*value, *value).is_some())
}

/// Places of entries of tables of addresses through which functions jump, by one instruction or two. A table goes on as far as
/// words lead to code, up to the next address of data that some instruction states, and to its last word that leads into a function that
/// jumps through it.
fn own_entries(copies: &Copies<'_>, functions: &AddressMoves) -> BTreeSet<u64> {
    let mut users: BTreeMap<u64, BTreeSet<Address>> = BTreeMap::new();
    let data = copies.old.sections.iter().filter(|section| section.is_loaded() && !section.is_code());
    let bounds = data.clone().map(|section| section.address).min()..data.map(|section| section.end()).max();
    let is_data = |number: &u64| bounds.start <= Some(*number) && Some(*number) < bounds.end;
    let mut stated = Vec::new();
    for function in functions.as_slice() {
        let mut loaded = None;
        for instruction in instructions(copies, function.old_start, function.size) {
            stated.extend(stated_numbers(&instruction).filter(is_data));
            let before: Option<(u64, Register, u64)> = loaded.take();
            let entry =
                |operand| is_entry(&instruction, operand).then(|| instruction.memory_displacement64());
            let table = match instruction.flow_control() {
                FlowControl::IndirectBranch => entry(0).or_else(|| {
                    let jumps = |(next, register, _): &(u64, Register, u64)| {
                        (*next, *register) == (instruction.ip(), instruction.op0_register())
                    };
                    before.filter(jumps).map(|(_, _, table)| table)
                }),
                _ => None,
            };
            if instruction.mnemonic() == Mnemonic::Mov {
                loaded = entry(1).map(|table| (instruction.next_ip(), instruction.op0_register(), table));
            }
            if let Some(table) = table {
                users.entry(table).or_default().insert(function.old_start);
            }
        }
    }
    stated.sort_unstable();
    stated.dedup();
    let mut places = BTreeSet::new();
    for (table, users) in &users {
        let next = stated.partition_point(|number| number <= table);
        let end = stated.get(next).copied().unwrap_or(u64::MAX);
        let mut waiting = Vec::new();
        let mut place = *table;
        while let Some(entry) = copies.old.word_at(place).filter(|_| place < end)
            && copies.old.code_at(entry, entry).is_some()
        {
            waiting.push(place);
            let function = functions.containing(Address(entry));
            if function.is_some_and(|function| users.contains(&function.old_start)) {
                places.extend(waiting.drain(..));
            }
            place = place.wrapping_add(WORD);
        }
    }
    places
}

/// Whether an operand is a word of a table whose address the instruction states.
fn is_entry(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
        && (instruction.memory_base(), instruction.memory_index_scale()) == (Register::None, 8)
        && instruction.memory_index() != Register::None
}

/// Numbers that may be addresses of data.
fn stated_numbers(instruction: &Instruction) -> impl Iterator<Item = u64> + '_ {
    let operands = 0..instruction.op_count();
    let has_memory = operands.clone().any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let place = match instruction.memory_base() {
        Register::RIP => Some(instruction.ip_rel_memory_address()),
        _ => Some(instruction.memory_displacement64()),
    };
    place
        .filter(|_| has_memory)
        .into_iter()
        .chain(operands.filter_map(|operand| instruction.try_immediate(operand).ok()))
}
