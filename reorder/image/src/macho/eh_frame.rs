//! `__TEXT,__eh_frame`: unwind entries of functions whose frames one word cannot describe.
//!
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::BTreeMap;
use std::ops::Range;

use gimli::constants::{DW_EH_PE_absptr, DW_EH_PE_sdata4, DW_EH_PE_sdata8, DW_EH_PE_udata8, DwEhPe};
use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EndianSlice, LittleEndian, Pointer, UnwindSection,
};

use super::file::MachOFile;
use super::reference::{DataForm, DataReference};
use crate::frame_pointer::names_no_table;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::little_endian::u32_at;
use reorder_base::refusal::{Refusal, RefusalCode};

/// One frame description entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// First address covered.
    pub start: Address,
    /// Bytes covered.
    pub size: u64,
    /// Where the entry lies: its distance from the section's start, which unwind information may name.
    pub offset: u64,
    /// The field with the distance to `start`.
    pub start_field: Address,
    /// Bytes of that field: 4 or 8.
    pub start_width: u8,
    /// The function's exception table.
    pub exception_table: Option<Address>,
}

impl FrameEntry {
    /// The addresses covered.
    #[must_use]
    pub fn range(&self) -> Range<Address> {
        self.start..self.start.plus(self.size)
    }

    /// The field that must follow the function.
    #[must_use]
    pub fn reference(&self) -> DataReference {
        let form = if self.start_width == 4 { DataForm::Relative32 } else { DataForm::Relative64 };
        DataReference { place: self.start_field, target: self.start, form }
    }
}

type Slice<'data> = EndianSlice<'data, LittleEndian>;
type CommonEntries<'data> = BTreeMap<usize, CommonInformationEntry<Slice<'data>>>;

/// All entries in the section's order; none if the image has no such section.
///
/// # Errors
/// Refuses (M11) starts and exception tables that are not stored as distances from the field, the 64-bit form, and
/// personality routines that are named directly; reports malformed entries.
pub fn frame_entries(file: &MachOFile<'_>) -> Result<Vec<FrameEntry>> {
    let Some(section) = file.section(b"__TEXT", b"__eh_frame") else { return Ok(Vec::new()) };
    let contents = file.section_bytes(section);
    let bases = BaseAddresses::default().set_eh_frame(section.address.0);
    let frames = EhFrame::new(contents, LittleEndian);
    let mut common: CommonEntries<'_> = BTreeMap::new();
    let mut entries = Vec::with_capacity(contents.len() / 40);
    let mut position = 0usize;
    while let Some(length) = u32_at(contents, position) {
        let place = section.offset as u64 + position as u64;
        let address = section.address.plus(position as u64);
        if length == 0 {
            // A zero ends the list; the linker writes it only at the end.
            position += 4;
            continue;
        }
        if length >= 0xffff_fff0 {
            return Err(unknown("an unwind entry in the 64-bit form").at(address).into());
        }
        let next = position + 4 + length as usize;
        let Some(parent) = u32_at(contents, position + 4).filter(|_| next <= contents.len() && length >= 4)
        else {
            return Err(Error::malformed(place, "an unwind entry runs past the end of __eh_frame"));
        };
        if parent != 0 {
            let partial = frames.partial_fde_from_offset(&bases, position.into());
            let entry = partial.and_then(|partial| {
                partial.parse(|_, bases, offset| match common.get(&offset.0) {
                    Some(known) => Ok(known.clone()),
                    None => {
                        let parsed = frames.cie_from_offset(bases, offset)?;
                        common.insert(offset.0, parsed.clone());
                        Ok(parsed)
                    }
                })
            });
            let entry =
                entry.map_err(|error| Error::malformed(place, format!("a broken unwind entry: {error}")))?;
            let start_width = start_width(file, entry.cie()).map_err(|refusal| refusal.at(address))?;
            let (start, size) = (entry.initial_address(), entry.len());
            if start.checked_add(size).is_none() {
                return Err(Error::malformed(place, "an unwind entry runs past the address space"));
            }
            let record = contents.get(position..next).unwrap_or_default();
            let is_null = |encoding| names_no_table(record, start_width.into(), encoding);
            let exception_table = match entry.lsda() {
                _ if entry.cie().lsda_encoding().is_some_and(is_null) => None,
                Some(Pointer::Direct(table)) => Some(Address(table)),
                Some(Pointer::Indirect(_)) => {
                    return Err(unknown("an exception table that is named through a pointer")
                        .at(address)
                        .into());
                }
                None => None,
            };
            entries.push(FrameEntry {
                start: Address(start),
                size,
                offset: position as u64,
                start_field: address.plus(8),
                start_width,
                exception_table,
            });
        }
        position = next;
    }
    Ok(entries)
}

/// Bytes of the field with the start in entries under this common one.
fn start_width(
    file: &MachOFile<'_>,
    common: &CommonInformationEntry<Slice<'_>>,
) -> std::result::Result<u8, Refusal> {
    let encoding = common.fde_address_encoding().unwrap_or(DW_EH_PE_absptr);
    let Some(width) = relative_width(encoding) else {
        return Err(unknown(format!("unwind entries whose starts have the encoding {:#x}", encoding.0)));
    };
    if let Some(encoding) = common.lsda_encoding()
        && relative_width(encoding).is_none()
    {
        return Err(unknown(format!("exception tables with the encoding {:#x}", encoding.0)));
    }
    // A pointer to the routine is in data that does not move; the routine itself might move.
    match common.personality() {
        Some(Pointer::Direct(routine)) if file.text().range().contains(&Address(routine)) => {
            Err(unknown("a personality routine that is named directly"))
        }
        _ => Ok(width),
    }
}

/// Bytes of a distance from the field itself.
fn relative_width(encoding: DwEhPe) -> Option<u8> {
    const FROM_FIELD: u8 = 0x10;
    const FOUR_BYTES: [DwEhPe; 1] = [DW_EH_PE_sdata4];
    const EIGHT_BYTES: [DwEhPe; 3] = [DW_EH_PE_absptr, DW_EH_PE_sdata8, DW_EH_PE_udata8];
    let size = DwEhPe(encoding.0 & 0x0f);
    match encoding.0 & 0xf0 == FROM_FIELD {
        true if FOUR_BYTES.contains(&size) => Some(4),
        true if EIGHT_BYTES.contains(&size) => Some(8),
        _ => None,
    }
}

fn unknown(what: impl Into<String>) -> Refusal {
    Refusal::new(
        RefusalCode::MachOUnwindEncoding,
        format!("the image has {}", what.into()),
        "build it with clang, rustc or GCC for macOS, which write distances from the field",
    )
}
