//! Where the functions of an image are in another that claims to be the same with its functions moved.

use std::path::Path;

use crate::error::Result;
use crate::image::mapped::map_image;
use crate::verify::{AddressMoves, recover_moves_for};

/// The moves from the image `bytes` at `path` to the one at `new`; of universal files between the images for
/// `architecture`.
///
/// # Errors
/// An unreadable file at `new`, or one that is not the same image with functions moved.
pub(super) fn recovered(
    path: &Path,
    bytes: &[u8],
    new: &Path,
    architecture: Option<&str>,
) -> Result<AddressMoves> {
    recover_moves_for(bytes, &map_image(new)?, architecture).map_err(|error| {
        error.in_file(new).with_hint(format!("give an image that `reorder apply` made of {}", path.display()))
    })
}
