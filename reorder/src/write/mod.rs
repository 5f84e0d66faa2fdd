//! Files appear whole or not at all.
//!
//! In: bytes and a path. Out: the file under its name. Guarantees: whoever opens the path sees the old contents or
//! the new ones, never a mixture; an existing file that is mapped or running keeps its own inode; on an error the
//! old file is untouched and nothing else stays. A process killed half-way may leave a `.NAME.reorder-*` file
//! beside the target, never a partial target.

mod attributes;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// As many links as Linux itself follows before it reports a loop.
const MAX_LINKS: usize = 40;

/// How [`replace`] treats an existing output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaceOptions {
    /// Allow the output to be the file that the metadata comes from.
    pub in_place: bool,
}

/// Something that the new file could not take over, or that the user may not expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// The output had other names; they keep the old contents.
    HardLinks {
        /// Names of the old file besides the output.
        other_names: u64,
    },
    /// Owner or group belong to somebody else; set-id bits are dropped then.
    OwnerNotKept {
        /// What the system answered.
        reason: String,
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
    /// The new name may be lost if the machine fails within the next seconds.
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
            Self::OwnerNotKept { reason } => {
                write!(formatter, "owner and group could not be kept ({reason}); set-id bits are dropped")
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
/// A symbolic link at `output` stays; its target is replaced.
///
/// # Errors
/// Usage when `output` is `like` (unless in place) or not a regular file; I/O when the system refuses.
pub fn replace(output: &Path, like: &Path, bytes: &[u8], options: ReplaceOptions) -> Result<Vec<Warning>> {
    let target = resolve_links(output)?;
    let like_file = File::open(like).map_err(|error| Error::io(like, error))?;
    let like_metadata = like_file.metadata().map_err(|error| Error::io(like, error))?;
    let mut warnings = Vec::new();
    if let Some(old) = existing(&target)? {
        check_replaceable(output, &old, like, &like_metadata, options)?;
        if old.nlink() > 1 {
            warnings.push(Warning::HardLinks { other_names: old.nlink() - 1 });
        }
    }
    // Until the owner is right nobody else may read what may be a private program: 0600.
    let temporary = write_beside(&target, bytes, Permissions::from_mode(0o600))?;
    attributes::copy(&like_file, &like_metadata, temporary.as_file(), &mut warnings)
        .map_err(|error| Error::io(&target, error))?;
    warnings.extend(publish(temporary, &target)?);
    Ok(warnings)
}

/// Writes `bytes` to `path`, keeping the mode of a file that is already there.
///
/// Devices and pipes, such as `/dev/stdout`, are written directly: they cannot be replaced.
///
/// # Errors
/// I/O when the system refuses.
pub fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let target = resolve_links(path)?;
    let old = existing(&target)?;
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return std::fs::write(&target, bytes).map_err(|error| Error::io(path, error));
    }
    // The process's umask applies to the mode of a new file only, as with any file that a program creates.
    let temporary = write_beside(&target, bytes, Permissions::from_mode(0o666))?;
    if let Some(old) = old {
        let kept = temporary.as_file().set_permissions(old.permissions());
        kept.map_err(|error| Error::io(path, error))?;
    }
    publish(temporary, &target)?;
    Ok(())
}

/// Finds out before long work whether [`whole`] could write `path`.
///
/// # Errors
/// See [`Place::of`].
pub fn writable(path: &Path) -> Result<()> {
    Place::of(path).map(drop)
}

/// Where a file is or will be: equal for all its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device and number of a file that exists.
    File(u64, u64),
    /// Directory, by device and number, and name of one that does not exist yet.
    New(u64, u64, OsString),
}

impl Place {
    /// Where a file is that exists.
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
            .with_hint("give the path of a file with -o FILE"));
    }
    let same = (old.dev(), old.ino()) == (like_metadata.dev(), like_metadata.ino());
    if same && !options.in_place {
        return Err(Error::usage(format!("the output is the input {}", like.display()))
            .in_file(output)
            .with_hint("give another -o FILE, or say --in-place"));
    }
    Ok(())
}

/// The directory that holds `path`; `.` for a bare name.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A synchronised temporary file in the target's own directory, so that it can take the target's name.
fn write_beside(target: &Path, bytes: &[u8], permissions: Permissions) -> Result<NamedTempFile> {
    let name = target.file_name().ok_or_else(|| {
        Error::usage("the output has no file name").in_file(target).with_hint("give a path with -o FILE")
    })?;
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    prefix.push(".reorder-");
    let mut temporary = tempfile::Builder::new()
        .prefix(&prefix)
        .permissions(permissions)
        .tempfile_in(directory_of(target))
        .map_err(|error| Error::io(directory_of(target), error))?;
    let written = temporary.write_all(bytes).and_then(|()| temporary.as_file().sync_all());
    written.map_err(|error| Error::io(target, error))?;
    Ok(temporary)
}

/// Gives the temporary file its name, and makes the name survive a crash.
fn publish(temporary: NamedTempFile, target: &Path) -> Result<Option<Warning>> {
    // Mode, owner and attributes changed after the contents were synchronised.
    temporary.as_file().sync_all().map_err(|error| Error::io(target, error))?;
    temporary.persist(target).map_err(|error| Error::io(target, error.error))?;
    let synchronised = File::open(directory_of(target)).and_then(|directory| directory.sync_all());
    Ok(synchronised.err().map(|error| Warning::NotDurable { reason: error.to_string() }))
}
