//! Reads `__unwind_info`: bytes → entries.

use super::{COMPRESSED_PAGE, REGULAR_PAGE, UnwindEntry, UnwindInfo};
use crate::macho::file::MachOFile;
use crate::macho::section::Section;
use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// A row of the first level.
struct Page {
    function: Address,
    page: usize,
    exception_tables: usize,
}

impl UnwindInfo {
    /// The table of `file`; `None` if it has no such section.
    ///
    /// # Errors
    /// Refuses (M13) other versions, unknown pages and entries that are not sorted; reports malformed tables.
    pub fn parse(file: &MachOFile<'_>) -> Result<Option<Self>> {
        let Some(section) = Self::section(file) else { return Ok(None) };
        let place = Place {
            processor: file.processor,
            base: file.base(),
            section: section.address,
            origin: section.offset as u64,
        };
        Self::decode(place, file.section_bytes(section)).map(Some)
    }

    /// The section of the table, found by its name as the loader finds it: sections without contents may claim its address.
    #[must_use]
    pub fn section<'file, 'data>(file: &'file MachOFile<'data>) -> Option<&'file Section<'data>> {
        file.section(b"__TEXT", b"__unwind_info").filter(|section| section.size > 0)
    }

    /// The table in the bytes of a section.
    ///
    /// # Errors
    /// As for [`UnwindInfo::parse`].
    pub fn decode(place: Place, bytes: &[u8]) -> Result<Self> {
        let table = Table { base: place.base, bytes, origin: place.origin };
        let mut header = table.at(0)?;
        let version = header.word()?;
        if version != 1 {
            return Err(unknown(format!("unwind information of version {version}")).into());
        }
        let common_encodings = table.words(&mut header)?;
        let personalities = table.words(&mut header)?;
        let (index, count) = (header.word()? as usize, header.word()? as usize);
        let mut rows = table.at(index)?;
        let mut pages: Vec<Page> = Vec::new();
        for _ in 0..count {
            let function = table.address_of(rows.word()?);
            let (page, exception_tables) = (rows.word()? as usize, rows.word()? as usize);
            pages.push(Page { function, page, exception_tables });
        }
        let Some((last, filled)) = pages.split_last() else {
            return Err(Error::malformed(place.origin, "the unwind information has no end"));
        };
        let mut entries = Vec::new();
        for page in filled {
            // Linkers write 0 for ranges without entries.
            match page.page {
                0 => push(&mut entries, page.function, 0)?,
                at => table.page(at, page.function, &common_encodings, &mut entries)?,
            }
        }
        if entries.last().is_some_and(|entry| entry.start > last.function) {
            return Err(unknown("unwind entries after their end").at(last.function).into());
        }
        let tables_start = filled.first().map_or(last.exception_tables, |first| first.exception_tables);
        Ok(Self {
            processor: place.processor,
            base: place.base,
            section: place.section,
            size: bytes.len() as u64,
            common_encodings,
            personalities,
            entries,
            end: last.function,
            exception_tables: table.exception_tables(tables_start, last.exception_tables)?,
        })
    }
}

/// What is needed to read a table besides its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The processor, which decides what encodings mean.
    pub processor: Processor,
    /// The address of the headers.
    pub base: Address,
    /// The section's first address.
    pub section: Address,
    /// Where the section starts in the image.
    pub origin: u64,
}

struct Table<'data> {
    base: Address,
    bytes: &'data [u8],
    origin: u64,
}

impl<'data> Table<'data> {
    fn address_of(&self, image_offset: u32) -> Address {
        self.base.plus(image_offset.into())
    }

    fn at(&self, position: usize) -> Result<Reader<'data>> {
        let mut reader = Reader::new(self.bytes, self.origin, "unwind information");
        reader.seek(position)?;
        Ok(reader)
    }

    /// An array of words whose place and length are in the header.
    fn words(&self, header: &mut Reader<'data>) -> Result<Vec<u32>> {
        let (start, count) = (header.word()? as usize, header.word()? as usize);
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut reader = self.at(start)?;
        let bytes = reader.take(count.saturating_mul(4))?;
        Ok(bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect())
    }

    fn exception_tables(&self, start: usize, end: usize) -> Result<Vec<(Address, Address)>> {
        let mut reader = self.at(start)?;
        let size = end.checked_sub(start).ok_or_else(|| reader.error("has a list of negative length"))?;
        let mut list =
            Reader::new(reader.take(size)?, self.origin + start as u64, "list of exception tables");
        let mut tables: Vec<(Address, Address)> = Vec::with_capacity(size / 8);
        while !list.rest().is_empty() {
            let function = self.address_of(list.word()?);
            let table = self.address_of(list.word()?);
            if tables.last().is_some_and(|(last, _)| *last >= function) {
                return Err(unknown("a list of exception tables that is not sorted").at(function).into());
            }
            tables.push((function, table));
        }
        Ok(tables)
    }

    fn page(&self, at: usize, first: Address, common: &[u32], entries: &mut Vec<UnwindEntry>) -> Result<()> {
        let mut header = self.at(at)?;
        let kind = header.word()?;
        let (start, count) = (usize::from(header.half()?), header.half()?);
        // Pages do not overlap in real tables, but a small damaged table could name one page many times.
        if entries.len().saturating_add(count.into()) > self.bytes.len() {
            return Err(header.error("has more entries than its size allows"));
        }
        let mut rows = self.at(at + start)?;
        match kind {
            REGULAR_PAGE => {
                for _ in 0..count {
                    let start = self.address_of(rows.word()?);
                    push(entries, start, rows.word()?)?;
                }
            }
            COMPRESSED_PAGE => {
                let (encodings, own_count) = (usize::from(header.half()?), usize::from(header.half()?));
                let mut own = self.at(at + encodings)?;
                let own = own.take(own_count * 4)?;
                for _ in 0..count {
                    let row = rows.word()?;
                    let index = (row >> 24) as usize;
                    let encoding = match common.get(index) {
                        Some(encoding) => Some(*encoding),
                        None => own
                            .get((index - common.len()) * 4..)
                            .and_then(|own| own.first_chunk())
                            .map(|word| u32::from_le_bytes(*word)),
                    };
                    let encoding =
                        encoding.ok_or_else(|| rows.error("names an encoding that does not exist"))?;
                    push(entries, first.plus(u64::from(row & 0x00ff_ffff)), encoding)?;
                }
            }
            kind => return Err(unknown(format!("a page of unwind entries of kind {kind}")).at(first).into()),
        }
        Ok(())
    }
}

/// Of several entries with one start, all but one of which belong to empty functions, the last is kept: the unwinder finds
/// it.
fn push(entries: &mut Vec<UnwindEntry>, start: Address, encoding: u32) -> Result<()> {
    match entries.last_mut() {
        Some(last) if last.start == start => last.encoding = encoding,
        Some(last) if last.start > start => {
            return Err(unknown("unwind entries that are not sorted").at(start).into());
        }
        _ => entries.push(UnwindEntry { start, encoding }),
    }
    Ok(())
}

fn unknown(what: impl Into<String>) -> Refusal {
    Refusal::new(
        RefusalCode::MachOUnwindForm,
        format!("the image has {}", what.into()),
        "link it again with ld or lld, which write version 1 with sorted pages",
    )
}
