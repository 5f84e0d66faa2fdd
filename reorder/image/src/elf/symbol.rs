//! `.symtab` and `.dynsym`.

use object::LittleEndian;
use object::elf::Sym64;
use object::pod;

use crate::elf::file::ElfFile;
use crate::elf::section::SectionIndex;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};

/// Names are cut here, so that a hostile table without terminators cannot cost entries × file size.
const MAX_NAME_LENGTH: usize = 1 << 16;

/// A symbol table's entries together with their names.
#[derive(Clone, Copy, Debug)]
pub struct SymbolTable<'data> {
    entries: &'data [Sym64<LittleEndian>],
    names: &'data [u8],
    offset: FileOffset,
}

/// One symbol.
#[derive(Clone, Copy, Debug)]
pub struct Symbol<'data> {
    /// Name without its terminator; empty when it has none.
    pub name: &'data [u8],
    /// `st_value`.
    pub value: Address,
    /// `st_size`.
    pub size: u64,
    /// `STT_*`.
    pub kind: u8,
    /// `STB_*`.
    pub binding: u8,
    /// `st_shndx`, as it stands: reserved values included.
    pub section: u16,
    /// Where `st_value` lies in the file.
    pub value_field: FileOffset,
}

impl Symbol<'_> {
    /// A function or an indirect function's resolver.
    pub fn is_function(&self) -> bool {
        self.kind == object::elf::STT_FUNC.0 || self.kind == object::elf::STT_GNU_IFUNC.0
    }

    /// Names data of a known size. Labels of assembly code without a size may lie inside a table.
    pub fn is_variable(&self) -> bool {
        self.kind == object::elf::STT_OBJECT.0 && self.size > 0 && self.defining_section().is_some()
    }

    /// Stands for a section.
    pub fn is_section(&self) -> bool {
        self.kind == object::elf::STT_SECTION.0
    }

    /// An offset into thread-local storage, not an address.
    pub fn is_thread_local(&self) -> bool {
        self.kind == object::elf::STT_TLS.0
    }

    /// The section that defines it, unless it is undefined or absolute.
    pub fn defining_section(&self) -> Option<SectionIndex> {
        (self.section != 0 && self.section < object::elf::SHN_LORESERVE)
            .then_some(SectionIndex(u32::from(self.section)))
    }
}

impl<'data> SymbolTable<'data> {
    /// The table of section type `kind` (`SHT_SYMTAB` or `SHT_DYNSYM`); empty when the image has none.
    ///
    /// # Errors
    /// Reports tables that are not a whole number of entries or whose names lie outside the file.
    pub fn parse(file: &ElfFile<'data>, kind: u32) -> Result<Self> {
        let Some(section) = file.sections.iter().find(|section| section.kind == kind) else {
            return Ok(Self { entries: &[], names: &[], offset: FileOffset(0) });
        };
        Self::parse_section(file, section.index)
    }

    /// The table held by one section.
    ///
    /// # Errors
    /// As [`SymbolTable::parse`].
    pub fn parse_section(file: &ElfFile<'data>, index: SectionIndex) -> Result<Self> {
        let section = file
            .section_at(index)
            .ok_or_else(|| Error::malformed(0, "a symbol table index is out of range"))?;
        let entries = pod::slice_from_all_bytes(file.section_bytes(section)).map_err(|()| {
            Error::malformed(section.offset.0, format!("{} holds a broken entry", section.display_name()))
        })?;
        let names =
            file.section_at(SectionIndex(section.link)).map_or(&[][..], |names| file.section_bytes(names));
        Ok(Self { entries, names, offset: section.offset })
    }

    /// Number of entries, the null symbol included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry at `index`.
    pub fn get(&self, index: usize) -> Option<Symbol<'data>> {
        let entry = self.entries.get(index)?;
        let endian = LittleEndian;
        let name = self.names.get(entry.st_name.get(endian) as usize..).unwrap_or(&[]);
        let name = &name[..name.len().min(MAX_NAME_LENGTH)];
        let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
        Some(Symbol {
            name,
            value: Address(entry.st_value.get(endian)),
            size: entry.st_size.get(endian),
            kind: entry.st_info.st_type().0,
            binding: entry.st_info.st_bind().0,
            section: entry.st_shndx.get(endian).0,
            value_field: self.offset.plus((index * size_of::<Sym64<LittleEndian>>() + 8) as u64),
        })
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'data>> + '_ {
        (0..self.entries.len()).filter_map(|index| self.get(index))
    }
}
