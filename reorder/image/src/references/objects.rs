//! Where one data object ends and the next begins.
//!
//! Takes sized object symbols and all data addresses that anything refers to; gives [`DataObjects`], which do not
//! overlap. A symbol's range is one object, and so are symbols that overlap. Between them an object begins at every
//! address that is referred to and ends where the next one or the section ends: stripped images have no other evidence.

use super::regions::Regions;
use crate::elf::file::ElfFile;
use crate::elf::symbol::SymbolTable;
use reorder_base::address::Address;
use reorder_base::error::Result;

/// A range of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataObject {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
}

/// Finds objects by address.
pub(super) struct DataObjects(Vec<DataObject>);

impl DataObjects {
    /// Objects of the symbols and of `referred`, addresses in data in any order.
    ///
    /// # Errors
    /// Malformed symbol tables.
    pub(super) fn new(file: &ElfFile<'_>, regions: &Regions<'_>, mut referred: Vec<Address>) -> Result<Self> {
        referred.sort_unstable();
        referred.dedup();
        let known = symbol_ranges(file, regions)?;
        let mut objects = Vec::with_capacity(known.len() + referred.len());
        let mut remaining = known.iter().copied().peekable();
        let mut covered = Address(0);
        for (index, &start) in referred.iter().enumerate() {
            while let Some(object) = remaining.next_if(|object| object.start <= start) {
                covered = object.end;
                objects.push(object);
            }
            let Some(section_end) = regions.end_of_section(start).filter(|_| start >= covered) else {
                continue;
            };
            let next_symbol = remaining.peek().map_or(section_end, |object| object.start);
            let next_start = referred.get(index + 1).copied().unwrap_or(section_end);
            objects.push(DataObject { start, end: section_end.min(next_symbol).min(next_start) });
        }
        objects.extend(remaining);
        Ok(Self(objects))
    }

    /// Position of the object that contains `address`.
    pub(super) fn containing(&self, address: Address) -> Option<usize> {
        let index = self.0.partition_point(|object| object.start <= address).checked_sub(1)?;
        (address < self.0[index].end).then_some(index)
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DataObject> {
        self.0.iter()
    }

    /// All of them, by address.
    pub(super) fn into_vec(self) -> Vec<DataObject> {
        self.0
    }
}

/// Ranges of sized object symbols, cut at the end of their section, with overlapping ones united.
fn symbol_ranges(file: &ElfFile<'_>, regions: &Regions) -> Result<Vec<DataObject>> {
    let [symbols, dynamic_symbols] =
        [object::elf::SHT_SYMTAB, object::elf::SHT_DYNSYM].map(|kind| SymbolTable::parse(file, kind.0));
    let (symbols, dynamic_symbols) = (symbols?, dynamic_symbols?);
    let mut ranges: Vec<DataObject> = symbols
        .iter()
        .chain(dynamic_symbols.iter())
        .filter(|symbol| symbol.kind == object::elf::STT_OBJECT.0 && symbol.size > 0)
        .filter(|symbol| symbol.defining_section().is_some() && regions.is_data(symbol.value))
        .filter_map(|symbol| {
            let section_end = regions.end_of_section(symbol.value)?;
            let end = symbol.value.0.saturating_add(symbol.size).min(section_end.0);
            Some(DataObject { start: symbol.value, end: Address(end) })
        })
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|later, kept| {
        let overlaps = later.start < kept.end;
        if overlaps {
            kept.end = kept.end.max(later.end);
        }
        overlaps
    });
    Ok(ranges)
}
