//! Input files as bytes, without a copy.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{Error, Result};

/// Maps `path` read-only.
///
/// # Errors
/// When it cannot be opened or mapped; an empty file maps to no bytes.
pub fn map_image(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io(path, error))?;
    if !metadata.is_file() {
        return Err(Error::usage("not a regular file").in_file(path));
    }
    // SAFETY: the mapping is private and read-only. A file that another process truncates meanwhile ends this
    // process by SIGBUS, before any output exists; one that is rewritten in place gives garbage, which the
    // verification of the output against the same bytes cannot turn into a wrong output that looks proven.
    unsafe { Mmap::map(&file) }.map_err(|error| Error::io(path, error))
}
