//! The loader's relocations: in a position-independent image, the complete list of absolute addresses.
//!
//! Takes the loaded relocation sections; gives one [`LoaderRelocation`] per place. Guarantees that the sections
//! cover what `.dynamic` tells the loader to process.
//! Source: System V ABI AMD64, "Relocation Types"; ELF for the Arm 64-bit Architecture, "Dynamic relocations"; the generic ABI's `SHT_RELR`.

use object::LittleEndian;
use object::elf::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_RELR, DT_RELRSZ, DynamicTag, FileHeader64, Rela64, Relr64,
};
use object::pod;
use object::read::elf::RelrIterator;

use crate::elf::dynamic::DynamicEntry;
use crate::elf::file::ElfFile;
use crate::elf::section::{Section, SectionIndex};
use crate::elf::symbol::SymbolTable;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// What the loader does at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderAction {
    /// Stores the load bias plus this address.
    Relative(Address),
    /// Calls the resolver at this address and stores its result.
    ResolveIndirect(Address),
    /// Looks a symbol up, which this image may define here, or does something that involves no address of this image.
    Symbolic(Option<Address>),
}

/// One place that the loader writes.
#[derive(Clone, Copy, Debug)]
pub struct LoaderRelocation {
    /// The place.
    pub place: Address,
    /// What is written there.
    pub action: LoaderAction,
    /// Where the entry stores its addend; none for the packed form, whose addend is the place's contents.
    pub addend_field: Option<FileOffset>,
}

/// The loader's relocation types of a processor.
struct LoaderTypes {
    relative: u32,
    indirect: u32,
    /// Nothing, a symbol's address, its size, or thread-local storage.
    symbolic: &'static [u32],
    /// The loader would compute them from the place's runtime address.
    place_relative: &'static [u32],
}

/// Symbolic: 64, COPY, GLOB_DAT, JUMP_SLOT, DTPMOD64, DTPOFF64, TPOFF64, SIZE32, SIZE64, TLSDESC.
const X86_64_TYPES: LoaderTypes = LoaderTypes {
    relative: object::elf::R_X86_64_RELATIVE.0,
    indirect: object::elf::R_X86_64_IRELATIVE.0,
    symbolic: &[0, 1, 5, 6, 7, 16, 17, 18, 32, 33, 36],
    place_relative: &[2, 4, 9, 13, 15, 24],
};

/// Symbolic: ABS64, COPY, GLOB_DAT, JUMP_SLOT, TLS_DTPMOD, TLS_DTPREL, TLS_TPREL, TLSDESC.
const AARCH64_TYPES: LoaderTypes = LoaderTypes {
    relative: object::elf::R_AARCH64_RELATIVE.0,
    indirect: object::elf::R_AARCH64_IRELATIVE.0,
    symbolic: &[0, 256, 257, 1024, 1025, 1026, 1028, 1029, 1030, 1031],
    place_relative: &[260, 261, 262],
};

/// All loader relocations in file order.
///
/// # Errors
/// Refuses (R9) packed forms without a codec and PC-relative entries; reports malformed tables.
pub fn loader_relocations(file: &ElfFile<'_>, dynamic: &[DynamicEntry]) -> Result<Vec<LoaderRelocation>> {
    let mut relocations = Vec::new();
    let mut covered = Vec::new();
    for section in file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes()) {
        match section.kind {
            kind if kind == object::elf::SHT_RELA.0 => explicit(file, section, &mut relocations)?,
            kind if kind == object::elf::SHT_RELR.0 => packed(file, section, &mut relocations)?,
            kind if kind == object::elf::SHT_REL.0
                || kind == object::elf::SHT_ANDROID_RELA.0
                || kind == object::elf::SHT_CREL.0 =>
            {
                return Err(Refusal::new(
                    RefusalCode::UnknownCodeAddresses,
                    format!(
                        "loader relocations in the unsupported form of section {}",
                        section.display_name()
                    ),
                    "relink without packed Android or compact relocations",
                )
                .at(section.address)
                .into());
            }
            _ => continue,
        }
        covered.push((section.address, section.end()));
    }
    check_coverage(dynamic, covered)?;
    Ok(relocations)
}

fn explicit(
    file: &ElfFile<'_>,
    section: &Section<'_>,
    relocations: &mut Vec<LoaderRelocation>,
) -> Result<()> {
    let entries = pod::slice_from_all_bytes::<Rela64<LittleEndian>>(file.section_bytes(section))
        .map_err(|()| broken(section))?;
    relocations.reserve(entries.len());
    let symbols = match section.link {
        0 => None,
        link => Some(SymbolTable::parse_section(file, SectionIndex(link))?),
    };
    let types = match file.processor {
        Processor::Aarch64 => &AARCH64_TYPES,
        Processor::X86_64 | Processor::Other => &X86_64_TYPES,
    };
    for (index, entry) in entries.iter().enumerate() {
        let position = section.offset.plus((index * size_of::<Rela64<LittleEndian>>()) as u64);
        let addend = Address(entry.r_addend.get(LittleEndian) as u64);
        let kind = entry.r_info.get(LittleEndian) as u32;
        let place = Address(entry.r_offset.get(LittleEndian));
        let action = match kind {
            kind if kind == types.relative => LoaderAction::Relative(addend),
            kind if kind == types.indirect => LoaderAction::ResolveIndirect(addend),
            kind if types.place_relative.contains(&kind) => {
                return Err(Refusal::new(
                    RefusalCode::UnknownCodeAddresses,
                    format!("a loader relocation of PC-relative type {kind}"),
                    "relink the program as position-independent code (-fPIC, -fPIE)",
                )
                .at(place)
                .into());
            }
            kind if types.symbolic.contains(&kind) => {
                let symbol = (entry.r_info.get(LittleEndian) >> 32) as usize;
                LoaderAction::Symbolic(checked_symbol(&symbols, symbol, addend, place)?)
            }
            kind => {
                return Err(Refusal::new(
                    RefusalCode::UnknownCodeAddresses,
                    format!("a loader relocation of the unknown type {kind}"),
                    "relink without extensions of the relocation format",
                )
                .at(place)
                .into());
            }
        };
        relocations.push(LoaderRelocation { place, action, addend_field: Some(position.plus(16)) });
    }
    Ok(())
}

/// The loader adds the addend to the symbol's new value: that is right only where both move together. Gives the sum, if this image
/// defines the symbol.
fn checked_symbol(
    symbols: &Option<SymbolTable<'_>>,
    index: usize,
    addend: Address,
    place: Address,
) -> std::result::Result<Option<Address>, Refusal> {
    let Some(symbol) = symbols.as_ref().and_then(|symbols| symbols.get(index)) else { return Ok(None) };
    let is_defined = symbol.defining_section().is_some();
    if is_defined && (symbol.is_section() || symbol.is_function() && addend != Address(0)) {
        return Err(Refusal::new(
            RefusalCode::UnknownCodeAddresses,
            "a loader relocation adds a distance to the symbol of a section or a function",
            "relink with -Bsymbolic, or with a linker that writes relative relocations for local addresses",
        )
        .at(place));
    }
    Ok(Some(symbol.value.plus(addend.0)).filter(|_| is_defined && !symbol.is_thread_local()))
}

fn packed(file: &ElfFile<'_>, section: &Section<'_>, relocations: &mut Vec<LoaderRelocation>) -> Result<()> {
    let words = pod::slice_from_all_bytes::<Relr64<LittleEndian>>(file.section_bytes(section))
        .map_err(|()| broken(section))?;
    for place in RelrIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, words) {
        let place = Address(place);
        let value = file
            .bytes_at(place, 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_le_bytes)
            .ok_or_else(|| {
            Error::malformed(section.offset.0, format!("a packed relocation at {place} has no place"))
        })?;
        let action = LoaderAction::Relative(Address(value));
        relocations.push(LoaderRelocation { place, action, addend_field: None });
    }
    Ok(())
}

fn broken(section: &Section<'_>) -> Error {
    Error::malformed(section.offset.0, format!("{} is not a whole number of entries", section.display_name()))
}

/// The loader believes `.dynamic`, we read sections: a table outside every section would go unseen.
fn check_coverage(dynamic: &[DynamicEntry], mut covered: Vec<(Address, Address)>) -> Result<()> {
    covered.sort_unstable();
    let mut merged: Vec<(Address, Address)> = Vec::new();
    for range in covered {
        match merged.last_mut() {
            Some(last) if range.0 <= last.1.plus(7) => last.1 = last.1.max(range.1),
            _ => merged.push(range),
        }
    }
    let value = |tag: DynamicTag| dynamic.iter().find(|entry| entry.tag == tag.0).map(|entry| entry.value);
    for (table, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ), (DT_RELR, DT_RELRSZ)] {
        let (Some(start), Some(size)) = (value(table), value(size)) else { continue };
        let Some(end) = start.checked_add(size) else {
            return Err(Error::malformed(0, "a loader table runs past the address space"));
        };
        if size > 0 && !merged.iter().any(|range| range.0.0 <= start && end <= range.1.0) {
            return Err(Error::malformed(
                0,
                format!("the loader's relocation table at {start:#x} lies outside every relocation section"),
            ));
        }
    }
    Ok(())
}
