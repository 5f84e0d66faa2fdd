//! Chained fixups: each slot holds its target and the distance to the next slot of its page.
//!
//! Source: `mach-o/fixup-chains.h`: `dyld_chained_fixups_header`, `dyld_chained_starts_in_segment` and the two forms of
//! `dyld_chained_ptr_64_*`.

use super::{SLOT_SIZE, unknown};
use crate::macho::file::MachOFile;
use crate::macho::load_command::LinkEditRange;
use crate::macho::reference::{DataForm, DataReference};
use crate::macho::section::Segment;
use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

/// `DYLD_CHAINED_PTR_64`: targets are addresses.
const ADDRESSES: u16 = 2;
/// `DYLD_CHAINED_PTR_64_OFFSET`: targets are distances from the headers.
const OFFSETS: u16 = 6;
const NO_CHAIN: u16 = 0xffff;
const SEVERAL_CHAINS: u16 = 0x8000;
const TARGET_BITS: u64 = (1 << 36) - 1;
/// Bytes in a unit of the distance to the next slot.
const STRIDE: u64 = 4;

/// The slots that are rebased and not bound, chain by chain.
pub(super) fn slots(file: &MachOFile<'_>, range: &LinkEditRange) -> Result<Vec<DataReference>> {
    let bytes = &file.bytes[range.offset..range.offset + range.size];
    let mut reader = Reader::new(bytes, range.offset as u64, "header of chained fixups");
    let version = reader.word()?;
    if version != 0 {
        return Err(unknown(format!("chained fixups of version {version}")).into());
    }
    let starts = reader.word()? as usize;
    reader.seek(starts)?;
    let count = reader.word()? as usize;
    if count > file.segments.len() {
        return Err(reader.error("has chains for more segments than there are"));
    }
    let mut slots = Vec::new();
    for segment in &file.segments[..count] {
        let distance = reader.word()? as usize;
        if distance != 0 {
            let mut chains = reader.clone();
            chains.seek(starts.saturating_add(distance))?;
            walk_segment(file, segment, chains, &mut slots)?;
        }
    }
    Ok(slots)
}

fn walk_segment(
    file: &MachOFile<'_>,
    segment: &Segment<'_>,
    mut reader: Reader<'_>,
    slots: &mut Vec<DataReference>,
) -> Result<()> {
    let _size = reader.word()?;
    let (page_size, format, place) = (u64::from(reader.half()?), reader.half()?, reader.long()?);
    let form = match format {
        ADDRESSES => DataForm::ChainedAddress,
        OFFSETS => DataForm::ChainedOffset,
        format => return Err(unknown(format!("chained fixups of format {format}")).into()),
    };
    if page_size == 0 || file.address_of(place) != segment.address {
        return Err(reader.error("has chains that do not fit their segment"));
    }
    let _largest = reader.word()?;
    let pages = u64::from(reader.half()?);
    let contents = &file.bytes[segment.offset..segment.offset + segment.file_size];
    for page in 0..pages {
        match reader.half()? {
            NO_CHAIN => {}
            first if first & SEVERAL_CHAINS != 0 => {
                return Err(unknown("pages with several chains of fixups").into());
            }
            first => {
                let page = page * page_size..(page + 1) * page_size;
                let chain = Chain { file, segment, contents, form, page };
                chain.walk(u64::from(first), slots)?;
            }
        }
    }
    Ok(())
}

/// The slots of one page.
struct Chain<'walk, 'data> {
    file: &'walk MachOFile<'data>,
    segment: &'walk Segment<'data>,
    contents: &'data [u8],
    form: DataForm,
    /// From the segment's start.
    page: std::ops::Range<u64>,
}

impl Chain<'_, '_> {
    fn walk(&self, first: u64, slots: &mut Vec<DataReference>) -> Result<()> {
        let mut offset = self.page.start + first;
        loop {
            let slot = self.contents.get(offset as usize..).and_then(|slot| slot.first_chunk());
            // A chain that leaves its page could run into that page's own chain, and slots would be listed twice.
            let Some(slot) = slot.filter(|_| offset < self.page.end) else {
                let place = self.segment.offset as u64 + offset;
                return Err(Error::malformed(place, "a chain of fixups leaves its page"));
            };
            let value = u64::from_le_bytes(*slot);
            if value >> 63 == 0 {
                let target = match self.form {
                    DataForm::ChainedOffset => self.file.address_of(value & TARGET_BITS),
                    _ => Address(value & TARGET_BITS),
                };
                slots.push(DataReference {
                    place: self.segment.address.plus(offset),
                    target,
                    form: self.form,
                });
            }
            match (value >> 51) & 0xfff {
                0 => return Ok(()),
                next if next * STRIDE < SLOT_SIZE => {
                    let place = self.segment.offset as u64 + offset;
                    return Err(Error::malformed(place, "two slots of a chain of fixups overlap"));
                }
                next => offset += next * STRIDE,
            }
        }
    }
}
