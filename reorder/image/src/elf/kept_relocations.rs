//! The tables of static relocations that a linker kept (`--emit-relocs`), in the plain and in the compact form.
//!
//! Takes the sections; gives one [`KeptTable`] for each table of a loaded section. Guarantees that every entry's
//! symbol exists, that its place lies in the section that the table is for, and that its type is known. What the
//! entries say is not judged here.
//! Source: the generic ABI, `SHT_RELA`; LLVM's description of `SHT_CREL`, whose number is provisional.

use object::LittleEndian;
use object::elf::Rela64;
use object::pod;
use object::read::elf::CrelIterator;

use crate::elf::file::ElfFile;
use crate::elf::relocation_types::{Meaning, meaning};
use crate::elf::section::{Section, SectionIndex};
use crate::elf::symbol::{Symbol, SymbolTable};
use reorder_base::address::Address;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptEntry {
    /// Where the value is stored.
    pub place: Address,
    /// What is stored.
    pub meaning: Meaning,
    /// Position in the table of symbols.
    pub symbol: u32,
    /// A.
    pub addend: u64,
}

/// All entries for one section.
#[derive(Clone, Debug)]
pub struct KeptTable<'data> {
    /// The loaded section that the entries are for.
    pub target: Section<'data>,
    /// By place.
    pub entries: Vec<KeptEntry>,
    symbols: SymbolTable<'data>,
    /// Of all sections: the address, since a section's symbol may have a value that the linker forgot to set, and
    /// whether it holds code.
    sections: Vec<(Address, bool)>,
}

/// What the linker kept.
#[derive(Clone, Debug, Default)]
pub struct KeptTables<'data> {
    /// The tables that can be read, in the order of the sections.
    pub tables: Vec<KeptTable<'data>>,
    /// A table cannot be read, so none of them is used.
    pub is_broken: bool,
}

impl<'data> KeptTables<'data> {
    /// Reads all tables but those of unwind entries, whose format is parsed as such: linkers leave wrong entries for
    /// those that they merged.
    #[must_use]
    pub fn read(file: &ElfFile<'data>) -> Self {
        let mut found = Self::default();
        for (section, target) in kept_sections(file) {
            match KeptTable::read(file, section, target) {
                Some(table) => found.tables.push(table),
                None => found.is_broken = true,
            }
        }
        found
    }

    /// Whether the linker kept no relocations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && !self.is_broken
    }
}

/// Pairs of a table and the loaded section that it is for.
fn kept_sections<'file, 'data>(
    file: &'file ElfFile<'data>,
) -> impl Iterator<Item = (&'file Section<'data>, &'file Section<'data>)> {
    file.sections
        .iter()
        .filter(|section| is_table(section) && !section.is_loaded() && section.size > 0)
        .filter_map(|section| Some((section, file.section_at(SectionIndex(section.info))?)))
        .filter(|(_, target)| target.is_loaded() && target.has_bytes() && target.name != b".eh_frame")
}

/// Holds relocations with addends, in either form.
#[must_use]
pub fn is_table(section: &Section<'_>) -> bool {
    section.kind == object::elf::SHT_RELA.0 || section.kind == object::elf::SHT_CREL.0
}

impl<'data> KeptTable<'data> {
    /// None when an index, a place or a type is unknown, or the compact form does not decode.
    fn read(file: &ElfFile<'data>, section: &Section<'data>, target: &Section<'data>) -> Option<Self> {
        let symbols = SymbolTable::parse_section(file, SectionIndex(section.link)).ok()?;
        let bytes = file.section_bytes(section);
        let processor = file.processor;
        let accept = |place: u64, kind: u32, symbol: u32, addend: i64| {
            let meaning = meaning(processor, kind);
            let entry = KeptEntry { place: Address(place), meaning, symbol, addend: addend as u64 };
            let is_known = (symbol as usize) < symbols.len() && target.contains(entry.place);
            (meaning == Meaning::Nothing || is_known && meaning != Meaning::Unknown).then_some(entry)
        };
        let mut entries = if section.kind == object::elf::SHT_CREL.0 {
            let entries = CrelIterator::new(bytes).ok()?;
            // An entry takes at least a byte, and places hardly repeat: a table that claims more is invalid.
            let limit = target.size.saturating_mul(2).saturating_add(16).min(bytes.len() as u64);
            if entries.len() as u64 > limit {
                return None;
            }
            entries
                .map(|entry| {
                    let entry = entry.ok()?;
                    accept(entry.r_offset, entry.r_type.0, entry.r_sym, entry.r_addend)
                })
                .collect::<Option<Vec<KeptEntry>>>()?
        } else {
            pod::slice_from_all_bytes::<Rela64<LittleEndian>>(bytes)
                .ok()?
                .iter()
                .map(|entry| {
                    let information = entry.r_info.get(LittleEndian);
                    accept(
                        entry.r_offset.get(LittleEndian),
                        information as u32,
                        (information >> 32) as u32,
                        entry.r_addend.get(LittleEndian),
                    )
                })
                .collect::<Option<Vec<KeptEntry>>>()?
        };
        entries.retain(|entry| entry.meaning != Meaning::Nothing);
        entries.sort_by_key(|entry| entry.place);
        let is_code = |section: &Section<'_>| section.is_loaded() && section.is_executable();
        let sections = file.sections.iter().map(|section| (section.address, is_code(section))).collect();
        Some(Self { target: *target, entries, symbols, sections })
    }

    /// The symbol of `entry`.
    #[must_use]
    pub fn symbol(&self, entry: &KeptEntry) -> Option<Symbol<'data>> {
        self.symbols.get(entry.symbol as usize)
    }

    /// S + A by the symbol's value and, for a section's symbol, by the section's header.
    #[must_use]
    pub fn values(&self, entry: &KeptEntry, symbol: &Symbol<'_>) -> [Address; 2] {
        let header = symbol.defining_section().filter(|_| symbol.is_section());
        let header = header.and_then(|index| Some(self.sections.get(index.0 as usize)?.0));
        [symbol.value.plus(entry.addend), header.unwrap_or(symbol.value).plus(entry.addend)]
    }

    /// Whether the symbol is defined in a section that holds code.
    #[must_use]
    pub fn names_code(&self, symbol: &Symbol<'_>) -> bool {
        let section = symbol.defining_section().and_then(|index| self.sections.get(index.0 as usize));
        section.is_some_and(|&(_, is_code)| is_code)
    }
}
