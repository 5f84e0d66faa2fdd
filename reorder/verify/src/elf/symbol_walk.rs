//! The symbols of one image, in table order.
//!
//! Read field by field instead of through `goblin`, whose symbols do not keep the byte positions that a checker reports.

use goblin::elf::section_header::{SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX};
use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC};

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::elf::view::{ElfView, SectionView};

/// Size of one symbol in a 64-bit image.
pub(crate) const SYMBOL_SIZE: usize = 24;
/// Position of `st_value` in a symbol.
pub(crate) const VALUE_FIELD: usize = 8;

/// One symbol. The value is a plain number, since it is read alike from the old and the new image and is not always an
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymbolView {
    /// `st_name`.
    pub(crate) name: u32,
    /// The type half of `st_info`.
    pub(crate) kind: u8,
    /// `st_shndx`.
    pub(crate) section: u32,
    /// `st_value`.
    pub(crate) value: u64,
    /// `st_size`.
    pub(crate) size: u64,
}

impl SymbolView {
    /// Whether the symbol stands for a place in some section.
    pub(crate) fn is_defined(&self) -> bool {
        self.section != SHN_UNDEF && (self.section < SHN_LORESERVE || self.section == SHN_XINDEX)
    }

    /// Whether the symbol describes a function or resolver of known extent.
    pub(crate) fn is_sized_function(&self) -> bool {
        self.is_defined() && self.size > 0 && matches!(self.kind, STT_FUNC | STT_GNU_IFUNC)
    }
}

/// The symbol at this position of a symbol section.
pub(crate) fn symbol_at(section: &SectionView<'_>, index: usize) -> Option<SymbolView> {
    let record = section.bytes.get(index.checked_mul(SYMBOL_SIZE)?..)?.get(..SYMBOL_SIZE)?;
    Some(SymbolView {
        name: u32_at(record, 0)?,
        kind: record[4] & 0x0f,
        section: u32::from(u16_at(record, 6)?),
        value: u64_at(record, VALUE_FIELD)?,
        size: u64_at(record, 16)?,
    })
}

/// The symbols of all sections of type `kind`, in table order.
pub(crate) fn symbols<'view>(
    image: &'view ElfView<'_>,
    kind: u32,
) -> impl Iterator<Item = SymbolView> + 'view {
    image
        .sections
        .iter()
        .filter(move |section| section.kind == kind)
        .flat_map(|section| (0..).map_while(move |index| symbol_at(section, index)))
}
