//! The list of its copies that an image contains. It is only a claim: every part of it is checked, or serves to build a file
//! that is checked.
//!
//! Layout after the magic number, in little-endian numbers of eight bytes: length of the file without copies; count, and for
//! each copy the original's address, the copy's address and the original's size; count, and for each run of changed bytes
//! the file position, the length and the old bytes.

use std::ops::Range;

use crate::bytes::{range, u64_at};
use crate::elf::view::{ElfView, SectionView};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// Name of the section.
pub(super) const RECORD: &[u8] = b".reorder.clones";
const MAGIC: &[u8] = b"REORDCL1";
/// Bytes of a copy's description.
const COPIED_SIZE: usize = 24;

/// The places of a function and of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Copied {
    /// First address of the original.
    pub(super) original: Address,
    /// First address of the copy.
    pub(super) copy: NewAddress,
    /// Bytes of the original.
    pub(super) size: u64,
}

impl Copied {
    /// First address after the original.
    pub(super) fn original_end(&self) -> Address {
        self.original.plus(self.size)
    }

    /// First address after the copy.
    pub(super) fn copy_end(&self) -> NewAddress {
        self.copy.plus(self.size)
    }
}

/// The claim.
#[derive(Debug)]
pub(crate) struct Record<'data> {
    /// Bytes of the file without copies.
    length: usize,
    /// The copies.
    pub(super) copies: Vec<Copied>,
    /// Old bytes of the file without copies, by place.
    runs: Vec<(Range<usize>, &'data [u8])>,
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
        let bytes: &'data [u8] = section.bytes.strip_prefix(MAGIC)?;
        let mut position = 0;
        let number = |position: &mut usize| {
            let number = u64_at(bytes, *position)?;
            *position += 8;
            Some(number)
        };
        let length = usize::try_from(number(&mut position)?).ok().filter(|length| *length <= file_size)?;
        let count = usize::try_from(number(&mut position)?).ok();
        let count = count.filter(|count| *count <= bytes.len() / COPIED_SIZE)?;
        let mut copies = Vec::with_capacity(count);
        for _ in 0..count {
            let (original, copy, size) =
                (number(&mut position)?, number(&mut position)?, number(&mut position)?);
            // Later sums of these must not overflow.
            original.checked_add(size).and(copy.checked_add(size))?;
            copies.push(Copied { original: Address(original), copy: NewAddress(copy), size });
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
        Some(Self { length, copies, runs })
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
