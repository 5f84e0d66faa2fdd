//! Places in code that the image names.

use crate::elf::code::CodeSpace;
use crate::elf::dynamic::dynamic_entries;
use crate::elf::file::ElfFile;
use crate::elf::relocation::{LoaderAction, loader_relocations};
use crate::elf::symbol::SymbolTable;
use crate::functions::Function;
use object::elf::{SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// Starts of functions that `file` names, in any order.
pub(super) fn roots(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    described: &[Function],
    dynamic_symbols: &SymbolTable<'_>,
) -> Result<Vec<Address>> {
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
    // At a fixed address these hold the addresses themselves.
    let arrays = [SHT_INIT_ARRAY.0, SHT_FINI_ARRAY.0, SHT_PREINIT_ARRAY.0];
    let sections = file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes());
    for section in sections.filter(|section| code.is_fixed_address && arrays.contains(&section.kind)) {
        let (words, _) = file.section_bytes(section).as_chunks::<8>();
        named.extend(words.iter().map(|word| Address(u64::from_le_bytes(*word))));
    }
    named.retain(|address| code.arena_of(*address).is_some());
    Ok(named)
}
