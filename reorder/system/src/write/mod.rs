//! Files appear whole or not at all.
//!
//! In: bytes and a path. Out: the file under its name. Guarantees: whoever opens the path sees the old contents or
//! the new ones, never a mixture; an existing file that is mapped or running keeps its own inode; on an error the
//! old file is untouched and no other file is left; the same holds for several files that belong together. A process killed
//! half-way may leave a `.NAME.reorder-*` file beside the target, never a partial target.

mod attributes;
mod pending;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
pub use pending::{Pending, together, together_if};
use serde::Serialize;

use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// The number of links that Linux follows before it reports a loop.
const MAX_LINKS: usize = 40;

/// How [`replace`] treats an existing output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaceOptions {
    /// Allow the output to be the file that the metadata comes from.
    pub in_place: bool,
}

/// Something that could not be kept, or that the user may not expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// The old file has other hard links; they keep the old contents.
    HardLinks {
        /// Names of the old file besides the output.
        other_names: u64,
    },
    /// Owner or group could not be kept.
    OwnerNotKept {
        /// What the system answered.
        reason: String,
        /// Whether the mode had set-id bits, which are dropped then.
        drops_set_id: bool,
    },
    /// The output is one more program that runs with rights which its user need not have.
    RightsKept {
        /// What gives them.
        what: String,
    },
    /// An extended attribute could not be set.
    AttributeNotKept {
        /// Its name.
        name: String,
        /// What the system answered.
        reason: String,
    },
    /// An extended attribute that signs the old contents was left out.
    SignatureDropped {
        /// Its name.
        name: String,
    },
    /// The rename may be lost if the system crashes within the next seconds.
    NotDurable {
        /// What the system answered.
        reason: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HardLinks { other_names } => {
                write!(formatter, "the old file has {other_names} other name(s), which keep the old contents")
            }
            Self::OwnerNotKept { reason, drops_set_id } => {
                let set_id = if *drops_set_id { "; its set-id bits are dropped" } else { "" };
                write!(formatter, "owner and group could not be kept ({reason}){set_id}")
            }
            Self::RightsKept { what } => {
                write!(formatter, "the output has the input's {what}: whoever may run it gets those rights")
            }
            Self::AttributeNotKept { name, reason } => {
                write!(formatter, "the extended attribute {name} could not be kept ({reason})")
            }
            Self::SignatureDropped { name } => {
                write!(formatter, "{name} was left out: it signs the old contents")
            }
            Self::NotDurable { reason } => {
                write!(formatter, "the directory could not be synchronised ({reason})")
            }
        }
    }
}

/// Writes `bytes` to `output` with the owner, mode and extended attributes of `like`, but with new times.
///
/// A symbolic link at `output` is kept; its target is replaced.
///
/// # Errors
/// Usage when `output` is `like` (unless in place) or not a regular file; I/O when the system refuses.
pub fn replace(output: &Path, like: &Path, bytes: &[u8], options: ReplaceOptions) -> Result<Vec<Warning>> {
    together(vec![Pending::replacing(output, like, bytes, options)?])
}

/// Writes `bytes` to `path`, keeping the mode of a file that is already there.
///
/// Devices and pipes, such as `/dev/stdout`, are written directly: they cannot be replaced.
///
/// # Errors
/// I/O when the system refuses.
pub fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    together(vec![Pending::whole(path, bytes)?])?;
    Ok(())
}

/// Checks, before long work, whether [`whole`] could write `path`.
///
/// # Errors
/// See [`Place::of`].
pub fn writable(path: &Path) -> Result<()> {
    Place::of(path).map(drop)
}

/// Where a file is or will be; equal for all names of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device and inode of an existing file.
    File(u64, u64),
    /// For a file that does not exist yet: device and inode of its directory, and its name.
    New(u64, u64, OsString),
}

impl Place {
    /// The place of an existing file.
    #[must_use]
    pub fn of_file(file: &Metadata) -> Self {
        Self::File(file.dev(), file.ino())
    }

    /// Where [`whole`] would put `path`; `None` for what is written directly, such as devices and pipes.
    ///
    /// # Errors
    /// Paths that [`whole`] could not write: directories, and files in directories that do not exist or cannot be written.
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let target = resolve_links(path)?;
        let old = existing(&target)?;
        if old.as_ref().is_some_and(Metadata::is_dir) {
            return Err(Error::io(path, std::io::Error::from_raw_os_error(libc::EISDIR)));
        }
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(None);
        }
        let directory = directory_of(&target);
        let held = std::fs::metadata(directory).map_err(|error| Error::io(directory, error))?;
        // Also for a file that exists: it is replaced by a new one.
        access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
            .map_err(|error| Error::io(directory, error.into()))?;
        Ok(Some(match old {
            Some(old) => Self::of_file(&old),
            None => Self::New(held.dev(), held.ino(), target.file_name().unwrap_or_default().to_owned()),
        }))
    }
}

/// The path at the end of a chain of symbolic links; it need not exist.
pub(crate) fn resolve_links(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(next) = std::fs::read_link(&target) else { return Ok(target) };
        target = directory_of(&target).join(next);
    }
    Err(Error::io(path, std::io::Error::from_raw_os_error(libc::ELOOP)))
}

fn existing(target: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(target) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(target, error)),
    }
}

fn check_replaceable(
    output: &Path,
    old: &Metadata,
    like: &Path,
    like_metadata: &Metadata,
    options: ReplaceOptions,
) -> Result<()> {
    if !old.is_file() {
        return Err(Error::usage("the output exists and is not a regular file")
            .in_file(output)
            .with_hint(Hint::OutputFile));
    }
    let same = (old.dev(), old.ino()) == (like_metadata.dev(), like_metadata.ino());
    if same && !options.in_place {
        return Err(Error::usage(format!("the output is the input {}", like.display()))
            .in_file(output)
            .with_hint(Hint::OutputOrInPlace));
    }
    Ok(())
}

/// The directory that holds `path`; `.` for a bare name.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
