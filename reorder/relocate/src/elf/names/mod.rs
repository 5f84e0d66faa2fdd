//! Places the names that the loader reads at startup next to each other in `.dynstr`.
//!
//! ```text
//! references to strings ─┐
//! names that are looked up ─┴─> rank of each string ─> strings in order of rank ─> references rewritten
//! ```
//!
//! Strings keep their bytes, and strings that share an ending stay together, so the table keeps its size. Images in which
//! something else may refer to a string are left as they are.

mod lookups;
mod references;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use object::elf::SHT_DYNSYM;

use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::{Section, SectionIndex};

use lookups::Lookup;
pub use lookups::looked_up_names;
use references::{Reference, references};

/// How early the loader reads a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// With the image itself: names of libraries and versions.
    Loading,
    /// For a relocation of this image, in the order of relocations.
    Relocating(usize),
    /// For a relocation of another image, which looks the name up here.
    Binding,
    /// When a function is called for the first time.
    Calling,
    /// Perhaps never.
    Rest,
}

/// The image with the names that the loader reads next to each other; `elsewhere` are those that other images of the process
/// look up. `None` if that changes nothing, or if something else may refer to strings.
///
/// # Errors
/// Broken tables.
pub fn place_names(image: &[u8], elsewhere: &HashSet<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let file = ElfFile::parse(image)?;
    let Some((index, strings)) = strings_of(&file) else { return Ok(None) };
    let table = file.section_bytes(strings);
    let Some(references) = references(&file, index, strings)? else { return Ok(None) };
    let pieces = pieces(table);
    let ranks = ranks(&file, (table, &pieces), &references, elsewhere)?;
    // The first byte is the empty string, which has no name of its own.
    let mut order: Vec<usize> = (1..pieces.len()).collect();
    order.sort_by_key(|&piece| ranks.get(&pieces[piece].start).copied().unwrap_or(Rank::Rest));
    if order.is_sorted() {
        return Ok(None);
    }
    let mut placed = table.get(..1).unwrap_or_default().to_vec();
    let mut moved: BTreeMap<usize, usize> = BTreeMap::from([(0, 0)]);
    for piece in order {
        moved.insert(pieces[piece].start, placed.len());
        placed.extend_from_slice(&table[pieces[piece].clone()]);
    }

    let mut bytes = image.to_vec();
    let outside = |reference: &Reference| {
        Error::malformed(reference.field as u64, "a reference to a string lies outside of the file")
    };
    for reference in &references {
        let piece = moved.range(..=reference.position).next_back();
        let position = piece.map_or(0, |(old, new)| new + (reference.position - old));
        let value = (position as u64).to_le_bytes();
        let field = bytes.get_mut(reference.field..reference.field + reference.width);
        let field = field.ok_or_else(|| outside(reference))?;
        field.copy_from_slice(&value[..reference.width]);
    }
    let start = strings.offset.0 as usize;
    // Sections lie inside the file: the parser has checked that.
    bytes[start..start + placed.len()].copy_from_slice(&placed);
    Ok(Some(bytes))
}

/// Bytes of the names of `image`; zero without any.
///
/// # Errors
/// Broken tables.
pub fn bytes_of_names(image: &[u8]) -> Result<u64> {
    Ok(strings_of(&ElfFile::parse(image)?).map_or(0, |(_, strings)| strings.size))
}

/// The string table of the dynamic symbols.
fn strings_of<'file, 'data>(file: &'file ElfFile<'data>) -> Option<(SectionIndex, &'file Section<'data>)> {
    let symbols = file.sections.iter().find(|section| section.kind == SHT_DYNSYM.0)?;
    let strings = file.sections.get(symbols.link as usize)?;
    let table = file.section_bytes(strings);
    let is_whole = table.first() == Some(&0) && table.last() == Some(&0);
    (strings.is_loaded() && strings.has_bytes() && is_whole).then_some((strings.index, strings))
}

/// The strings with their ends, in order: what no reference can divide.
fn pieces(table: &[u8]) -> Vec<Range<usize>> {
    let ends = table.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 1);
    let mut start = 0;
    ends.map(|end| std::mem::replace(&mut start, end)..end).collect()
}

/// The lowest rank of any string in each piece, by the start of the piece.
fn ranks(
    file: &ElfFile<'_>,
    (table, pieces): (&[u8], &[Range<usize>]),
    references: &[Reference],
    elsewhere: &HashSet<Vec<u8>>,
) -> Result<BTreeMap<usize, Rank>> {
    let mut ranks: BTreeMap<usize, Rank> = BTreeMap::new();
    let mut rank = |position: usize, rank: Rank| {
        let Some(piece) = pieces.get(pieces.partition_point(|piece| piece.end <= position)) else { return };
        let known = ranks.entry(piece.start).or_insert(rank);
        *known = rank.min(*known);
    };
    for (number, lookup) in lookups::lookups(file)?.into_iter().enumerate() {
        match lookup {
            Lookup::Relocating(position) => rank(position, Rank::Relocating(number)),
            Lookup::Calling(position) => rank(position, Rank::Calling),
        }
    }
    for reference in references {
        if !reference.is_symbol {
            rank(reference.position, Rank::Loading);
        } else if reference.is_defined && elsewhere.contains(string_at(table, reference.position)?) {
            rank(reference.position, Rank::Binding);
        }
    }
    Ok(ranks)
}

/// No compiler writes longer names; references into one that is longer would make the work quadratic.
const MAX_NAME: usize = 1 << 16;

/// The string at `position`, without its end.
fn string_at(table: &[u8], position: usize) -> Result<&[u8]> {
    let rest = table.get(position..).unwrap_or_default();
    let rest = &rest[..rest.len().min(MAX_NAME)];
    match rest.iter().position(|&byte| byte == 0) {
        Some(end) => Ok(&rest[..end]),
        None => {
            Err(Error::malformed(position as u64, format!("a dynamic string has more than {MAX_NAME} bytes")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn pieces_end_with_their_strings() {
        assert_eq!(pieces(b"\0one\0two\0"), [0..1, 1..5, 5..9]);
        assert_eq!(string_at(b"\0one\0two\0", 6).unwrap(), b"wo");
        assert!(string_at(b"\0one", 1).is_err());
    }
}
