//! Bytes of `__unwind_info` → entries.

use super::{COMPRESSED_PAGE, REGULAR_PAGE, UnwindEntry, UnwindInfo};
use crate::address::Address;
use crate::error::{Error, Result};
use crate::image::macho::file::MachOFile;
use crate::image::macho::reader::Reader;
use crate::image::refusal::{Refusal, RefusalCode};

/// A row of the first level.
struct Page {
    function: Address,
    page: usize,
    exception_tables: usize,
}

impl UnwindInfo {
    /// The table of `file`; none if it has no such section.
    ///
    /// # Errors
    /// Refuses (M13) other versions, unknown pages and entries that are not sorted; reports malformed tables.
    pub fn parse(file: &MachOFile<'_>) -> Result<Option<Self>> {
        let Some(section) = file.section(b"__TEXT", b"__unwind_info").filter(|section| section.size > 0)
        else {
            return Ok(None);
        };
        let origin = section.offset as u64;
        let table = Table { file, bytes: file.section_bytes(section), origin };
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
            let function = file.address_of(rows.word()?.into());
            let (page, exception_tables) = (rows.word()? as usize, rows.word()? as usize);
            pages.push(Page { function, page, exception_tables });
        }
        let [first, .., last] = pages.as_slice() else {
            return match pages.as_slice() {
                // No entry, only the end.
                [end] => Ok(Some(Self {
                    architecture: file.architecture,
                    base: file.base(),
                    section: section.address,
                    size: section.size,
                    common_encodings,
                    personalities,
                    entries: Vec::new(),
                    end: end.function,
                    exception_tables: Vec::new(),
                })),
                _ => Err(Error::malformed(origin, "the unwind information has no end")),
            };
        };
        let exception_tables = table.exception_tables(first.exception_tables, last.exception_tables)?;
        let mut entries = Vec::new();
        for page in &pages[..pages.len() - 1] {
            // Linkers write 0 for ranges without entries.
            match page.page {
                0 => push(&mut entries, page.function, 0)?,
                at => table.page(at, page.function, &common_encodings, &mut entries)?,
            }
        }
        let end = last.function;
        if entries.last().is_some_and(|entry| entry.start > end) {
            return Err(unknown("unwind entries behind their end").at(end).into());
        }
        Ok(Some(Self {
            architecture: file.architecture,
            base: file.base(),
            section: section.address,
            size: section.size,
            common_encodings,
            personalities,
            entries,
            end,
            exception_tables,
        }))
    }
}

struct Table<'file, 'data> {
    file: &'file MachOFile<'data>,
    bytes: &'data [u8],
    origin: u64,
}

impl<'data> Table<'_, 'data> {
    fn at(&self, position: usize) -> Result<Reader<'data>> {
        let mut reader = Reader::new(self.bytes, self.origin, "unwind information");
        reader.seek(position)?;
        Ok(reader)
    }

    /// An array of words that the header names by its place and length.
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
            let function = self.file.address_of(list.word()?.into());
            let table = self.file.address_of(list.word()?.into());
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
        // Pages do not overlap in real tables, but a small damaged one could name one page very often.
        if entries.len().saturating_add(count.into()) > self.bytes.len() {
            return Err(header.error("has more entries than its size allows"));
        }
        let mut rows = self.at(at + start)?;
        match kind {
            REGULAR_PAGE => {
                for _ in 0..count {
                    let start = self.file.address_of(rows.word()?.into());
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
                        encoding.ok_or_else(|| rows.error("names an encoding that is not there"))?;
                    push(entries, first.plus(u64::from(row & 0x00ff_ffff)), encoding)?;
                }
            }
            kind => return Err(unknown(format!("a page of unwind entries of kind {kind}")).at(first).into()),
        }
        Ok(())
    }
}

/// Of several entries with one start, of which all but one belong to empty functions, the last counts, as for who searches.
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
        RefusalCode::M13,
        format!("the image has {}", what.into()),
        "link it again with ld or lld, which write version 1 with sorted pages",
    )
}
