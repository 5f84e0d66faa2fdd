//! Where a program starts: `LC_MAIN`.
//!
//! Source: `mach-o/loader.h`, `entry_point_command`.

use super::file::MachOFile;
use super::load_command::LC_REQ_DYLD;
use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::Result;

const LC_MAIN: u32 = 0x28 | LC_REQ_DYLD;

/// The program's entry and the field that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first instruction of `main`.
    pub address: Address,
    /// Where the image holds its distance from the headers, eight bytes.
    pub field: usize,
}

/// The entry; none in libraries and bundles.
///
/// # Errors
/// A command that is too short.
pub fn entry(file: &MachOFile<'_>) -> Result<Option<Entry>> {
    let Some(command) = file.command(LC_MAIN) else { return Ok(None) };
    let mut reader = Reader::new(file.command_bytes(command), command.offset as u64, "command LC_MAIN");
    reader.take(8)?;
    Ok(Some(Entry { address: file.address_of(reader.long()?), field: command.offset + 8 }))
}
