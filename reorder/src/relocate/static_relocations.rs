//! Relocations that the linker kept (`--emit-relocs`): cross-checked by the analysis, kept true here.
//!
//! For S + A (− P) that agreed with the stored value before, A is chosen so that it agrees again. Entries that
//! linkers left stale (relaxed types, table entries that went through the GOT) keep their addend; their place moves.
//! Source: System V ABI AMD64, "Relocation Types"; ELF for the Arm 64-bit Architecture, "Relocation types".

use object::LittleEndian;
use object::elf::Rela64;
use object::pod;

use crate::address::Address;
use crate::error::{Error, Result};
use crate::image::analysis::Analysis;
use crate::image::elf::file::ElfFile;
use crate::image::elf::machine::Machine;
use crate::image::elf::section::{Section, SectionIndex};
use crate::image::elf::symbol::{Symbol, SymbolTable};
use crate::image::refusal::{Refusal, RefusalCode};
use crate::relocate::address_map::AddressMap;
use crate::relocate::debug::is_debug;
use crate::relocate::ledger::Ledger;

/// How a type computes its value.
enum Formula {
    /// S + A − P in this many bytes.
    Relative(usize),
    /// S + A in this many bytes, or in some bits of an instruction of this many.
    Absolute(usize),
    /// Through the GOT, TLS, or nothing.
    Other,
}

fn formula(machine: Machine, kind: u32) -> Formula {
    match (machine, kind) {
        (Machine::X86_64, 1) => Formula::Absolute(8),
        (Machine::X86_64, 2 | 4) => Formula::Relative(4),
        (Machine::X86_64, 10 | 11) => Formula::Absolute(4),
        (Machine::X86_64, 24) => Formula::Relative(8),
        (Machine::Aarch64, 257) => Formula::Absolute(8),
        (Machine::Aarch64, 258) => Formula::Absolute(4),
        (Machine::Aarch64, 260) => Formula::Relative(8),
        (Machine::Aarch64, 261 | 314) => Formula::Relative(4),
        // Literals, ADR, ADRP, the lowest 12 bits in ADD, loads and stores, branches.
        (Machine::Aarch64, 273..=280 | 282..=286 | 299) => Formula::Absolute(4),
        _ => Formula::Other,
    }
}

/// Rewrites places and addends of all kept relocations.
///
/// # Errors
/// Refuses (R11) the compact form, which has no room for new values; reports malformed tables.
pub fn move_static_relocations(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    for section in file.sections.iter().filter(|section| !section.is_loaded() && section.has_bytes()) {
        let target = file.sections.get(section.info as usize);
        if section.kind == object::elf::SHT_CREL.0 {
            return Err(Refusal::new(
                RefusalCode::R11,
                format!("section {} keeps relocations in the compact form", section.display_name()),
                "relink without --crel, or remove them: llvm-objcopy --remove-section NAME IN OUT",
            )
            .into());
        }
        let is_kept = target.is_some_and(|target| target.is_loaded() || is_debug(target));
        if section.kind == object::elf::SHT_RELA.0 && is_kept {
            if target.is_some_and(|target| target.is_loaded() && !target.is_executable()) {
                move_copies(file, section, map, output, ledger)?;
            }
            move_section(file, analysis, section, map, output, ledger)?;
        }
    }
    Ok(())
}

/// Words that hold the address of a symbol although the loader stores it there again, as gold writes them in shared
/// objects: the kept relocation describes them, so they follow.
fn move_copies(
    file: &ElfFile<'_>,
    section: &Section<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    let symbols = SymbolTable::parse_section(file, SectionIndex(section.link))?;
    for entry in entries(file, section)? {
        let info = entry.r_info.get(LittleEndian);
        if !matches!(formula(file.machine, info as u32), Formula::Absolute(8)) {
            continue;
        }
        let Some(symbol) = symbols.get((info >> 32) as usize) else { continue };
        let target = symbol.value.plus(entry.r_addend.get(LittleEndian) as u64);
        let Some(offset) = file.offset_of(Address(entry.r_offset.get(LittleEndian)), 8) else { continue };
        let start = offset.0 as usize;
        if file.bytes[start..start + 8] == target.0.to_le_bytes() {
            ledger.write(output, start, &map.map(target).0.to_le_bytes());
        }
    }
    Ok(())
}

fn entries<'data>(file: &ElfFile<'data>, section: &Section<'_>) -> Result<&'data [Rela64<LittleEndian>]> {
    pod::slice_from_all_bytes(file.section_bytes(section)).map_err(|()| {
        Error::malformed(
            section.offset.0,
            format!("{} is not a whole number of entries", section.display_name()),
        )
    })
}

fn move_section(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    section: &Section<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    let entries = entries(file, section)?;
    let symbols = SymbolTable::parse_section(file, SectionIndex(section.link))?;
    for (index, entry) in entries.iter().enumerate() {
        let place = Address(entry.r_offset.get(LittleEndian));
        let info = entry.r_info.get(LittleEndian);
        let addend = entry.r_addend.get(LittleEndian);
        let position = section.offset.0 as usize + index * size_of::<Rela64<LittleEndian>>();
        let new_place = map.map(place);
        let new_addend = symbols
            .get((info >> 32) as usize)
            .and_then(|symbol| new_addend(file, analysis, map, output, place, info as u32, addend, &symbol));
        ledger.write(output, position, &new_place.0.to_le_bytes());
        ledger.write(output, position + 16, &new_addend.unwrap_or(addend).to_le_bytes());
    }
    Ok(())
}

/// The addend that makes the formula true again, if it was true before.
#[expect(clippy::too_many_arguments, reason = "one relocation's parts; a struct would only rename them")]
fn new_addend(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    map: &AddressMap,
    output: &[u8],
    place: Address,
    kind: u32,
    addend: i64,
    symbol: &Symbol<'_>,
) -> Option<i64> {
    let (width, is_relative) = match formula(file.machine, kind) {
        Formula::Relative(width) => (width, true),
        Formula::Absolute(width) => (width, false),
        Formula::Other => return None,
    };
    let value = symbol.value;
    let symbol_moves = !symbol.is_section() && analysis.code.arena_of(value).is_some();
    let new_value = if symbol_moves { map.map(value).0 } else { value.0 };
    let symbol_delta = new_value.wrapping_sub(value.0);
    let old_stored = stored(file.bytes, file.offset_of(place, width as u64)?.0 as usize, width)?;
    let new_place = map.map(place);
    let expected = value.0.wrapping_add(addend as u64);
    let change = if is_relative {
        if truncate(expected.wrapping_sub(place.0), width) != old_stored {
            return None;
        }
        let new_offset = file.offset_of(Address(new_place.0), width as u64)?.0 as usize;
        let new_stored = stored(output, new_offset, width)?;
        let stored_change = sign_extend(new_stored, width).wrapping_sub(sign_extend(old_stored, width));
        stored_change.wrapping_add(new_place.0.wrapping_sub(place.0))
    } else {
        // The loader's relocation holds the value when the word itself is zero, so the target decides.
        let target = Address(expected);
        map.map(target).0.wrapping_sub(target.0)
    };
    Some(addend.wrapping_add(change.wrapping_sub(symbol_delta) as i64))
}

fn stored(bytes: &[u8], start: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..width].copy_from_slice(bytes.get(start..start + width)?);
    Some(u64::from_le_bytes(word))
}

fn truncate(value: u64, width: usize) -> u64 {
    if width == 4 { u64::from(value as u32) } else { value }
}

fn sign_extend(value: u64, width: usize) -> u64 {
    if width == 4 { i64::from(value as u32 as i32) as u64 } else { value }
}
