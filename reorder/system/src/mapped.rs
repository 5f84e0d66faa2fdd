//! Input files, mapped into memory.

use std::fs::{File, Metadata};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use reorder_base::error::{Error, Result};

/// The bytes of a file, and what identifies the file.
#[derive(Debug)]
pub struct MappedImage {
    bytes: Mmap,
    path: PathBuf,
    state: State,
}

/// Metadata that changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    size: u64,
    written: (i64, i64),
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Maps `path` read-only.
///
/// # Errors
/// When it cannot be opened or mapped; an empty file maps to no bytes.
pub fn map_image(path: &Path) -> Result<MappedImage> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io(path, error))?;
    if !metadata.is_file() {
        return Err(Error::usage("not a regular file")
            .in_file(path)
            .with_hint("name the file itself, not its directory or a device"));
    }
    // SAFETY: the mapping is private and read-only. If another process truncates the file, SIGBUS ends this process, and
    // no output is left incomplete, because outputs are renamed only when they are complete. If the file is rewritten in
    // place, the bytes read are garbage, but the output is verified against the same bytes, so a wrong output cannot look
    // proven.
    let bytes = unsafe { Mmap::map(&file) }.map_err(|error| Error::io(path, error))?;
    Ok(MappedImage { bytes, path: path.to_path_buf(), state: State::of(&metadata) })
}

impl MappedImage {
    /// Fails if the file is no longer the one that was mapped. Called before an output takes its name: if that is the
    /// input's, it would otherwise overwrite what another process has just written.
    ///
    /// # Errors
    /// The file was written, replaced or removed since it was mapped.
    pub fn unchanged(&self) -> Result<()> {
        let is_same = std::fs::metadata(&self.path).is_ok_and(|now| State::of(&now) == self.state);
        if is_same {
            return Ok(());
        }
        Err(Error::usage("the file was changed while it was read")
            .in_file(&self.path)
            .with_hint("run the command again when no other process writes this file"))
    }

    /// `result`; but if it is an error and the file has changed, that change as the error, since it explains the other.
    ///
    /// # Errors
    /// That of `result`, or the change.
    pub fn explaining<T>(&self, result: Result<T>) -> Result<T> {
        result.or_else(|error| self.unchanged().and(Err(error)))
    }
}

impl Deref for MappedImage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::map_image;

    #[test]
    fn a_file_that_is_written_replaced_or_removed_is_noticed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("image");
        let other = directory.path().join("other");
        std::fs::write(&path, b"first").expect("a file");
        let mapped = map_image(&path).expect("a file");
        assert_eq!((&mapped[..], mapped.unchanged().is_ok()), (&b"first"[..], true));
        std::fs::write(&other, b"first").expect("a file");
        std::fs::rename(&other, &path).expect("one file system");
        let error = mapped.unchanged().expect_err("another file of the same contents").to_string();
        assert!(error.contains("changed while it was read"), "{error}");
        let mapped = map_image(&path).expect("a file");
        std::fs::write(&path, b"longer contents").expect("a file");
        assert!(mapped.unchanged().is_err());
        std::fs::remove_file(&path).expect("it is there");
        assert!(mapped.explaining::<()>(Err(reorder_base::error::Error::usage("other"))).is_err());
    }
}
