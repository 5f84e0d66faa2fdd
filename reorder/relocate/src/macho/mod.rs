//! Order → new addresses → patched bytes, for one Mach-O image.
//!
//! In: image, analysis, wanted order. Out: the new image's bytes and the address map. Code and data are rewritten first
//! ([`move_code_and_data`]); then the tables follow and the image is signed ([`finish::finish`]). `verify` decides
//! whether the result is right.

pub mod code;
pub mod data;
mod entry;
mod fields;
pub mod finish;
mod identity;
mod link_edit;
pub mod plan;
mod runs;
mod signature;
mod symbols;
#[cfg(test)]
mod tests;
pub mod unwind;

use crate::address_map::AddressMap;
use reorder_base::error::Result;
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;

/// The image with its code and data rewritten; `__LINKEDIT`, unwind information and identity are as before.
///
/// # Errors
/// An address field that does not reach its target.
pub fn move_code_and_data(
    file: &MachOFile<'_>,
    analysis: &MachOAnalysis,
    map: &AddressMap,
) -> Result<Vec<u8>> {
    let mut output = file.bytes.to_vec();
    code::move_code(file, analysis, map, &mut output)?;
    data::move_data(file, analysis, map, &mut output)?;
    Ok(output)
}
