//! Link maps: which input section a linker put where.
//!
//! In: the text that `-Map=FILE` (ELF) or `-map FILE` (Apple) made. Out: [`LinkMap`], the nonempty input sections in
//! the order of the map. The format is found out by its contents:
//!
//! | reader | linkers |
//! |---|---|
//! | [`columns`] | lld, mold |
//! | [`gnu`] | GNU ld, gold |
//! | [`apple`] | Apple's ld64 and ld-prime, ld64.lld; their unit is the symbol |
//!
//! Sections that were discarded or folded into others, padding and sections that are not loaded are left out. A map
//! takes memory in proportion to its lines and is read in one pass.

mod apple;
mod columns;
mod gnu;
#[cfg(test)]
mod tests;

pub(crate) use apple::accepts as is_apple_map;

use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::lines::lines;

/// What a link put where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkMap<'data> {
    /// The nonempty input sections, in the order of the map.
    pub sections: Vec<PlacedSection<'data>>,
    is_apple: bool,
}

/// One input section in the output; in Apple's maps one symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedSection<'data> {
    /// Where the link put it.
    pub address: Address,
    /// Size in bytes; never zero, and never past the end of the address space.
    pub size: u64,
    /// The requested alignment in bytes, if the map states it.
    pub alignment: Option<u64>,
    /// Output section: `.text`; `__TEXT,__text` in Apple's maps.
    pub output: &'data [u8],
    /// Object file as the map spells it: `path/a.o`, `lib.a(a.o)`, `<internal>`.
    pub object: &'data [u8],
    /// Input section, `.text.f`; the symbol in Apple's maps.
    pub name: &'data [u8],
}

impl PlacedSection<'_> {
    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> Address {
        self.address.plus(self.size)
    }
}

/// Position in [`LinkMap::sections`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectionIndex(pub u32);

/// The parts of an object file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectFile<'data> {
    /// Of a member: the path of its archive.
    pub archive: Option<&'data [u8]>,
    /// The path of the file, or the member.
    pub name: &'data [u8],
}

impl<'data> ObjectFile<'data> {
    /// Takes `dir/a.o` or `dir/lib.a(a.o)` apart.
    #[must_use]
    pub fn of(spelled: &'data [u8]) -> Self {
        // The member may have brackets of its own, so the archive ends at the first.
        let archived = spelled
            .strip_suffix(b")")
            .and_then(|inner| inner.iter().position(|&byte| byte == b'(').map(|at| inner.split_at(at)));
        match archived {
            Some((archive, member)) if !archive.is_empty() => {
                Self { archive: Some(archive), name: &member[1..] }
            }
            _ => Self { archive: None, name: spelled },
        }
    }

    /// The same without directories.
    #[must_use]
    pub fn leaf(self) -> Self {
        Self { archive: self.archive.map(last_component), name: last_component(self.name) }
    }
}

fn last_component(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(path, |at| &path[at + 1..])
}

impl LinkMap<'_> {
    /// Reads a map of any of the linkers.
    ///
    /// # Errors
    /// Bytes that are not a link map, and maps without a nonempty section.
    pub fn parse(bytes: &[u8]) -> Result<LinkMap<'_>> {
        let is_apple = apple::accepts(bytes);
        let sections = if is_apple {
            apple::read(bytes)
        } else if let Some(columns) = columns::Columns::of(bytes) {
            columns::read(bytes, columns)
        } else {
            gnu::read(bytes)
        }?;
        if sections.is_empty() {
            return Err(Error::malformed(0, "this is not a link map, or one without sections")
                .with_hint("let the linker write one: -Wl,-Map=FILE, or -Wl,-map,FILE for Apple's linkers"));
        }
        Ok(LinkMap { sections, is_apple })
    }

    /// The section with this index.
    ///
    /// # Panics
    /// When the index is of another map.
    #[must_use]
    pub fn get(&self, index: SectionIndex) -> &PlacedSection<'_> {
        &self.sections[index.0 as usize]
    }

    /// Whether an Apple linker wrote it, so that its units are symbols.
    #[must_use]
    pub fn is_apple(&self) -> bool {
        self.is_apple
    }
}

/// The first word after blanks, and what follows it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    (end > 0).then(|| line.split_at(end))
}

/// Refuses sections that run past the address space; later arithmetic relies on it.
fn checked(offset: u64, section: PlacedSection<'_>) -> Result<PlacedSection<'_>> {
    match section.address.0.checked_add(section.size) {
        Some(_) => Ok(section),
        None => Err(Error::malformed(offset, "a section of the link map runs past the address space")),
    }
}

/// Which output section the lines are about, and whether it is loaded: sections that are not have address zero and follow
/// all that are.
#[derive(Clone, Copy, Default)]
struct Output<'data> {
    name: Option<&'data [u8]>,
    seen_loaded: bool,
}

impl<'data> Output<'data> {
    fn begin(&mut self, name: &'data [u8], address: u64) {
        self.seen_loaded |= address != 0;
        self.name = (address != 0 || !self.seen_loaded).then_some(name);
    }
}
