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

/// Addresses of code that the image names, in any order.
#[derive(Debug, Default)]
pub(super) struct Roots {
    /// Where the program, a constructor, a destructor, an exported or a described function begins.
    pub(super) starts: Vec<Address>,
    /// What other pointers of the loader hold, with their places: functions, unless code holds data. By place.
    pub(super) pointed: Vec<(Address, Address)>,
}

/// The roots of `file`, whose described functions are `functions`.
pub(super) fn roots(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    functions: &[Function],
    dynamic_symbols: &SymbolTable<'_>,
) -> Result<Roots> {
    let mut starts = vec![file.entry];
    starts.extend(functions.iter().map(|function| function.start));
    let symbols = dynamic_symbols.iter().filter(|symbol| symbol.is_function() && symbol.size > 0);
    starts.extend(symbols.filter(|symbol| symbol.defining_section().is_some()).map(|symbol| symbol.value));
    let kinds = [SHT_INIT_ARRAY.0, SHT_FINI_ARRAY.0, SHT_PREINIT_ARRAY.0];
    let sections = file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes());
    let arrays: Vec<_> = sections.filter(|section| kinds.contains(&section.kind)).collect();
    let mut pointed = Vec::new();
    for relocation in loader_relocations(file, &dynamic_entries(file)?)? {
        let is_listed = arrays.iter().any(|array| (array.address..array.end()).contains(&relocation.place));
        match relocation.action {
            LoaderAction::Relative(target) if is_listed => starts.push(target),
            LoaderAction::Relative(target) | LoaderAction::ResolveIndirect(target) => {
                pointed.push((relocation.place, target));
            }
            LoaderAction::Symbolic(_) => {}
        }
    }
    // At a fixed address these hold the addresses themselves.
    for array in arrays.iter().filter(|_| code.is_fixed_address) {
        let (words, _) = file.section_bytes(array).as_chunks::<8>();
        starts.extend(words.iter().map(|word| Address(u64::from_le_bytes(*word))));
    }
    starts.retain(|address| code.arena_of(*address).is_some());
    pointed.retain(|(_, target)| code.arena_of(*target).is_some());
    pointed.sort_unstable();
    Ok(Roots { starts, pointed })
}
