//! All fields of an image that hold the position of a dynamic string.

use object::elf::{
    DT_AUDIT, DT_AUXILIARY, DT_CONFIG, DT_DEPAUDIT, DT_FILTER, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME,
    DT_STRSZ, DT_STRTAB, SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED,
};

use reorder_base::error::{Error, Result};
use reorder_base::little_endian::{u16_at, u32_at};
use reorder_image::elf::dynamic::dynamic_entries;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::{Section, SectionIndex};

/// Bytes of a symbol, and where it names its section.
pub(super) const SYMBOL_BYTES: usize = 24;
const SYMBOL_SECTION: usize = 6;

/// A field with the position of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Where in the file the field is.
    pub(super) field: usize,
    /// Its bytes.
    pub(super) width: usize,
    /// The position of the string in the table.
    pub(super) position: usize,
    /// Whether it is the name of a symbol.
    pub(super) is_symbol: bool,
    /// Whether this image defines that symbol.
    pub(super) is_defined: bool,
}

/// All references to strings of `strings`, section `index`; `None` if there may be others.
///
/// # Errors
/// Broken tables, and positions outside of the strings.
pub(super) fn references(
    file: &ElfFile<'_>,
    index: SectionIndex,
    strings: &Section<'_>,
) -> Result<Option<Vec<Reference>>> {
    let dynamic = dynamic_entries(file)?;
    let value = |tag: i64| dynamic.iter().find(|entry| entry.tag == tag).map(|entry| entry.value);
    let is_loaders = value(DT_STRTAB.0) == Some(strings.address.0) && value(DT_STRSZ.0) == Some(strings.size);
    let is_for_sections = names_of_sections(file) == Some(index.0);
    let is_audited = [DT_CONFIG, DT_DEPAUDIT, DT_AUDIT].iter().any(|tag| value(tag.0).is_some());
    if !is_loaders || is_for_sections || is_audited {
        return Ok(None);
    }
    let mut found = Vec::new();
    let names = [DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH, DT_AUXILIARY, DT_FILTER];
    for entry in dynamic.iter().filter(|entry| names.iter().any(|tag| tag.0 == entry.tag)) {
        found.push(Reference {
            field: entry.value_field.0 as usize,
            width: 8,
            position: usize::try_from(entry.value).unwrap_or(usize::MAX),
            is_symbol: false,
            is_defined: false,
        });
    }
    for section in file.sections.iter().filter(|section| section.link == index.0) {
        let bytes = file.section_bytes(section);
        match section.kind {
            kind if kind == SHT_DYNSYM.0 => found.extend(of_symbols(section, bytes)),
            kind if kind == SHT_GNU_VERDEF.0 => of_definitions(section, bytes, &mut found)?,
            kind if kind == SHT_GNU_VERNEED.0 => of_needs(section, bytes, &mut found)?,
            kind if kind == SHT_DYNAMIC.0 || kind == 0 => {}
            _ => return Ok(None),
        }
    }
    match found.iter().find(|reference| reference.position as u64 >= strings.size) {
        Some(wrong) => Err(Error::malformed(wrong.field as u64, "a position outside of the dynamic strings")),
        None => Ok(Some(found)),
    }
}

/// The section with the names of sections: `e_shstrndx`, or `sh_link` of the first section where that has no room for it.
fn names_of_sections(file: &ElfFile<'_>) -> Option<u32> {
    const FIELD: usize = 62;
    const ELSEWHERE: u16 = 0xffff;
    match u16_at(file.bytes, FIELD)? {
        ELSEWHERE => file.sections.first().map(|first| first.link),
        index => Some(u32::from(index)),
    }
}

fn of_symbols(section: &Section<'_>, bytes: &[u8]) -> Vec<Reference> {
    let symbols = bytes.chunks_exact(SYMBOL_BYTES).enumerate();
    let references = symbols.map(|(number, symbol)| Reference {
        field: section.offset.0 as usize + number * SYMBOL_BYTES,
        width: 4,
        position: u32_at(symbol, 0).unwrap_or_default() as usize,
        is_symbol: true,
        is_defined: u16_at(symbol, SYMBOL_SECTION).is_some_and(|section| section != 0),
    });
    references.collect()
}

/// `Elf64_Verdef`: number of names at 6, distance to the first at 12, to the next definition at 16; `Elf64_Verdaux`: name at 0,
/// distance to the next at 4. Source: Linux Standard Base, "Symbol Versioning".
fn of_definitions(section: &Section<'_>, bytes: &[u8], found: &mut Vec<Reference>) -> Result<()> {
    let mut chain = Chain::of(section, bytes);
    while let Some(entry) = chain.entry {
        let count = chain.half(entry + 6)?;
        let mut name = chain.after(entry, 12)?;
        for _ in 0..count {
            found.push(chain.reference(name)?);
            name = chain.after(name, 4)?;
        }
        chain.follow(entry, 16)?;
    }
    Ok(())
}

/// `Elf64_Verneed`: number of versions at 2, file at 4, distance to the first version at 8, to the next file at 12;
/// `Elf64_Vernaux`: name at 8, distance to the next at 12.
fn of_needs(section: &Section<'_>, bytes: &[u8], found: &mut Vec<Reference>) -> Result<()> {
    let mut chain = Chain::of(section, bytes);
    while let Some(entry) = chain.entry {
        let count = chain.half(entry + 2)?;
        found.push(chain.reference(entry + 4)?);
        let mut version = chain.after(entry, 8)?;
        for _ in 0..count {
            found.push(chain.reference(version + 8)?);
            version = chain.after(version, 12)?;
        }
        chain.follow(entry, 12)?;
    }
    Ok(())
}

/// Entries, each of which states the distance to the next.
struct Chain<'bytes> {
    section: usize,
    bytes: &'bytes [u8],
    /// The current entry.
    entry: Option<usize>,
    /// Names that may still follow: each takes at least eight bytes, so more of them are a loop.
    budget: usize,
}

impl<'bytes> Chain<'bytes> {
    fn of(section: &Section<'_>, bytes: &'bytes [u8]) -> Self {
        let entry = (!bytes.is_empty()).then_some(0);
        Self { section: section.offset.0 as usize, bytes, entry, budget: bytes.len() / 8 + 1 }
    }

    fn broken(&self) -> Error {
        Error::malformed(self.section as u64, "a broken table of symbol versions")
    }

    fn half(&self, at: usize) -> Result<u16> {
        u16_at(self.bytes, at).ok_or_else(|| self.broken())
    }

    fn word(&self, at: usize) -> Result<usize> {
        u32_at(self.bytes, at).map(|word| word as usize).ok_or_else(|| self.broken())
    }

    /// The place that the word at `entry + field` leads to from `entry`.
    fn after(&self, entry: usize, field: usize) -> Result<usize> {
        let distance = self.word(entry.checked_add(field).ok_or_else(|| self.broken())?)?;
        entry.checked_add(distance).filter(|place| *place < self.bytes.len()).ok_or_else(|| self.broken())
    }

    fn reference(&mut self, at: usize) -> Result<Reference> {
        self.budget = self.budget.checked_sub(1).ok_or_else(|| self.broken())?;
        let position = self.word(at)?;
        Ok(Reference { field: self.section + at, width: 4, position, is_symbol: false, is_defined: false })
    }

    /// Goes on to the next entry, if there is one.
    fn follow(&mut self, entry: usize, field: usize) -> Result<()> {
        self.budget = self.budget.checked_sub(1).ok_or_else(|| self.broken())?;
        self.entry = match self.word(entry + field)? {
            0 => None,
            _ => Some(self.after(entry, field)?),
        };
        Ok(())
    }
}
