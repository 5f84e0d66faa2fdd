//! `LC_DATA_IN_CODE`: ranges of code sections that hold no instructions.
//!
//! Source: `mach-o/loader.h`, `data_in_code_entry`.

use super::file::MachOFile;
use super::load_command::LinkEditPart;
use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::Result;

/// One range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInCode {
    /// Its first byte.
    pub start: Address,
    /// Bytes.
    pub length: u16,
    /// What it holds: 1 data, 2 to 4 jump tables of 8, 16 and 32 bits, 5 tables of 32-bit addresses.
    pub kind: u16,
}

/// The ranges in the table's order.
///
/// # Errors
/// A table that is not a whole number of entries.
pub fn read(file: &MachOFile<'_>) -> Result<Vec<DataInCode>> {
    let Some(range) = file.link_edit_range(LinkEditPart::DataInCode) else { return Ok(Vec::new()) };
    let bytes = file.link_edit_bytes(LinkEditPart::DataInCode);
    let mut reader = Reader::new(bytes, range.offset as u64, "table of data in code");
    let mut ranges = Vec::with_capacity(bytes.len() / 8);
    while !reader.rest().is_empty() {
        let start = file.address_of(reader.word()?.into());
        ranges.push(DataInCode { start, length: reader.half()?, kind: reader.half()? });
    }
    Ok(ranges)
}
