//! References as the linker states them, in the relocations that it keeps on request.

use std::collections::BTreeSet;

use reorder_base::address::Address;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::SectionIndex;
use reorder_image::elf::symbol::SymbolTable;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// 64, 32, 32S.
const ABSOLUTE_TYPES: [u64; 3] = [1, 10, 11];
/// PC32, PLT32, GOTPCREL, GOTPCRELX, REX_GOTPCRELX.
const RELATIVE_TYPES: [u64; 5] = [2, 4, 9, 41, 42];

/// One relocation whose target lies in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kept {
    pub(crate) place: Address,
    pub(crate) function: FunctionIndex,
}

/// All kept relocations from code or data to a function.
pub(crate) fn kept_relocations(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> BTreeSet<Kept> {
    let mut found = BTreeSet::new();
    let tables = file.sections.iter().filter(|section| {
        section.kind == object::elf::SHT_RELA.0
            && !section.is_loaded()
            && file.section_at(SectionIndex(section.info)).is_some_and(|patched| {
                patched.is_loaded() && !matches!(patched.name, b".eh_frame" | b".gcc_except_table")
            })
    });
    for section in tables {
        let symbols = SymbolTable::parse_section(file, SectionIndex(section.link)).unwrap();
        let in_code = file.section_at(SectionIndex(section.info)).unwrap().is_executable();
        for entry in file.section_bytes(section).chunks_exact(24) {
            let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
            let (place, kind, addend) = (Address(word(0)), word(8) & 0xffff_ffff, word(16));
            let symbol = symbols.get((word(8) >> 32) as usize).unwrap();
            if symbol.defining_section().is_none() || symbol.is_thread_local() {
                continue;
            }
            let target = match (symbol.is_section(), in_code) {
                _ if ABSOLUTE_TYPES.contains(&kind) => symbol.value.plus(addend),
                _ if !RELATIVE_TYPES.contains(&kind) => continue,
                (false, _) => symbol.value,
                // Four bytes lie between the field and the end of a branch or an address calculation.
                (true, true) => symbol.value.plus(addend).plus(4),
                (true, false) => continue,
            };
            if let Some(function) = functions.containing(target) {
                found.insert(Kept { place, function });
            }
        }
    }
    found
}
