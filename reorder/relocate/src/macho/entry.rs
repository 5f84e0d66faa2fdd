//! `LC_MAIN` after a move.

use super::fields;
use crate::address_map::AddressMap;
use reorder_base::error::Result;
use reorder_image::macho::entry::entry;
use reorder_image::macho::file::MachOFile;

/// Writes where `main` is now.
///
/// # Errors
/// A malformed command.
pub(super) fn move_entry(file: &MachOFile<'_>, map: &AddressMap, output: &mut [u8]) -> Result<()> {
    match entry(file)? {
        Some(entry) => {
            let offset = map.map(entry.address).0.wrapping_sub(file.base().0);
            fields::write_long(output, entry.field, offset)
        }
        None => Ok(()),
    }
}
