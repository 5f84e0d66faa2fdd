//! Dynamic strings that changed their order.
//!
//! A new image may hold the strings of `.dynstr` in another order, if every reference to one leads to the same string. This
//! is proven for each reference, and then the image is given back with the old strings in their old order: all other checks
//! compare that. Nothing here knows how strings were ordered.
//!
//! Sources: generic ABI, "String Table", "Dynamic Section"; Linux Standard Base, "Symbol Versioning".

use std::collections::BTreeSet;
use std::ops::Range;

use goblin::elf::dynamic::{
    DT_GNU_HASH, DT_HASH, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, DT_SYMTAB,
    DT_VERDEF, DT_VERNEED, DT_VERSYM,
};
use goblin::elf::program_header::{PT_DYNAMIC, PT_LOAD};
use goblin::elf::section_header::{
    SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_HASH, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_GNU_VERSYM, SHT_HASH,
    SHT_RELA, SHT_STRTAB,
};

use super::pointers::{RELA_SIZE, loaded_pointers};
use super::symbol_walk::SYMBOL_SIZE;
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::elf::view::{ElfView, PROGRAM_HEADER_SIZE, SECTION_HEADER_SIZE, SectionView};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

/// Not in `goblin`.
const DT_AUXILIARY: u64 = 0x7fff_fffd;
const DT_FILTER: u64 = 0x7fff_ffff;
/// Each string may be compared about this many times; more references than that to long strings would take hours.
const MAX_COMPARED_SHARE: usize = 16;
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
    // Bytes of strings that no known reference names are there again, too.
    if pieces(before.bytes) != pieces(after.bytes) {
        return Err(differs("the dynamic strings are others than before".to_owned()));
    }
    let mut whole = new.bytes.to_vec();
    let mut budget = before.bytes.len().saturating_mul(MAX_COMPARED_SHARE);
    for Reference { field, width } in references {
        let position = |image: &ElfView<'_>| match width {
            4 => u32_at(image.bytes, field).map(u64::from),
            _ => u64_at(image.bytes, field),
        };
        let (expected, found) = (string_at(before, position(old)), string_at(after, position(new)));
        let length = expected.map_or(0, <[u8]>::len);
        budget = budget
            .checked_sub(length)
            .ok_or_else(|| Error::malformed(before.offset, "too many references to long dynamic strings"))?;
        if expected.is_none() || expected != found {
            let name = |string: Option<&[u8]>| match string {
                Some(string) => String::from_utf8_lossy(string).into_owned(),
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

/// The string at `position`, without its end.
fn string_at<'table>(table: &SectionView<'table>, position: Option<u64>) -> Option<&'table [u8]> {
    let rest = table.bytes.get(usize::try_from(position?).ok()?..)?;
    rest.get(..rest.iter().position(|&byte| byte == 0)?)
}

/// The strings of a table, sorted.
fn pieces(table: &[u8]) -> Vec<&[u8]> {
    let mut pieces: Vec<&[u8]> = table.split(|&byte| byte == 0).collect();
    pieces.sort_unstable();
    pieces
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

/// Strings may only be referred to in the ways that [`references`] knows, through the tables that the loader uses.
fn refuse_other_uses(image: &ElfView<'_>, index: usize, table: &SectionView<'_>) -> Result<()> {
    const KNOWN: [u32; 4] = [SHT_DYNSYM, SHT_DYNAMIC, SHT_GNU_VERDEF, SHT_GNU_VERNEED];
    let refuse = |what: &str| Err(Error::verification(format!("dynamic strings changed, but {what}")));
    let names = match image.header.e_shstrndx {
        0xffff => image.sections.first().map_or(0, |first| first.link as usize),
        index => usize::from(index),
    };
    if names == index {
        return refuse("they are the names of sections, too");
    }
    let links = |section: &&SectionView<'_>| section.link as usize == index && section.kind != 0;
    if image.sections.iter().filter(links).any(|section| !KNOWN.contains(&section.kind)) {
        return refuse("a section of another kind refers to them");
    }
    if !dynamic_is_mapped(image) || dynamic(image).any(|(tag, ..)| !is_known_tag(tag)) {
        return refuse("the loader may use them in an unknown way");
    }
    let value = |wanted: u64| {
        let mut values = dynamic(image).filter(|&(tag, ..)| tag == wanted).map(|(_, value, _)| value);
        (values.next(), values.next().is_none())
    };
    if value(DT_STRTAB) != (Some(table.address), true)
        || value(DT_STRSZ) != (Some(table.bytes.len() as u64), true)
    {
        return refuse("the loader uses another table");
    }
    // The loader finds the other tables by tags, the check by sections: they must be the same.
    const TABLES: [(u64, u32); 6] = [
        (DT_SYMTAB, SHT_DYNSYM),
        (DT_VERSYM, SHT_GNU_VERSYM),
        (DT_VERDEF, SHT_GNU_VERDEF),
        (DT_VERNEED, SHT_GNU_VERNEED),
        (DT_HASH, SHT_HASH),
        (DT_GNU_HASH, SHT_GNU_HASH),
    ];
    for (tag, kind) in TABLES {
        let mut sections =
            image.sections.iter().filter(|section| section.kind == kind && section.is_loaded());
        let address = sections.next().map(|section| section.address);
        if sections.next().is_some()
            || !matches!(value(tag), (found, true) if found == address || found.is_none())
        {
            return refuse("the loader uses another table of symbols or versions");
        }
    }
    if last_symbol(image) >= symbols(image) {
        return refuse("there are more dynamic symbols than their section has");
    }
    let inside = |address: &Address| (table.address..table.end()).contains(&address.0);
    if loaded_pointers(image).iter().any(inside) {
        return refuse("a pointer leads to one");
    }
    if shares_bytes(image, index, table) {
        return refuse("something else shares their bytes");
    }
    Ok(())
}

/// Tags of which it is known whether their values are strings.
fn is_known_tag(tag: u64) -> bool {
    match tag {
        0..=37 => true,
        // GNU_HASH, TLSDESC_PLT, TLSDESC_GOT; VERSYM; RELACOUNT to VERNEEDNUM.
        0x6fff_fef5..=0x6fff_fef7 | 0x6fff_fff0 | 0x6fff_fff9..=0x6fff_ffff => true,
        // Of processors.
        0x7000_0000..=0x7000_0005 => true,
        _ => matches!(tag, DT_AUXILIARY | DT_FILTER),
    }
}

/// Whether there is one `.dynamic`, where the loader maps it.
fn dynamic_is_mapped(image: &ElfView<'_>) -> bool {
    let mut found = image.segments.iter().filter(|segment| segment.p_type == PT_DYNAMIC);
    let (Some(segment), None) = (found.next(), found.next()) else { return false };
    let mapped = image.mapped_offset(segment.p_vaddr, segment.p_filesz);
    mapped.is_some_and(|offset| offset.0 == segment.p_offset)
}

/// Number of dynamic symbols by the size of their section.
fn symbols(image: &ElfView<'_>) -> usize {
    let section = image.sections.iter().find(|section| section.kind == SHT_DYNSYM);
    section.map_or(0, |section| section.bytes.len() / SYMBOL_SIZE)
}

/// The last dynamic symbol that versions, hash tables or relocations know.
fn last_symbol(image: &ElfView<'_>) -> usize {
    let of_section = |section: &SectionView<'_>| match section.kind {
        SHT_GNU_VERSYM => (section.bytes.len() / 2).saturating_sub(1),
        SHT_HASH => u32_at(section.bytes, 4).map_or(0, |count| (count as usize).saturating_sub(1)),
        SHT_GNU_HASH => last_of_hash(section.bytes).unwrap_or(usize::MAX),
        SHT_RELA if section.is_loaded() => {
            let entries = section.bytes.chunks_exact(RELA_SIZE);
            entries.filter_map(|entry| Some((u64_at(entry, 8)? >> 32) as usize)).max().unwrap_or(0)
        }
        _ => 0,
    };
    image.sections.iter().map(of_section).max().unwrap_or(0)
}

/// The last symbol in a GNU hash table: buckets name first symbols of chains, whose ends have an odd hash.
fn last_of_hash(bytes: &[u8]) -> Option<usize> {
    let word = |at: usize| u32_at(bytes, at).map(|word| word as usize);
    let (buckets, first, blooms) = (word(0)?, word(4)?, word(8)?);
    let start = blooms.checked_mul(8)?.checked_add(16)?;
    let chains = buckets.checked_mul(4)?.checked_add(start)?;
    let last =
        bytes.get(start..chains)?.chunks_exact(4).filter_map(|bucket| u32_at(bucket, 0)).max()? as usize;
    if last < first {
        // All buckets are empty.
        return Some(0);
    }
    let rest = bytes.get(chains.checked_add((last - first).checked_mul(4)?)?..)?;
    let length = rest.chunks_exact(4).position(|hash| hash[0] & 1 == 1)?;
    last.checked_add(length)
}

/// Whether a section, a segment or a table of headers has bytes of `table`, section `index`.
fn shares_bytes(image: &ElfView<'_>, index: usize, table: &SectionView<'_>) -> bool {
    let overlaps = |offset: u64, size: u64| {
        size > 0
            && offset < table.offset + table.bytes.len() as u64
            && offset.saturating_add(size) > table.offset
    };
    let others = image.sections.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, other)| other);
    let segments = image.segments.iter().filter(|segment| segment.p_type != PT_LOAD);
    others.map(|other| (other.offset, other.bytes.len() as u64)).any(|(offset, size)| overlaps(offset, size))
        || segments
            .map(|segment| (segment.p_offset, segment.p_filesz))
            .any(|(offset, size)| overlaps(offset, size))
        || overlaps(image.header.e_phoff, u64::from(image.header.e_phnum) * PROGRAM_HEADER_SIZE)
        || overlaps(image.header.e_shoff, image.sections.len() as u64 * SECTION_HEADER_SIZE)
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
