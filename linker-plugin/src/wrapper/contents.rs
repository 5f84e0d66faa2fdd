//! Digests of files, and stamps that show whether a file may have changed since.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of some contents, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Digest(pub(crate) String);

/// What the system knows of a file; the same stamp means the same contents, unless clocks are set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    bytes: u64,
    inode: u64,
    /// Nanoseconds since 1970. The time of change cannot be set by programs, the time of modification can.
    modified: i128,
    changed: i128,
}

impl Stamp {
    /// The stamp of the file at `path`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Ok(Self {
            bytes: metadata.size(),
            inode: metadata.ino(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The digest of a file's contents.
///
/// # Errors
/// The system's.
pub(crate) fn digest_of_file(path: &Path) -> Result<Digest> {
    let failed = |error| Error::io(path, error);
    let mut file = File::open(path).map_err(failed)?;
    let mut state = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(finish(state)),
            length => state.update(&buffer[..length]),
        }
    }
}

/// The digest of these contents; that of a file with them.
#[must_use]
pub(crate) fn digest_of(contents: &[u8]) -> Digest {
    finish(Sha256::new_with_prefix(contents))
}

/// The digest of several pieces of text, with their borders; `kind` separates the purposes of digests.
#[must_use]
pub(crate) fn digest_of_parts<'parts>(
    kind: &'parts str,
    parts: impl Iterator<Item = &'parts [u8]>,
) -> Digest {
    let mut state = Sha256::new();
    for part in std::iter::once(kind.as_bytes()).chain(parts) {
        state.update((part.len() as u64).to_le_bytes());
        state.update(part);
    }
    finish(state)
}

fn finish(state: Sha256) -> Digest {
    Digest(encode(&state.finalize()))
}
