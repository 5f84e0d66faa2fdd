//! Dynamic strings that changed their order.
//!
//! A new image may hold the strings of `.dynstr` in another order, if every reference to one leads to the same string. This
//! is proven for each reference, and then the image is given back with the old strings in their old order: all other checks
//! compare that. Nothing here knows how strings were ordered.
//!
//! Sources: generic ABI, "String Table", "Dynamic Section"; Linux Standard Base, "Symbol Versioning".

use std::collections::BTreeSet;
use std::ops::Range;

use goblin::elf::dynamic::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB};
use goblin::elf::program_header::PT_DYNAMIC;
use goblin::elf::section_header::{SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_STRTAB};

use super::pointers::loaded_pointers;
use super::symbol_walk::SYMBOL_SIZE;
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::elf::view::{ElfView, SectionView};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

/// Not in `goblin`.
const DT_AUXILIARY: u64 = 0x7fff_fffd;
const DT_FILTER: u64 = 0x7fff_ffff;
/// `DT_CONFIG`, `DT_DEPAUDIT` and `DT_AUDIT` are strings, too; images with them are not expected to change.
const OTHER_STRINGS: [u64; 3] = [0x6fff_fefa, 0x6fff_fefb, 0x6fff_fefc];
const DYNAMIC_SIZE: usize = 16;

/// A field that holds the position of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    /// Where in the file the field is.
    field: usize,
    /// Bytes of the field: 4 or 8.
    width: usize,
}

/// Whether the dynamic strings of `new` are others than those of `old`, or in another order.
pub(crate) fn are_reordered(old: &ElfView<'_>, new: &ElfView<'_>) -> bool {
    match (table_of(old), table_of(new)) {
        (Some((_, before)), Some((_, after))) => before.bytes != after.bytes,
        _ => false,
    }
}

/// The new image with the dynamic strings and all references to them as they are in the old one, and the addresses of these
/// strings.
///
/// # Errors
/// A reference that leads to another string; strings that anything else may refer to.
pub(crate) fn put_back(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<(Vec<u8>, Range<Address>)> {
    let differs = |what: String| Error::verification(what);
    let (index, before) =
        table_of(old).ok_or_else(|| differs("there is no table of dynamic strings".to_owned()))?;
    let after = new.sections.get(index).filter(|after| is_same_place(before, after));
    let after = after.ok_or_else(|| differs("the table of dynamic strings is elsewhere".to_owned()))?;
    refuse_other_uses(old, index, before)?;
    let references = references(old, index)?;
    let mut whole = new.bytes.to_vec();
    for Reference { field, width } in references {
        let position = |image: &ElfView<'_>| match width {
            4 => u32_at(image.bytes, field).map(u64::from),
            _ => u64_at(image.bytes, field),
        };
        let string = |table: &SectionView<'_>, position: Option<u64>| {
            let rest = table.bytes.get(usize::try_from(position?).ok()?..)?;
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest.get(..end).map(<[u8]>::to_vec)
        };
        let (expected, found) = (string(before, position(old)), string(after, position(new)));
        if expected.is_none() || expected != found {
            let name = |string: Option<Vec<u8>>| match string {
                Some(string) => String::from_utf8_lossy(&string).into_owned(),
                None => "no string".to_owned(),
            };
            return Err(Error::verification(format!(
                "the reference at file position {field:#x} leads to the dynamic string {}, not to {}",
                name(found),
                name(expected)
            )));
        }
        let (Some(place), Some(bytes)) =
            (whole.get_mut(field..field + width), old.bytes.get(field..field + width))
        else {
            return Err(Error::malformed(field as u64, "a reference to a string lies outside of the file"));
        };
        place.copy_from_slice(bytes);
    }
    let start = usize::try_from(before.offset).unwrap_or(usize::MAX);
    match start.checked_add(before.bytes.len()).and_then(|end| whole.get_mut(start..end)) {
        Some(place) => place.copy_from_slice(before.bytes),
        None => return Err(Error::malformed(before.offset, "dynamic strings outside of the file")),
    }
    Ok((whole, Address(before.address)..Address(before.end())))
}

/// The string table of the dynamic symbols: one that the loader uses as well.
fn table_of<'view, 'data>(image: &'view ElfView<'data>) -> Option<(usize, &'view SectionView<'data>)> {
    let symbols = image.sections.iter().find(|section| section.kind == SHT_DYNSYM)?;
    let index = symbols.link as usize;
    let table = image.sections.get(index)?;
    (table.kind == SHT_STRTAB && table.is_loaded()).then_some((index, table))
}

fn is_same_place(before: &SectionView<'_>, after: &SectionView<'_>) -> bool {
    (before.offset, before.address, before.bytes.len(), before.kind)
        == (after.offset, after.address, after.bytes.len(), after.kind)
}

/// Strings may only be referred to in the ways that [`references`] knows.
fn refuse_other_uses(image: &ElfView<'_>, index: usize, table: &SectionView<'_>) -> Result<()> {
    const KNOWN: [u32; 4] = [SHT_DYNSYM, SHT_DYNAMIC, SHT_GNU_VERDEF, SHT_GNU_VERNEED];
    let refuse = |what: &str| Err(Error::verification(format!("dynamic strings changed, but {what}")));
    if usize::from(image.header.e_shstrndx) == index {
        return refuse("they are the names of sections, too");
    }
    let links = |section: &&SectionView<'_>| section.link as usize == index && section.kind != 0;
    if image.sections.iter().filter(links).any(|section| !KNOWN.contains(&section.kind)) {
        return refuse("a section of another kind refers to them");
    }
    let value = |wanted: u64| dynamic(image).find(|&(tag, _, _)| tag == wanted).map(|(_, value, _)| value);
    if value(DT_STRTAB) != Some(table.address) || value(DT_STRSZ) != Some(table.bytes.len() as u64) {
        return refuse("the loader uses another table");
    }
    if dynamic(image).any(|(tag, ..)| OTHER_STRINGS.contains(&tag)) {
        return refuse("the image has an audit library or a configuration file");
    }
    let inside = |address: &Address| (table.address..table.end()).contains(&address.0);
    if loaded_pointers(image).iter().any(inside) {
        return refuse("a pointer leads to one");
    }
    let overlaps = |other: &SectionView<'_>| {
        let (start, end) = (other.offset, other.offset + other.bytes.len() as u64);
        !other.bytes.is_empty() && start < table.offset + table.bytes.len() as u64 && end > table.offset
    };
    let others = image.sections.iter().enumerate().filter(|(at, _)| *at != index);
    if others.map(|(_, other)| other).any(overlaps) {
        return refuse("another section shares their bytes");
    }
    Ok(())
}

/// The entries of `.dynamic` as (tag, value, file position of the value).
fn dynamic<'view>(image: &'view ElfView<'_>) -> impl Iterator<Item = (u64, u64, usize)> + 'view {
    let (offset, bytes) = image.segment(PT_DYNAMIC).unwrap_or_default();
    let entries = bytes.chunks_exact(DYNAMIC_SIZE).enumerate();
    let read = entries.map_while(move |(index, entry)| {
        let field = usize::try_from(offset).ok()?.checked_add(index * DYNAMIC_SIZE + 8)?;
        Some((u64_at(entry, 0)?, u64_at(entry, 8)?, field))
    });
    read.take_while(|(tag, ..)| *tag != 0)
}

/// All references to strings of section `index`.
fn references(image: &ElfView<'_>, index: usize) -> Result<BTreeSet<Reference>> {
    let mut references = BTreeSet::new();
    const STRINGS: [u64; 6] = [DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH, DT_AUXILIARY, DT_FILTER];
    let of_dynamic = dynamic(image).filter(|(tag, ..)| STRINGS.contains(tag));
    references.extend(of_dynamic.map(|(_, _, field)| Reference { field, width: 8 }));
    for section in image.sections.iter().filter(|section| section.link as usize == index) {
        let start = usize::try_from(section.offset).unwrap_or(usize::MAX);
        let mut push = |position: usize| {
            references.insert(Reference { field: start.saturating_add(position), width: 4 });
        };
        match section.kind {
            SHT_DYNSYM => (0..section.bytes.len() / SYMBOL_SIZE).for_each(|at| push(at * SYMBOL_SIZE)),
            SHT_GNU_VERDEF => version_names(section, DEFINITIONS, &mut push)?,
            SHT_GNU_VERNEED => version_names(section, NEEDS, &mut push)?,
            _ => {}
        }
    }
    Ok(references)
}

/// Where the fields of a chained table of versions are.
#[derive(Clone, Copy)]
struct VersionForm {
    /// Of an entry: the number of its parts, where the first one is, where the next entry is, and its own name.
    count: usize,
    first: usize,
    next: usize,
    name: Option<usize>,
    /// Of a part: its name, and where the next part is.
    part_name: usize,
    part_next: usize,
}

const DEFINITIONS: VersionForm =
    VersionForm { count: 6, first: 12, next: 16, name: None, part_name: 0, part_next: 4 };
const NEEDS: VersionForm =
    VersionForm { count: 2, first: 8, next: 12, name: Some(4), part_name: 8, part_next: 12 };

/// Gives `push` the positions of all names in a table of versions.
fn version_names(section: &SectionView<'_>, form: VersionForm, push: &mut impl FnMut(usize)) -> Result<()> {
    let bytes = section.bytes;
    let broken = || Error::malformed(section.offset, "a broken table of symbol versions");
    let word = |at: usize| u32_at(bytes, at).map(|word| word as usize).ok_or_else(broken);
    // Each name takes four bytes, so more of them than that are a loop.
    let mut budget = bytes.len() / 4;
    let mut entry = 0;
    loop {
        if let Some(name) = form.name {
            word(entry + name)?;
            push(entry + name);
        }
        let count = u16_at(bytes, entry + form.count).ok_or_else(broken)?;
        let mut part = entry.checked_add(word(entry + form.first)?).ok_or_else(broken)?;
        for _ in 0..count {
            budget = budget.checked_sub(1).ok_or_else(broken)?;
            word(part.checked_add(form.part_next).ok_or_else(broken)?)?;
            push(part + form.part_name);
            part = part.checked_add(word(part + form.part_next)?).ok_or_else(broken)?;
        }
        budget = budget.checked_sub(1).ok_or_else(broken)?;
        match word(entry + form.next)? {
            0 => return Ok(()),
            next => entry = entry.checked_add(next).ok_or_else(broken)?,
        }
    }
}
