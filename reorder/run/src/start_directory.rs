//! The directory that a program is started in.

use std::path::Path;

use reorder_base::error::{Error, Result};

/// Checks that a program can be started in `directory`: an error later, in the child, would be reported as the program's.
///
/// # Errors
/// A path that is not a directory or not accessible, with its name.
pub(crate) fn check(directory: &Path) -> Result<()> {
    use nix::unistd::{AccessFlags, access};
    let metadata = std::fs::metadata(directory).map_err(|error| Error::io(directory, error));
    let named = |error: Error| error.with_hint("this is the directory that the program would be started in");
    if !metadata.map_err(named)?.is_dir() {
        return Err(named(Error::io(directory, std::io::Error::from_raw_os_error(libc::ENOTDIR))));
    }
    access(directory, AccessFlags::X_OK).map_err(|error| named(Error::io(directory, error.into())))
}
