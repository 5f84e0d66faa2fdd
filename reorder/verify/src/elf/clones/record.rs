//! The list of its copies that an image contains. It is only a claim: every part of it is checked, or serves to build a file
//! that is checked.
//!
//! Layout after the magic number, in little-endian numbers of eight bytes: length of the file without copies; count, and for
//! each copy the original's address, the copy's address and the original's size, for fragments also the copy's size; for
//! fragments count, and for each copied jump table the original's address, the copy's address, the bytes of an entry,
//! and the count of entries; count, and for each run of changed bytes the file position, the length and the old
//! bytes. A third form is that of fragments, followed by the functions that nothing describes: count, and for each the distance
//! from the end of the previous one and the size, in unsigned LEB128.

use std::ops::Range;

use crate::bytes::{range, u64_at};
use crate::elf::view::{ElfView, SectionView};
use crate::placed_copies::{PlacedCopy, PlacedTable};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::leb128::read_unsigned;

/// Name of the section.
pub(super) const RECORD: &[u8] = b".reorder.clones";

/// What a record lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// Whole functions. The copy has the size of the original; bytes that control cannot reach have no meaning.
    Functions,
    /// Runs of consecutive instructions, all of which are copied, and nothing else.
    Fragments,
}

/// The magic number of a list of fragments, some of functions that nothing describes.
const MAGIC_WITH_FOUND: &[u8] = b"REORDCL3";

impl Listed {
    /// The magic number at the start of the record.
    fn magic(self) -> &'static [u8] {
        match self {
            Self::Functions => b"REORDCL1",
            Self::Fragments => b"REORDCL2",
        }
    }

    /// Bytes of a copy's description.
    fn description_size(self) -> usize {
        match self {
            Self::Functions => 24,
            Self::Fragments => 32,
        }
    }
}

/// The places of a function or fragment and of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Copied {
    /// First address of the original.
    pub(super) original: Address,
    /// First address of the copy.
    pub(super) copy: NewAddress,
    /// Bytes of the original.
    pub(super) size: u64,
    /// Bytes of the copy.
    pub(super) copy_size: u64,
}

impl Copied {
    /// First address after the original.
    pub(super) fn original_end(&self) -> Address {
        self.original.plus(self.size)
    }

    /// First address after the copy.
    pub(super) fn copy_end(&self) -> NewAddress {
        self.copy.plus(self.copy_size)
    }
}

/// The places of a jump table and of its copy; both hold distances of four bytes from their own start, or addresses of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CopiedTable {
    /// First address of the original.
    pub(super) original: Address,
    /// First address of the copy.
    pub(super) copy: NewAddress,
    /// Number of entries.
    pub(super) count: u64,
    /// Bytes of an entry.
    pub(super) entry: u64,
}

impl CopiedTable {
    /// Bytes of a distance.
    pub(super) const DISTANCE: u64 = 4;
    /// Bytes of an address.
    pub(super) const ADDRESS: u64 = 8;
    /// Bytes of the description of a table.
    const DESCRIPTION_SIZE: usize = 32;

    /// Bytes of the table.
    pub(super) fn size(&self) -> u64 {
        self.count * self.entry
    }

    /// First address after the copy.
    pub(super) fn copy_end(&self) -> NewAddress {
        self.copy.plus(self.size())
    }
}

/// The claim.
#[derive(Debug)]
pub(crate) struct Record<'data> {
    /// Bytes of the file without copies.
    length: usize,
    /// What the copies are of.
    pub(super) listed: Listed,
    /// The copies.
    pub(super) copies: Vec<Copied>,
    /// The copied jump tables.
    pub(super) tables: Vec<CopiedTable>,
    /// Old bytes of the file without copies, by place.
    runs: Vec<(Range<usize>, &'data [u8])>,
    /// Functions that nothing describes, ascending and disjoint.
    pub(super) found: Vec<Range<Address>>,
}

impl<'data> Record<'data> {
    /// The claim of `image`, if it contains one.
    ///
    /// # Errors
    /// A section that breaks the layout, or names places outside of the file.
    pub(crate) fn of(image: &ElfView<'data>) -> Result<Option<Self>> {
        let Some(section) = image.section(RECORD) else { return Ok(None) };
        let broken = || Error::malformed(section.offset, "the list of copies is damaged");
        Self::parse(section, image.bytes.len()).map(Some).ok_or_else(broken)
    }

    fn parse(section: &SectionView<'data>, file_size: usize) -> Option<Self> {
        let kinds = [(Listed::Functions, false), (Listed::Fragments, false)]
            .map(|(listed, has_found)| (listed, listed.magic(), has_found));
        let kinds = kinds.into_iter().chain([(Listed::Fragments, MAGIC_WITH_FOUND, true)]);
        let mut kinds = kinds.filter_map(|(listed, magic, has_found)| {
            Some((listed, has_found, section.bytes.strip_prefix(magic)?))
        });
        let (listed, has_found, bytes) = kinds.next()?;
        let mut position = 0;
        let number = |position: &mut usize| {
            let number = u64_at(bytes, *position)?;
            *position += 8;
            Some(number)
        };
        let length = usize::try_from(number(&mut position)?).ok().filter(|length| *length <= file_size)?;
        let count = usize::try_from(number(&mut position)?).ok();
        let count = count.filter(|count| *count <= bytes.len() / listed.description_size())?;
        let mut copies = Vec::with_capacity(count);
        for _ in 0..count {
            let (original, copy, size) =
                (number(&mut position)?, number(&mut position)?, number(&mut position)?);
            let copy_size = match listed {
                Listed::Functions => size,
                Listed::Fragments => number(&mut position)?,
            };
            // Later sums of these must not overflow.
            original.checked_add(size).and(copy.checked_add(copy_size))?;
            copies.push(Copied { original: Address(original), copy: NewAddress(copy), size, copy_size });
        }
        let count = if listed == Listed::Fragments { number(&mut position)? } else { 0 };
        let count = usize::try_from(count).ok();
        let count = count.filter(|count| *count <= bytes.len() / CopiedTable::DESCRIPTION_SIZE)?;
        let mut tables = Vec::with_capacity(count);
        for _ in 0..count {
            let (original, copy) = (number(&mut position)?, number(&mut position)?);
            let (entry, count) = (number(&mut position)?, number(&mut position)?);
            let is_known = [CopiedTable::DISTANCE, CopiedTable::ADDRESS].contains(&entry);
            let size = count.checked_mul(entry).filter(|_| is_known)?;
            original.checked_add(size).and(copy.checked_add(size))?;
            tables.push(CopiedTable { original: Address(original), copy: NewAddress(copy), count, entry });
        }
        let mut runs = Vec::new();
        for _ in 0..number(&mut position)? {
            let (start, size) = (number(&mut position)?, number(&mut position)?);
            let old = range(bytes, position as u64, size)?;
            position += old.len();
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(old.len()).filter(|end| *end <= length)?;
            runs.push((start..end, old));
        }
        let found = match has_found {
            true => found_functions(bytes.get(position..)?)?,
            false => Vec::new(),
        };
        Some(Self { length, listed, copies, tables, runs, found })
    }

    /// Where the copies are, as claimed.
    pub(crate) fn placed(&self) -> Vec<PlacedCopy> {
        let placed = |copied: &Copied| PlacedCopy {
            original: NewAddress(copied.original.0),
            size: copied.size,
            copy: copied.copy,
            copy_size: copied.copy_size,
        };
        self.copies.iter().map(placed).collect()
    }

    /// Where the copies of jump tables are, as claimed.
    pub(crate) fn placed_tables(&self) -> Vec<PlacedTable> {
        let placed = |table: &CopiedTable| PlacedTable {
            original: NewAddress(table.original.0),
            copy: table.copy,
            size: table.size(),
        };
        self.tables.iter().map(placed).collect()
    }

    /// The file without copies, as claimed; `bytes` are those of the file with copies.
    pub(crate) fn without_copies(&self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = bytes.get(..self.length).unwrap_or(bytes).to_vec();
        for (place, old) in &self.runs {
            if let Some(place) = whole.get_mut(place.clone()) {
                place.copy_from_slice(old);
            }
        }
        whole
    }
}

/// The list of functions at the end of a record; `None` if it breaks the layout.
fn found_functions(bytes: &[u8]) -> Option<Vec<Range<Address>>> {
    let count = usize::try_from(u64_at(bytes, 0)?).ok()?;
    let mut rest = bytes.get(8..)?;
    let mut number = || {
        let (value, size) = read_unsigned(rest).ok()?;
        rest = rest.get(size..)?;
        Some(value)
    };
    // Each takes two bytes.
    let mut found = Vec::with_capacity(Some(count).filter(|count| *count <= bytes.len() / 2)?);
    let mut end = 0u64;
    for _ in 0..count {
        let start = end.checked_add(number()?)?;
        end = start.checked_add(number()?).filter(|end| start < *end)?;
        found.push(Address(start)..Address(end));
    }
    rest.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(magic: &[u8], numbers: &[u64]) -> Vec<u8> {
        [magic, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Record<'_>> {
        let section = SectionView {
            name: RECORD,
            kind: 1,
            flags: 0,
            address: 0,
            offset: 0,
            link: 0,
            info: 0,
            alignment: 1,
            bytes,
        };
        Record::parse(&section, 0x100)
    }

    #[test]
    fn both_lists_are_read() {
        let functions = record(b"REORDCL1", &[0x80, 1, 0x1000, 0x8000, 6, 0]);
        let fragments = record(b"REORDCL2", &[0x80, 1, 0x1000, 0x8000, 6, 9, 0, 0]);
        for (bytes, listed, copy_size) in
            [(&functions, Listed::Functions, 6), (&fragments, Listed::Fragments, 9)]
        {
            let record = parse(bytes).expect("a record");
            let copy = Copied { original: Address(0x1000), copy: NewAddress(0x8000), size: 6, copy_size };
            assert_eq!((record.length, record.listed, record.copies), (0x80, listed, vec![copy]));
            assert!(parse(&bytes[..bytes.len() - 1]).is_none(), "a truncated record");
        }
    }

    #[test]
    fn tables_have_entries_of_four_or_eight_bytes() {
        let with_table = |entry, count| record(b"REORDCL2", &[0x80, 0, 1, 0x2000, 0x9000, entry, count, 0]);
        let table = CopiedTable { original: Address(0x2000), copy: NewAddress(0x9000), count: 3, entry: 4 };
        let tables = |bytes: &[u8]| parse(bytes).map(|record| record.tables);
        assert_eq!(tables(&with_table(4, 3)), Some(vec![table]));
        assert_eq!((table.size(), table.copy_end()), (12, NewAddress(0x900c)));
        let addresses = CopiedTable { entry: 8, ..table };
        assert_eq!(tables(&with_table(8, 3)), Some(vec![addresses]));
        assert_eq!(addresses.size(), 24);
        let wrong =
            [(0, 3), (5, 3), (16, 3), (4, u64::MAX / 2), (4, u64::MAX / 4 - 0x800), (8, u64::MAX / 8)];
        for (entry, count) in wrong {
            assert_eq!(tables(&with_table(entry, count)), None, "{count} entries of {entry} bytes");
        }
        let many = record(b"REORDCL2", &[0x80, 0, u64::MAX, 0x2000, 0x9000, 4, 3, 0]);
        assert_eq!(tables(&many), None, "more tables than the record has bytes");
    }

    #[test]
    fn unknown_lists_are_refused() {
        assert!(parse(&record(b"REORDCL4", &[0x80, 0, 0, 0])).is_none());
        assert!(parse(&record(b"REORDCL2", &[0x80, 1, u64::MAX, 0x8000, 6, 9, 0, 0])).is_none());
        assert!(parse(&record(b"REORDCL2", &[0x80, 1, 0x1000, u64::MAX - 7, 6, 9, 0, 0])).is_none());
    }
}
