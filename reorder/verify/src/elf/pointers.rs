//! What the loader reads: the entry point, `.dynamic`, and its relocations with the words they apply to.
//!
//! A position-independent image has no other absolute code addresses. Places and types must be the same; addends, and words
//! that the loader adjusts in place, must follow the map. Tables are found as the loader finds them (through `.dynamic`) and
//! by section type, so that neither view can hide one from the other. Sources: System V ABI, chapter 5; x86-64 psABI, 4.4.1;
//! ELF for the Arm 64-bit Architecture, 5.7; generic ABI, "Relative Relocation Table".

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::dynamic::{DT_FINI, DT_INIT, DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ};
use goblin::elf::program_header::PT_DYNAMIC;
use goblin::elf::reloc::{
    R_AARCH64_ABS64, R_AARCH64_IRELATIVE, R_AARCH64_RELATIVE, R_X86_64_64, R_X86_64_IRELATIVE,
    R_X86_64_RELATIVE,
};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_RELA};

use super::pair::{ImagePair, Ledger};
use super::symbol_walk::symbol_at;
use crate::bytes::{range, u64_at};
use crate::elf::view::{ElfView, SectionView};
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, FileOffset, NewAddress};

/// Size of one entry of a relocation table with addends.
pub(crate) const RELA_SIZE: usize = 24;
/// Position of `e_entry` in the ELF header.
const ENTRY_FIELD: FileOffset = FileOffset(0x18);
/// Bytes of an address.
const WORD: u64 = 8;
/// Position of the value in an entry of `.dynamic`.
const DYNAMIC_VALUE: usize = 8;
const DYNAMIC_SIZE: usize = 16;
/// `SHT_RELR`, `DT_RELR`, `DT_RELRSZ`: newer than the constants of `goblin`.
pub(super) const SHT_RELR: u32 = 19;
const DT_RELR: u64 = 36;
const DT_RELRSZ: u64 = 35;
/// The last tag of the generic ABI.
const DT_RELRENT: u64 = 37;
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;

/// Checks everything the loader follows.
pub(crate) fn check_loader_pointers(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    check_entry_point(pair, ledger);
    let tables = check_dynamic_section(pair, ledger);
    check_kinds(pair, &tables, ledger);
    let mut relocations = 0;
    for (offset, size) in table_ranges(pair.old, &tables, SHT_RELA, DT_RELA, DT_RELASZ) {
        relocations += check_relocation_table(pair, offset, size, ledger);
    }
    let mut words = 0;
    for (offset, size) in table_ranges(pair.old, &tables, SHT_RELR, DT_RELR, DT_RELRSZ) {
        words += check_relative_table(pair, offset, size, ledger);
    }
    ledger.findings.checked(Check::LoaderPointers, "relocations", relocations);
    ledger.findings.checked(Check::LoaderPointers, "words of relative tables", words);
}

/// Rejects sections and entries of `.dynamic` that this module does not know: they may be relocations of another form, whose
/// words would stay unchecked.
fn check_kinds(pair: ImagePair<'_>, dynamic: &[(u64, u64)], ledger: &mut Ledger<'_>) {
    if pair.moves.moved() == 0 {
        return;
    }
    let is_arm = pair.old.processor == Processor::Aarch64;
    let differs = |offset, place: String| {
        Difference::new(
            Check::LoaderPointers,
            offset,
            place,
            "a form that holds no addresses",
            "an unknown one",
        )
    };
    for section in pair.old.sections.iter().filter(|section| section.is_loaded()) {
        let is_known = section.kind <= SHT_RELR
            || matches!(section.kind, 0x6fff_fff4..=0x6fff_fff7 | 0x6fff_fffd..=0x6fff_ffff)
            || section.kind == SHT_X86_64_UNWIND && !is_arm;
        if !is_known {
            let place = format!("the section at {:#x} of type {:#x}", section.address, section.kind);
            ledger.findings.differs(differs(Some(section.offset), place));
        }
    }
    for &(tag, _) in dynamic {
        let is_known = match tag {
            0..=DT_RELRENT => true,
            // The ranges of GNU without those of Android; the tags of filters and auditors.
            0x6fff_fdf5..=0x6fff_fdff | 0x6fff_fef5..=0x6fff_feff | 0x6fff_fff0..=0x6fff_ffff => true,
            0x7fff_fffd..=0x7fff_ffff => true,
            0x7000_0001..=0x7000_000c => is_arm || tag & 0xf <= 3,
            0x7000_0000 => !is_arm,
            _ => false,
        };
        if !is_known {
            ledger.findings.differs(differs(None, format!("the entry {tag:#x} of .dynamic")));
        }
    }
}

fn check_entry_point(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    ledger.claim(ENTRY_FIELD, WORD);
    let expected = pair.mapped(Address(pair.old.header.e_entry));
    let found = NewAddress(pair.new.header.e_entry);
    ledger.expect_address(Check::LoaderPointers, ENTRY_FIELD, "the entry point", expected, found);
}

/// Compares `.dynamic`; gives its (tag, value) pairs in the old image.
fn check_dynamic_section(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) -> Vec<(u64, u64)> {
    let Some((offset, old)) = pair.old.segment(PT_DYNAMIC) else { return Vec::new() };
    let new = range(pair.new.bytes, offset, old.len() as u64).unwrap_or_default();
    let mut entries = Vec::new();
    for (index, entry) in old.chunks_exact(DYNAMIC_SIZE).enumerate() {
        let at = index * DYNAMIC_SIZE;
        let (Some(tag), Some(before)) = (u64_at(entry, 0), u64_at(entry, DYNAMIC_VALUE)) else { break };
        entries.push((tag, before));
        let is_code = matches!(tag, DT_INIT | DT_FINI);
        if let (true, Some(after)) = (is_code, u64_at(new, at + DYNAMIC_VALUE)) {
            let place = FileOffset(offset).plus((at + DYNAMIC_VALUE) as u64);
            ledger.claim(place, WORD);
            ledger.expect_address(
                Check::LoaderPointers,
                place,
                "an initialiser in .dynamic",
                pair.mapped(Address(before)),
                NewAddress(after),
            );
        }
    }
    ledger.findings.checked(Check::LoaderPointers, "entries of .dynamic", entries.len());
    entries
}

/// File ranges (position, size) of the tables that sections of type `kind` or the pair of `.dynamic` tags name, each once.
fn table_ranges(
    image: &ElfView<'_>,
    dynamic: &[(u64, u64)],
    kind: u32,
    address_tag: u64,
    size_tag: u64,
) -> Vec<(FileOffset, u64)> {
    let mut ranges: Vec<(FileOffset, u64)> = image
        .sections
        .iter()
        .filter(|section| section.kind == kind && section.is_loaded())
        .map(|section| (FileOffset(section.offset), section.bytes.len() as u64))
        .collect();
    let value = |wanted: u64| dynamic.iter().find(|&&(tag, _)| tag == wanted).map(|&(_, value)| value);
    let mut named = vec![(address_tag, size_tag)];
    if kind == SHT_RELA {
        named.push((DT_JMPREL, DT_PLTRELSZ));
    }
    for (address_tag, size_tag) in named {
        let (Some(address), Some(size)) = (value(address_tag), value(size_tag)) else { continue };
        if let Some(offset) = image.mapped_offset(address, size) {
            ranges.push((offset, size));
        }
    }
    // `.dynamic` may name one range for two adjacent sections: keep what is not covered by an earlier range.
    ranges.sort_unstable_by_key(|&(offset, size)| (offset, u64::MAX - size));
    let mut covered = FileOffset(0);
    ranges.retain(|&(offset, size)| {
        let end = offset.plus(size);
        let is_new = end > covered;
        covered = covered.max(end);
        is_new
    });
    ranges
}

/// Compares one table of relocations with addends; gives the number of entries.
fn check_relocation_table(
    pair: ImagePair<'_>,
    offset: FileOffset,
    size: u64,
    ledger: &mut Ledger<'_>,
) -> usize {
    let (Some(old), Some(new)) =
        (range(pair.old.bytes, offset.0, size), range(pair.new.bytes, offset.0, size))
    else {
        return 0;
    };
    let symbols = pair.old.sections.iter().find(|section| section.kind == SHT_DYNSYM);
    // Types whose addend is an address, and the type that adds its addend to a symbol.
    let (relative, absolute) = match pair.old.processor {
        Processor::Aarch64 => ([R_AARCH64_RELATIVE, R_AARCH64_IRELATIVE], R_AARCH64_ABS64),
        Processor::X86_64 => ([R_X86_64_RELATIVE, R_X86_64_IRELATIVE], R_X86_64_64),
    };
    for (index, (before, after)) in old.chunks_exact(RELA_SIZE).zip(new.chunks_exact(RELA_SIZE)).enumerate() {
        let at = offset.plus((index * RELA_SIZE) as u64 + 16);
        // Place, type and symbol are left to the byte comparison; only the addend may follow the map. It is a plain number:
        // only the type says whether it is an address.
        let (Some(place), Some(information), Some(old_addend), Some(new_addend)) =
            (u64_at(before, 0), u64_at(before, 8), u64_at(before, 16), u64_at(after, 16))
        else {
            break;
        };
        let expected = match information as u32 {
            kind if relative.contains(&kind)
                && pair.leads_to(Address(old_addend), NewAddress(new_addend)) =>
            {
                new_addend
            }
            kind if relative.contains(&kind) => pair.mapped(Address(old_addend)).0,
            kind if kind == absolute => symbolic_addend(pair, symbols, information, old_addend),
            _ => old_addend,
        };
        if old_addend != new_addend {
            ledger.claim(at, WORD);
        }
        if relative.contains(&(information as u32)) {
            ledger.findings.found(pair.lost_alignment(Check::LoaderPointers, Address(old_addend)));
        }
        ledger.findings.expect(
            Check::LoaderPointers,
            at.0,
            format_args!("the addend for {}", Address(place)),
            expected,
            new_addend,
        );
        if expected != old_addend {
            accept_copy(pair, Address(place), old_addend, expected, ledger);
        }
        if information as u32 == absolute
            && let Some(value) = symbol_value(symbols, information)
        {
            let value = value.plus(old_addend);
            accept_copy(pair, Address(place), value.0, pair.mapped(value).0, ledger);
        }
    }
    old.len() / RELA_SIZE
}

/// The new addend with which symbol + addend stays at the same byte of the symbol's function.
fn symbolic_addend(
    pair: ImagePair<'_>,
    symbols: Option<&SectionView<'_>>,
    information: u64,
    addend: u64,
) -> u64 {
    match symbol_value(symbols, information) {
        Some(value) => pair.mapped(value.plus(addend)).distance_from(pair.mapped(value)),
        None => addend,
    }
}

/// The value of the symbol that a relocation names, if the image defines it.
fn symbol_value(symbols: Option<&SectionView<'_>>, information: u64) -> Option<Address> {
    let symbol = symbol_at(symbols?, (information >> 32) as usize)?;
    symbol.is_defined().then_some(Address(symbol.value))
}

/// Claims the word at `place` if it holds a copy of an addend or a value, `old` before and `new` now. The loader overwrites
/// these words, so such a copy may follow or stay.
fn accept_copy(pair: ImagePair<'_>, place: Address, old: u64, new: u64, ledger: &mut Ledger<'_>) {
    let Some(offset) = pair.old.mapped_offset(place.0, WORD) else { return };
    let before = u64_at(pair.old.bytes, offset.0 as usize);
    let after = u64_at(pair.new.bytes, offset.0 as usize);
    if before == Some(old) && after == Some(new) {
        ledger.claim(offset, WORD);
    }
}

/// Checks the words that a table of relative relocations names; gives their number.
fn check_relative_table(
    pair: ImagePair<'_>,
    offset: FileOffset,
    size: u64,
    ledger: &mut Ledger<'_>,
) -> usize {
    let Some(table) = range(pair.old.bytes, offset.0, size) else { return 0 };
    let mut words = 0;
    for place in relative_places(table) {
        words += 1;
        check_word(pair, Address(place), ledger);
    }
    words
}

/// The places that a table of relative relocations names. Source: gABI, "Relative Relocation Table".
fn relative_places(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let mut next = 0u64;
    table.chunks_exact(WORD as usize).flat_map(move |entry| {
        let entry = u64_at(entry, 0).unwrap_or_default();
        let first = if entry & 1 == 0 { entry } else { next };
        next = first.wrapping_add(if entry & 1 == 0 { WORD } else { 63 * WORD });
        let words = if entry & 1 == 0 { 1 } else { entry >> 1 };
        (0..63u64).filter(move |bit| words >> bit & 1 == 1).map(move |bit| first.wrapping_add(bit * WORD))
    })
}

/// The places that the loader writes to, ascending, as the sections of relocations name them.
pub(crate) fn written_places(image: &ElfView<'_>) -> Vec<u64> {
    /// `R_X86_64_NONE` and `R_AARCH64_NONE`.
    const NONE: u32 = 0;
    let of_kind =
        |kind| image.sections.iter().filter(move |section| section.kind == kind && section.is_loaded());
    let entries = of_kind(SHT_RELA).flat_map(|section| section.bytes.chunks_exact(RELA_SIZE));
    let packed = of_kind(SHT_RELR).flat_map(|section| relative_places(section.bytes));
    let entries = entries.filter(|entry| u64_at(entry, 8).is_some_and(|it| it as u32 != NONE));
    let places = entries.filter_map(|entry| u64_at(entry, 0)).chain(packed);
    // A bitmap of a few bytes names many places; only those in the file count, each once.
    let places: BTreeSet<u64> = places.filter(|&place| image.mapped_offset(place, WORD).is_some()).collect();
    places.into_iter().collect()
}

/// The addresses that the loader stores, in any order.
pub(crate) fn loaded_pointers(image: &ElfView<'_>) -> Vec<Address> {
    loaded_addresses(image).into_iter().map(|(_, address)| address).collect()
}

/// The addresses that the loader stores, by place, each place once.
pub(crate) fn loaded_addresses(image: &ElfView<'_>) -> Vec<(Address, Address)> {
    let of_kind =
        |kind| image.sections.iter().filter(move |section| section.kind == kind && section.is_loaded());
    let symbols = image.sections.iter().find(|section| section.kind == SHT_DYNSYM);
    let entries = of_kind(SHT_RELA).flat_map(|section| section.bytes.chunks_exact(RELA_SIZE));
    let added = entries.filter_map(|entry| {
        let (place, information, addend) = (u64_at(entry, 0)?, u64_at(entry, 8)?, u64_at(entry, 16)?);
        // A relocation without a symbol adds to zero.
        let has_symbol = information >> 32 != 0;
        let value = if has_symbol { symbol_value(symbols, information)? } else { Address(0) };
        Some((Address(place), value.plus(addend)))
    });
    let mut found: BTreeMap<Address, Address> = BTreeMap::new();
    for (place, address) in added {
        found.entry(place).or_insert(address);
    }
    // A bitmap of a few bytes names many places; only those in the file count, each once.
    for place in of_kind(SHT_RELR).flat_map(|section| relative_places(section.bytes)) {
        let stored = || {
            let offset = usize::try_from(image.mapped_offset(place, WORD)?.0).ok()?;
            u64_at(image.bytes, offset).map(Address)
        };
        if let std::collections::btree_map::Entry::Vacant(entry) = found.entry(Address(place))
            && let Some(address) = stored()
        {
            entry.insert(address);
        }
    }
    found.into_iter().collect()
}

/// The addresses of this image that the loader of x86-64 stores without looking for a symbol, by place.
pub(crate) fn relative_pointers(image: &ElfView<'_>) -> BTreeMap<u64, u64> {
    let of_kind =
        |kind| image.sections.iter().filter(move |section| section.kind == kind && section.is_loaded());
    let entries = of_kind(SHT_RELA).flat_map(|section| section.bytes.chunks_exact(RELA_SIZE));
    let entries = entries.filter_map(|entry| {
        let is_relative = [R_X86_64_RELATIVE, R_X86_64_IRELATIVE].contains(&(u64_at(entry, 8)? as u32));
        Some((u64_at(entry, 0)?, u64_at(entry, 16)?)).filter(|_| is_relative)
    });
    let packed = of_kind(SHT_RELR).flat_map(|section| relative_places(section.bytes));
    // Only places in the file count.
    entries.chain(packed.filter_map(|place| Some((place, image.word_at(place)?)))).collect()
}

fn check_word(pair: ImagePair<'_>, place: Address, ledger: &mut Ledger<'_>) {
    let words = pair.old.mapped_offset(place.0, WORD).and_then(|offset| {
        let at = usize::try_from(offset.0).ok()?;
        Some((offset, Address(u64_at(pair.old.bytes, at)?), NewAddress(u64_at(pair.new.bytes, at)?)))
    });
    let Some((offset, before, after)) = words else {
        ledger.findings.differs(Difference::new(
            Check::LoaderPointers,
            None,
            format!("the word at {place}"),
            "bytes in the file",
            "none",
        ));
        return;
    };
    if before.0 != after.0 {
        ledger.claim(offset, WORD);
    }
    ledger.findings.found(pair.lost_alignment(Check::LoaderPointers, before));
    if !pair.leads_to(before, after) {
        let expected = pair.mapped(before);
        let name = format!("the word at {place}");
        ledger.findings.differs(Difference::number(
            Check::LoaderPointers,
            offset.0,
            &name,
            expected.0,
            after.0,
        ));
    }
}
