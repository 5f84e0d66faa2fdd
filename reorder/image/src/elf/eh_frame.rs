//! `.eh_frame`: which bytes are functions, and where each entry stores the start.
//!
//! Gives one [`FrameEntry`] per frame description entry, in section order. Several entries may cover one
//! address (identical code folding), entries may follow a zero terminator, and one may start a byte before its
//! function on purpose (signal trampolines).
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::BTreeMap;

use gimli::constants::{DW_EH_PE_omit, DwEhPe};
use gimli::{BaseAddresses, CommonInformationEntry, EhFrame, EndianSlice, LittleEndian, UnwindSection};

use crate::elf::file::ElfFile;
use crate::frame_pointer::names_no_table;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};

/// One frame description entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// First address covered.
    pub start: Address,
    /// Bytes covered.
    pub size: u64,
    /// Where the four-byte, field-relative start lies in the file.
    pub start_field: FileOffset,
    /// The address of that field in memory.
    pub start_field_address: Address,
    /// The language-specific data area, if there is one.
    pub exception_table: Option<Address>,
    /// The personality routine, where the common entry names it directly instead of through a pointer.
    pub personality: Option<Address>,
}

impl FrameEntry {
    /// First address after the entry's range.
    pub fn end(&self) -> Address {
        self.start.plus(self.size)
    }
}

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: the one form that every linker for x86-64 was seen to write.
const FIELD_RELATIVE_FOUR_BYTES: DwEhPe = DwEhPe(0x1b);
/// Bytes of such a start, and of the size after it.
const START_WIDTH: usize = 4;

type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// All entries of `.eh_frame`; none when the image has no such section.
///
/// # Errors
/// Refuses (R8) start encodings other than field-relative four bytes; reports malformed entries with their
/// offset.
pub fn frame_entries(file: &ElfFile<'_>) -> Result<Vec<FrameEntry>> {
    let mut sections =
        file.sections.iter().filter(|section| section.name == b".eh_frame" && section.is_loaded());
    let Some(section) = sections.next() else { return Ok(Vec::new()) };
    if let Some(second) = sections.next() {
        let cure = "relink without a linker script that splits .eh_frame";
        return Err(Refusal::new(RefusalCode::UnwindEncoding, "there are two .eh_frame sections", cure)
            .at(second.address)
            .into());
    }
    let contents = file.section_bytes(section);
    let frames = EhFrame::new(contents, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address.0);
    let mut common: BTreeMap<usize, CommonInformationEntry<Slice<'_>>> = BTreeMap::new();
    let mut entries = Vec::with_capacity(contents.len() / 40);
    let mut position = 0usize;
    while position + 8 <= contents.len() {
        let file_position = section.offset.0 + position as u64;
        let length = word(contents, position) as usize;
        if length == 0 {
            position += 4;
            continue;
        }
        if length >= 0xffff_fff0 {
            return Err(Error::malformed(
                file_position,
                "an unwind entry in the 64-bit form, which no linker writes",
            ));
        }
        let next = position + 4 + length;
        if next > contents.len() || length < 4 {
            return Err(Error::malformed(file_position, "an unwind entry runs past the end of .eh_frame"));
        }
        if word(contents, position + 4) != 0 {
            let entry = frames
                .partial_fde_from_offset(&bases, position.into())
                .and_then(|partial| {
                    partial.parse(|_, bases, offset| {
                        if let Some(known) = common.get(&offset.0) {
                            return Ok(known.clone());
                        }
                        let parsed = frames.cie_from_offset(bases, offset)?;
                        common.insert(offset.0, parsed.clone());
                        Ok(parsed)
                    })
                })
                .map_err(|error| {
                    Error::malformed(file_position, format!("a broken unwind entry: {error}"))
                })?;
            let encoding = entry.cie().fde_address_encoding().unwrap_or(DW_EH_PE_omit);
            if encoding != FIELD_RELATIVE_FOUR_BYTES {
                return Err(Refusal::new(
                    RefusalCode::UnwindEncoding,
                    format!("unwind entries with address encoding {:#x}", encoding.0),
                    "link with ld.bfd, gold, lld or mold, which write field-relative entries",
                )
                .at(section.address.plus(position as u64))
                .into());
            }
            let (start, size) = (entry.initial_address(), entry.len());
            if start.checked_add(size).is_none() {
                return Err(Error::malformed(file_position, "an unwind entry runs past the address space"));
            }
            let personality = entry.personality().and_then(|pointer| match pointer {
                gimli::Pointer::Direct(address) => Some(Address(address)),
                gimli::Pointer::Indirect(_) => None,
            });
            let record = contents.get(position..next).unwrap_or_default();
            let is_null = |encoding| names_no_table(record, START_WIDTH, encoding);
            let named = entry.lsda().filter(|_| !entry.cie().lsda_encoding().is_some_and(is_null));
            let exception_table = named.map(|pointer| match pointer {
                gimli::Pointer::Direct(address) | gimli::Pointer::Indirect(address) => Address(address),
            });
            entries.push(FrameEntry {
                start: Address(start),
                size,
                start_field: FileOffset(file_position + 8),
                start_field_address: section.address.plus(position as u64 + 8),
                exception_table,
                personality,
            });
        }
        position = next;
    }
    Ok(entries)
}

fn word(contents: &[u8], at: usize) -> u32 {
    contents[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
}
