//! Relocations that the linker kept (`--emit-relocs`): cross-checked by the analysis, updated here.
//!
//! For S + A (− P) that agreed with the stored value before, A is chosen so that it agrees again. Entries that
//! linkers left stale (relaxed types, table entries that went through the GOT) keep their addend; their place moves.
//! The compact form cannot keep its size and is emptied.

use object::LittleEndian;
use object::elf::Rela64;
use object::pod;

use crate::address_map::AddressMap;
use crate::debug::is_debug;
use crate::elf::kept_sums;
use crate::ledger::Ledger;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_image::elf::analysis::KeptAnalysis;
use reorder_image::elf::analysis::kept_relocations::holds;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::relocation_types::{Meaning, meaning};
use reorder_image::elf::section::{Section, SectionIndex};
use reorder_image::elf::symbol::{Symbol, SymbolTable};

/// Rewrites places and addends of all kept relocations; empties the compact form.
///
/// # Errors
/// Reports malformed tables.
pub(crate) fn move_static_relocations(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    if !map.is_identity() {
        compact_tables(file).for_each(|section| empty_table(section, output, ledger));
    }
    for section in file.sections.iter().filter(|section| !section.is_loaded() && section.has_bytes()) {
        let target = file.sections.get(section.info as usize).filter(|target| target.kind != NO_SECTION);
        let Some(target) = target.filter(|_| section.kind == object::elf::SHT_RELA.0) else { continue };
        // At a fixed address the analysis lists the words of all that is loaded.
        let has_copies = match target.is_loaded() {
            true => !target.is_executable() && !analysis.code.is_fixed_address,
            false => !is_debug(target),
        };
        if has_copies {
            move_copies(file, section, target, map, output, ledger)?;
        }
        move_section(file, analysis, section, target, map, output, ledger)?;
    }
    Ok(())
}

/// Kept relocations in the compact form, which stores differences: after a move they need more room than there is.
pub(crate) fn compact_tables<'a, 'data>(
    file: &'a ElfFile<'data>,
) -> impl Iterator<Item = &'a Section<'data>> {
    let kept = file.sections.iter().filter(|section| !section.is_loaded());
    let compact = kept.filter(|section| section.kind == object::elf::SHT_CREL.0);
    compact.filter(|section| file.section_bytes(section).iter().any(|&byte| byte != 0))
}

/// Leaves a table without entries: its header, whose first byte is zero, says so, and readers ignore what follows.
fn empty_table(section: &Section<'_>, output: &mut [u8], ledger: &mut Ledger) {
    let start = section.offset.0 as usize;
    let end = start + section.size as usize;
    output[start..end].fill(0);
    ledger.record(start..end);
}

/// `sh_type` of an inactive section header.
const NO_SECTION: u32 = object::elf::SHT_NULL.0;

/// Words that hold the address of a symbol although the loader stores it there again, as gold writes them in shared
/// objects, and those of notes that are not loaded: the kept relocation describes them, so they follow.
fn move_copies(
    file: &ElfFile<'_>,
    section: &Section<'_>,
    target: &Section<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    let symbols = SymbolTable::parse_section(file, SectionIndex(section.link))?;
    for entry in entries(file, section)? {
        let info = entry.r_info.get(LittleEndian);
        if meaning(file.processor, info as u32) != Meaning::Absolute(8) {
            continue;
        }
        let Some(symbol) = symbols.get((info >> 32) as usize) else { continue };
        let addend = entry.r_addend.get(LittleEndian) as u64;
        let within = Address(entry.r_offset.get(LittleEndian)).distance_from(target.address);
        let end = within.checked_add(8).filter(|&end| end <= target.size);
        let Some(start) = end.map(|_| target.offset.plus(within).0 as usize) else { continue };
        let values = kept_sums::readings(file, &symbol).map(|reading| reading.plus(addend));
        let is_stored =
            |value: &Address| file.bytes.get(start..start + 8) == Some(&value.0.to_le_bytes()[..]);
        if let Some(value) = values.into_iter().find(is_stored) {
            ledger.write(output, start, &map.map(value).0.to_le_bytes());
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
    analysis: &KeptAnalysis<'_>,
    section: &Section<'_>,
    target: &Section<'_>,
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
        let new_place = new_place(target, map, place);
        let symbol = symbols.get((info >> 32) as usize);
        let new_addend =
            symbol.filter(|_| !is_stray(target, place)).and_then(|symbol| match is_debug(target) {
                true => addend_of_stale(file, analysis, map, target, entry, &symbol),
                false => new_addend(file, analysis, map, output, place, info as u32, addend, &symbol),
            });
        ledger.write(output, position, &new_place.0.to_le_bytes());
        ledger.write(output, position + 16, &new_addend.unwrap_or(addend).to_le_bytes());
    }
    Ok(())
}

/// Where an entry for `target` points after the move. Without an address the place is an offset in its section, even if
/// code has that address; and data stays, even if an entry for it names a place in the code.
fn new_place(target: &Section<'_>, map: &AddressMap, place: Address) -> NewAddress {
    match target.is_loaded() && target.is_executable() {
        true => map.map(place),
        false => NewAddress(place.0),
    }
}

/// Whether an entry for a loaded section has its place outside of that section: lld leaves such entries where it merged
/// unwind entries.
fn is_stray(target: &Section<'_>, place: Address) -> bool {
    target.is_loaded() && !target.contains(place)
}

/// The addend by which a relocation of debug information goes on to describe bytes that are left as they are, if it
/// described them before. (Debug information that is written again loses its relocations later.)
fn addend_of_stale(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
    map: &AddressMap,
    target: &Section<'_>,
    entry: &Rela64<LittleEndian>,
    symbol: &Symbol<'_>,
) -> Option<i64> {
    let Meaning::Absolute(width) = meaning(file.processor, entry.r_info.get(LittleEndian) as u32) else {
        return None;
    };
    let addend = entry.r_addend.get(LittleEndian);
    let within = Address(entry.r_offset.get(LittleEndian)).distance_from(target.address);
    let word = stored(file.section_bytes(target), usize::try_from(within).ok()?, usize::from(width))?;
    let is_described = word == truncate(symbol.value.plus(addend as u64).0, usize::from(width));
    is_described.then(|| addend.wrapping_sub(symbol_delta(analysis, map, symbol) as i64))
}

/// What the value of a symbol grows by; those of sections stay.
fn symbol_delta(analysis: &KeptAnalysis<'_>, map: &AddressMap, symbol: &Symbol<'_>) -> u64 {
    let moves = !symbol.is_section() && analysis.code.arena_of(symbol.value).is_some();
    if moves { map.map(symbol.value).0.wrapping_sub(symbol.value.0) } else { 0 }
}

/// The addend that makes the formula true again, if it was true before.
#[expect(clippy::too_many_arguments, reason = "one relocation's parts; a struct would only rename them")]
fn new_addend(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
    map: &AddressMap,
    output: &[u8],
    place: Address,
    kind: u32,
    addend: i64,
    symbol: &Symbol<'_>,
) -> Option<i64> {
    let meaning = meaning(file.processor, kind);
    let sums = kept_sums::readings(file, symbol).map(|reading| reading.plus(addend as u64));
    let new_place = map.map(place);
    let still_holds = |sum: Address| match meaning {
        Meaning::Instruction(form) => {
            let start = file.offset_of(Address(new_place.0), 4).map(|start| start.0 as usize);
            let word = start.and_then(|start| stored(output, start, 4));
            word.is_some_and(|word| holds(form, word as u32, Address(new_place.0), Address(map.map(sum).0)))
        }
        _ => false,
    };
    let expected = kept_sums::meant(file, analysis, place, meaning, sums, still_holds);
    let change = match meaning {
        Meaning::Relative(width) => {
            let width = usize::from(width);
            let old_stored = stored(file.bytes, file.offset_of(place, width as u64)?.0 as usize, width)?;
            if truncate(expected.0.wrapping_sub(place.0), width) != old_stored {
                return None;
            }
            let new_offset = file.offset_of(Address(new_place.0), width as u64)?.0 as usize;
            let new_stored = stored(output, new_offset, width)?;
            let stored_change = sign_extend(new_stored, width).wrapping_sub(sign_extend(old_stored, width));
            stored_change.wrapping_add(new_place.0.wrapping_sub(place.0))
        }
        // The loader's relocation holds the value when the word itself is zero, and instructions hold parts of it, so
        // the target decides. Where the symbol is an object, a sum that lies in the code means the object all the same.
        Meaning::Absolute(_) | Meaning::Instruction(_) => {
            let section = symbol.defining_section().and_then(|index| file.section_at(index));
            if !section.is_some_and(Section::is_executable) {
                return None;
            }
            map.map(expected).0.wrapping_sub(expected.0)
        }
        _ => return None,
    };
    Some(addend.wrapping_add(change.wrapping_sub(symbol_delta(analysis, map, symbol)) as i64))
}

fn stored(bytes: &[u8], start: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..width].copy_from_slice(bytes.get(start..start.checked_add(width)?)?);
    Some(u64::from_le_bytes(word))
}

fn truncate(value: u64, width: usize) -> u64 {
    if width == 4 { u64::from(value as u32) } else { value }
}

fn sign_extend(value: u64, width: usize) -> u64 {
    if width == 4 { i64::from(value as u32 as i32) as u64 } else { value }
}
