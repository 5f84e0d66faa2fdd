//! Names that the loader looks up for the relocations of an image.

use std::collections::{BTreeSet, HashSet};

use object::elf::{
    DF_1_NOW, DF_BIND_NOW, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1, DT_JMPREL, R_AARCH64_JUMP_SLOT,
    R_X86_64_JUMP_SLOT, SHT_DYNSYM, SHT_RELA,
};

use super::references::SYMBOL_BYTES;
use super::{string_at, strings_of};
use reorder_base::error::{Error, Result};
use reorder_base::little_endian::{u32_at, u64_at};
use reorder_base::processor::Processor;
use reorder_image::elf::dynamic::dynamic_entries;
use reorder_image::elf::file::ElfFile;

const RELOCATION_BYTES: usize = 24;

/// The position of a name that is looked up, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// When the image is relocated.
    Relocating(usize),
    /// When the function is called for the first time.
    Calling(usize),
}

/// All names that the loader looks up for relocations of `image`, each once.
///
/// # Errors
/// Broken tables.
pub fn looked_up_names(image: &[u8]) -> Result<HashSet<Vec<u8>>> {
    let file = ElfFile::parse(image)?;
    let Some((_, strings)) = strings_of(&file) else { return Ok(HashSet::new()) };
    let table = file.section_bytes(strings);
    let positions = lookups(&file)?.into_iter().map(|lookup| match lookup {
        Lookup::Relocating(position) | Lookup::Calling(position) => position,
    });
    let positions: BTreeSet<usize> = positions.collect();
    positions.into_iter().map(|position| Ok(string_at(table, position)?.to_vec())).collect()
}

/// The names of the symbols of all relocations, in their order.
pub(super) fn lookups(file: &ElfFile<'_>) -> Result<Vec<Lookup>> {
    let dynamic = dynamic_entries(file)?;
    let value = |tag: i64| dynamic.iter().find(|entry| entry.tag == tag).map(|entry| entry.value);
    let has_flag = |tag: i64, flag: u64| value(tag).is_some_and(|flags| flags & flag != 0);
    let is_bound_now = value(DT_BIND_NOW.0).is_some()
        || has_flag(DT_FLAGS.0, DF_BIND_NOW.0)
        || has_flag(DT_FLAGS_1.0, DF_1_NOW.0);
    let jump_slot = match file.processor {
        Processor::Aarch64 => R_AARCH64_JUMP_SLOT.0,
        Processor::X86_64 | Processor::Other => R_X86_64_JUMP_SLOT.0,
    };
    let Some(symbols) = file.sections.iter().find(|section| section.kind == SHT_DYNSYM.0) else {
        return Ok(Vec::new());
    };
    let symbol_bytes = file.section_bytes(symbols);
    let has_lazy_table = value(DT_JMPREL.0).is_some();
    let mut lookups = Vec::new();
    let tables = file.sections.iter().filter(|section| section.kind == SHT_RELA.0 && section.is_loaded());
    for (number, entry) in
        tables.flat_map(|section| file.section_bytes(section).chunks_exact(RELOCATION_BYTES).enumerate())
    {
        let information = u64_at(entry, 8).unwrap_or_default();
        let (symbol, kind) = ((information >> 32) as usize, information as u32);
        if symbol == 0 {
            continue;
        }
        let name = symbol.checked_mul(SYMBOL_BYTES).and_then(|at| u32_at(symbol_bytes, at));
        let broken = || {
            let what = format!("relocation {number} has a symbol that is not there");
            Error::malformed(symbols.offset.0, what)
        };
        let name = name.ok_or_else(broken)? as usize;
        let is_lazy = kind == jump_slot && has_lazy_table && !is_bound_now;
        lookups.push(if is_lazy { Lookup::Calling(name) } else { Lookup::Relocating(name) });
    }
    Ok(lookups)
}
