//! An image that has copies already: it is led back in memory, so that new copies replace the old ones.

use crate::elf::copies::{no_way_back, restored};
use reorder_base::error::Result;
use reorder_image::elf::file::ElfFile;
use reorder_verify::{VerifyOptions, verify};

/// The image without the copies that `file` has; `None` if it has none. That the image is this one with copies is proven.
///
/// # Errors
/// Refuses (R13) an image with copies that cannot be led back, such as after another tool rewrote it.
pub fn without_earlier_copies(file: &ElfFile<'_>) -> Result<Option<Vec<u8>>> {
    let Some(whole) = restored(file)? else { return Ok(None) };
    let is_proven =
        verify(&whole, file.bytes, VerifyOptions::default()).is_ok_and(|report| report.is_proven());
    match is_proven {
        true => Ok(Some(whole)),
        false => Err(no_way_back().into()),
    }
}
