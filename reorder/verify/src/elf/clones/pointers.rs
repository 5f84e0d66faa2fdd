//! What the loader reads: relocations, words and symbols lead to their old target or to its copy; and all stored addresses
//! of a function are those of its copy, or none is.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::header::ET_EXEC;
use goblin::elf::reloc::{R_AARCH64_IRELATIVE, R_AARCH64_RELATIVE, R_X86_64_IRELATIVE, R_X86_64_RELATIVE};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_PROGBITS, SHT_RELA};
use goblin::elf::sym::STT_SECTION;

use super::assumed;
use super::code;
use super::copies::Copies;
use super::segments::EXCEPTIONS;
use crate::bytes::{displacement_at, u64_at};
use crate::elf::symbol_walk::{SYMBOL_SIZE, symbol_at};
use crate::elf::view::{ElfView, SectionView};
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use crate::unchanged::Claims;
use reorder_base::address::{Address, FileOffset, NewAddress};

const RELA_SIZE: usize = 24;
/// `SHT_RELR`.
const SHT_RELR: u32 = 19;
const WORD: u64 = 8;
/// Position of the entry point in the file header.
const ENTRY_FIELD: u64 = 24;

/// A field that holds an address: its file position, and what it holds in both files.
struct Held {
    offset: FileOffset,
    before: Address,
    after: NewAddress,
}

/// Checks the entry point, the loader's relocations and the dynamic symbols; `index` is the section index of the copies.
pub(super) fn check_pointers(
    copies: &mut Copies<'_>,
    index: usize,
    claims: &mut Claims,
    findings: &mut Findings,
) {
    let (before, after) = (Address(copies.old.header.e_entry), NewAddress(copies.new.header.e_entry));
    if !copies.leads_to(before, after) {
        let name = "the entry point";
        findings.differs(Difference::number(Check::Copies, ENTRY_FIELD, name, before.0, after.0));
    }
    let held = held_addresses(copies.old, copies.new.bytes);
    for Held { offset, before, after } in &held {
        claims.add(offset.0, WORD);
        if !copies.stands_for(*before, *after) {
            let name = "an address that the loader reads";
            findings.differs(Difference::number(Check::Copies, offset.0, name, before.0, after.0));
        }
    }
    findings.checked(Check::Copies, "addresses that the loader reads", held.len());
    check_symbols(copies, index, claims, findings);
}

/// Addends of relative relocations, the same addresses in the words themselves, and words of packed relocations.
fn held_addresses(image: &ElfView<'_>, new: &[u8]) -> Vec<Held> {
    let relative = match image.processor {
        Processor::Aarch64 => [R_AARCH64_RELATIVE, R_AARCH64_IRELATIVE],
        Processor::X86_64 => [R_X86_64_RELATIVE, R_X86_64_IRELATIVE],
    };
    let at = |bytes: &[u8], offset: FileOffset| u64_at(bytes, usize::try_from(offset.0).ok()?);
    let held = |offset: FileOffset| {
        let (before, after) = (Address(at(image.bytes, offset)?), NewAddress(at(new, offset)?));
        Some(Held { offset, before, after })
    };
    let mut found = Vec::new();
    let of_kind =
        |kind: u32| image.sections.iter().filter(move |section| section.is_loaded() && section.kind == kind);
    for section in of_kind(SHT_RELA) {
        for (number, entry) in section.bytes.chunks_exact(RELA_SIZE).enumerate() {
            let is_relative = u64_at(entry, 8).is_some_and(|info| relative.contains(&(info as u32)));
            let addend = held(FileOffset(section.offset).plus((number * RELA_SIZE) as u64 + 16));
            let Some(addend) = addend.filter(|_| is_relative) else { continue };
            let word = u64_at(entry, 0).and_then(|place| image.mapped_offset(place, WORD)).and_then(held);
            // The loader writes there without reading, so the word may hold any other value.
            found.extend(word.filter(|word| word.before == addend.before && word.after == addend.after));
            found.push(addend);
        }
    }
    for section in of_kind(SHT_RELR) {
        let places = packed_places(section.bytes);
        found.extend(places.filter_map(|place| held(image.mapped_offset(place, WORD)?)));
    }
    found
}

fn packed_places(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let mut next = 0_u64;
    table.chunks_exact(WORD as usize).flat_map(move |entry| {
        let entry = u64_at(entry, 0).unwrap_or(0);
        let is_address = entry & 1 == 0;
        let first = if is_address { entry } else { next };
        let bits = if is_address { 1 } else { entry >> 1 };
        next = first.wrapping_add(if is_address { WORD } else { 63 * WORD });
        (0..63).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first.wrapping_add(bit * WORD))
    })
}

/// Checks values of dynamic symbols; those that lead to a copy must name the section of the copies.
fn check_symbols(copies: &mut Copies<'_>, index: usize, claims: &mut Claims, findings: &mut Findings) {
    let (old, new) = (copies.old, copies.new);
    let Some(table) = old.sections.iter().position(|section| section.kind == SHT_DYNSYM) else { return };
    let (before, after) = (&old.sections[table], &new.sections[table]);
    let mut moved = BTreeSet::new();
    for number in 0..before.bytes.len() / SYMBOL_SIZE {
        let (Some(symbol), Some(found)) = (symbol_at(before, number), symbol_at(after, number)) else {
            break;
        };
        if symbol == found {
            continue;
        }
        let offset = before.offset + (number * SYMBOL_SIZE) as u64;
        // Section, value and size; everything else is compared byte by byte.
        claims.add(offset + 6, 18);
        moved.insert(number as u64);
        let is_copy = symbol.is_defined()
            && found.section as usize == index
            && copies.original(NewAddress(found.value)).is_some()
            && found.size == copies.named_size(NewAddress(found.value), symbol.size)
            && copies.stands_for(Address(symbol.value), NewAddress(found.value));
        if !is_copy {
            let name = format!("dynamic symbol {number}");
            findings.differs(Difference::number(Check::Copies, offset + 8, &name, symbol.value, found.value));
        }
    }
    // With an addend, the loader would store an address inside the copy.
    for section in old.sections.iter().filter(|section| section.is_loaded() && section.kind == SHT_RELA) {
        for entry in section.bytes.chunks_exact(RELA_SIZE) {
            let symbol = u64_at(entry, 8).unwrap_or(0) >> 32;
            if moved.contains(&symbol) && u64_at(entry, 16) != Some(0) {
                let name = format!("a relocation of dynamic symbol {symbol}");
                findings.differs(Difference::new(
                    Check::Copies,
                    None,
                    name,
                    "no distance from a copy",
                    "one",
                ));
            }
        }
    }
}

/// What in the new image keeps the address of an original.
#[derive(Clone, Copy)]
enum Keeper {
    /// An instruction, a word of data or a table of symbols, by its address.
    Mapped(NewAddress),
    /// A field that the loader reads, by its position.
    InFile(FileOffset),
}

/// Addresses that the loader computes from a dynamic symbol and an addend, each with the position of its relocation.
fn named_by_relocations<'view>(image: &'view ElfView<'_>) -> impl Iterator<Item = (Address, Keeper)> + 'view {
    let table = image.sections.iter().find(|section| section.kind == SHT_DYNSYM);
    let tables = image.sections.iter().filter(|section| section.is_loaded() && section.kind == SHT_RELA);
    tables.flat_map(move |section| {
        section.bytes.chunks_exact(RELA_SIZE).enumerate().filter_map(move |(number, entry)| {
            let symbol = symbol_at(table?, usize::try_from(u64_at(entry, 8)? >> 32).ok()?)?;
            let position = FileOffset(section.offset).plus((number * RELA_SIZE) as u64);
            let address = Address(symbol.value.wrapping_add(u64_at(entry, 16)?));
            symbol.is_defined().then_some((address, Keeper::InFile(position)))
        })
    })
}

/// Checks that no address of an original is kept if some address of its function is that of the copy: programs compare
/// addresses of functions.
pub(super) fn check_identity(copies: &Copies<'_>, functions: &AddressMoves, findings: &mut Findings) {
    // An original keeps its address, so the old address is searched for in the new image.
    let formed = code::formed(copies, &copies.led).into_iter();
    let mut kept: BTreeMap<Address, Keeper> =
        formed.map(|(address, place)| (address, Keeper::Mapped(place))).collect();
    let wanted = |(address, _): &(Address, Keeper)| copies.led.contains(address);
    let held = held_addresses(copies.old, copies.new.bytes);
    kept.extend(held.iter().map(|held| (Address(held.after.0), Keeper::InFile(held.offset))).filter(wanted));
    for section in copies.new.sections.iter().filter(|section| section.kind == SHT_DYNSYM) {
        let symbols = (0..section.bytes.len() / SYMBOL_SIZE).filter_map(|number| symbol_at(section, number));
        // No program looks up the symbol of a section; the relocations that name one are among those read next.
        let named = symbols.filter(|symbol| symbol.is_defined() && symbol.kind != STT_SECTION);
        kept.extend(
            named
                .map(|symbol| (Address(symbol.value), Keeper::Mapped(NewAddress(section.address))))
                .filter(wanted),
        );
    }
    kept.extend(named_by_relocations(copies.new).filter(wanted));
    // Unwind entries and the exception tables of copies also hold distances to functions, but programs never compare these.
    let is_data = |section: &&SectionView<'_>| {
        section.is_loaded()
            && !section.is_code()
            && section.kind == SHT_PROGBITS
            && !section.name.starts_with(b".eh_frame")
            && section.name != EXCEPTIONS
    };
    for section in copies.new.sections.iter().filter(is_data) {
        for position in (0..section.bytes.len()).step_by(4) {
            let place = NewAddress(section.address).plus(position as u64);
            let Some(distance) = displacement_at(section.bytes, position) else { break };
            kept.extend(Some((Address(place.plus(distance).0), Keeper::Mapped(place))).filter(wanted));
        }
    }
    let constants = assumed::still_held(copies, functions).into_iter();
    kept.extend(constants.map(|(address, place)| (address, Keeper::Mapped(place))));
    if copies.old.header.e_type == ET_EXEC
        && copies.old.processor == Processor::Aarch64
        && !copies.led.is_empty()
    {
        let found = "some are those of copies";
        let expected = "addresses of originals, which constants hold";
        let name = "addresses of functions at fixed places";
        findings.differs(Difference::new(Check::Copies, None, name, expected, found));
    }
    for (address, keeper) in kept {
        let place = match keeper {
            Keeper::Mapped(address) => address.to_string(),
            Keeper::InFile(offset) => format!("file position {offset}"),
        };
        let name = format!("the function at {address}");
        let found = format!("the original's address at {place}, the copy's elsewhere");
        findings.differs(Difference::new(Check::Copies, None, name, "one address", found));
    }
    findings.checked(Check::Copies, "functions known by their copies", copies.led.len());
}
