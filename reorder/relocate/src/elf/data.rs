//! Code addresses outside the code: pointers, jump tables, symbols, the entry point, probe notes.

use object::elf::{DT_FINI, DT_INIT};

use crate::address_map::AddressMap;
use crate::ledger::Ledger;
use reorder_base::address::{Address, FileOffset, NewAddress};
use reorder_image::elf::analysis::KeptAnalysis;
use reorder_image::elf::file::{ENTRY_FIELD, ElfFile};
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::elf::note::probe_addresses;
use reorder_image::elf::section::Section;
use reorder_image::elf::symbol::{Symbol, SymbolTable};

/// Rewrites everything that holds a code address as a plain word or a table distance.
pub(crate) fn move_data(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    analysis: &KeptAnalysis<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) {
    let mut word = |field: FileOffset, value: NewAddress| {
        ledger.write(output, field.0 as usize, &value.0.to_le_bytes());
    };
    for pointer in &analysis.pointers {
        let target = map.map(pointer.target);
        pointer.addend_field.into_iter().chain(pointer.place_field).for_each(|field| word(field, target));
    }
    let symbols = moving_symbols(file, analysis, &functions.symbols, is_in_code);
    let dynamic = moving_symbols(file, analysis, &functions.dynamic_symbols, may_be_in_code);
    for (field, value) in symbols.chain(dynamic) {
        word(field, map.map(value));
    }
    for entry in analysis.dynamic.iter().filter(|entry| [DT_INIT.0, DT_FINI.0].contains(&entry.tag)) {
        word(entry.value_field, map.map(Address(entry.value)));
    }
    word(ENTRY_FIELD, map.map(file.entry));
    for (field, address) in probe_addresses(file) {
        word(field, map.map(address));
    }
    move_tables(file, analysis, map, output, ledger);
}

/// Symbols whose value is an address in an arena: (field, value). `is_code` judges the section that a symbol names.
fn moving_symbols<'a>(
    file: &'a ElfFile<'_>,
    analysis: &'a KeptAnalysis<'_>,
    table: &'a SymbolTable<'_>,
    is_code: fn(&Section<'_>, &Symbol<'_>) -> bool,
) -> impl Iterator<Item = (FileOffset, Address)> + 'a {
    let names_code = move |symbol: &Symbol<'_>| {
        let section = symbol.defining_section().and_then(|index| file.section_at(index));
        section.is_some_and(|section| is_code(section, symbol))
    };
    table
        .iter()
        .filter(|symbol| !symbol.is_section() && !symbol.is_thread_local())
        .filter(names_code)
        .filter(|symbol| analysis.code.arena_of(symbol.value).is_some())
        .map(|symbol| (symbol.value_field, symbol.value))
}

/// Values in sections that are not loaded are relative to the section; they may look like addresses of code.
fn is_in_code(section: &Section<'_>, _: &Symbol<'_>) -> bool {
    section.is_executable() && section.is_loaded()
}

/// Whether a dynamic symbol may stand for code. Loaders do not read which section it names, and tools that renumber
/// sections, such as GNU strip in images with kept relocations, leave the old numbers: a section counts only if it holds
/// the value.
fn may_be_in_code(section: &Section<'_>, symbol: &Symbol<'_>) -> bool {
    let marks_end = symbol.size == 0 && symbol.value == section.end();
    let holds = section.is_loaded() && (section.contains(symbol.value) || marks_end);
    !holds || is_in_code(section, symbol)
}

/// An entry moves by what its target moves; the owner's end moves with the owner.
fn move_tables(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) {
    for table in &analysis.tables {
        let owner = analysis.partition.block(table.owner);
        let owner_delta = map.map(owner.start).0.wrapping_sub(owner.start.0);
        let Some(start) = file.offset_of(table.base, 4 * u64::from(table.entries)) else { continue };
        for (index, target) in table.targets(file).enumerate() {
            let new =
                if target == owner.end { target.0.wrapping_add(owner_delta) } else { map.map(target).0 };
            // In range: the code spans less than 2 GiB and the old distance fitted.
            let distance = new.wrapping_sub(table.base.0) as u32;
            ledger.write(output, start.0 as usize + 4 * index, &distance.to_le_bytes());
        }
    }
}
