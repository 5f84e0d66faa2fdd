//! Places in code that the image names.

use crate::elf::code::CodeSpace;
use crate::elf::dynamic::dynamic_entries;
use crate::elf::file::ElfFile;
use crate::elf::relocation::{LoaderAction, loader_relocations};
use crate::elf::symbol::SymbolTable;
use crate::functions::Function;
use object::elf::{SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY, SHT_PROGBITS};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// Addresses of code, in any order.
#[derive(Debug, Default)]
pub(super) struct Roots {
    /// Functions.
    pub(super) named: Vec<Address>,
    /// Words of data that look like addresses of code, where nothing lists pointers.
    pub(super) held: Vec<Address>,
}

/// The roots of `file`.
pub(super) fn roots(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    described: &[Function],
    dynamic_symbols: &SymbolTable<'_>,
) -> Result<Roots> {
    let mut named = vec![file.entry];
    named.extend(described.iter().map(|function| function.start));
    let symbols = dynamic_symbols.iter().filter(|symbol| symbol.is_function());
    named.extend(symbols.filter(|symbol| symbol.defining_section().is_some()).map(|symbol| symbol.value));
    for relocation in loader_relocations(file, &dynamic_entries(file)?)? {
        match relocation.action {
            LoaderAction::Relative(target) | LoaderAction::ResolveIndirect(target) => named.push(target),
            LoaderAction::Symbolic(_) => {}
        }
    }
    let mut held = Vec::new();
    let data = file.sections.iter().filter(|section| {
        section.is_loaded() && section.has_bytes() && !section.is_executable()
    });
    for section in data.filter(|_| code.is_fixed_address) {
        let (words, _) = file.section_bytes(section).as_chunks::<8>();
        let words = words.iter().map(|word| Address(u64::from_le_bytes(*word)));
        match section.kind {
            kind if [SHT_INIT_ARRAY.0, SHT_FINI_ARRAY.0, SHT_PREINIT_ARRAY.0].contains(&kind) => {
                named.extend(words);
            }
            kind if kind == SHT_PROGBITS.0 && section.address.0.is_multiple_of(8) => held.extend(words),
            _ => {}
        }
    }
    let is_code = |address: &Address| code.arena_of(*address).is_some();
    named.retain(is_code);
    held.retain(is_code);
    Ok(Roots { named, held })
}
