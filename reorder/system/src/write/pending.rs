//! Writes several files completely before the first of them is renamed.
//!
//! In: paths and bytes. Out: files beside their places, then under their names: all of them, or on an error none. Lack
//! of space or permission shows while they are written, before any rename; if a rename fails after all, the earlier ones are
//! undone.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::NixPath as _;
use nix::errno::Errno;
use tempfile::{NamedTempFile, TempPath};

use super::{ReplaceOptions, Warning, attributes, check_replaceable, directory_of, existing, resolve_links};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// A file that is written but not yet renamed; dropping it removes it.
#[derive(Debug)]
pub struct Pending {
    target: PathBuf,
    contents: Contents,
    warnings: Vec<Warning>,
}

#[derive(Debug)]
enum Contents {
    /// Written and synchronised, beside the target.
    File(NamedTempFile),
    /// For a device or a pipe, which cannot be replaced.
    Direct(Vec<u8>),
}

impl Pending {
    /// As [`super::replace`].
    ///
    /// # Errors
    /// As [`super::replace`].
    pub fn replacing(output: &Path, like: &Path, bytes: &[u8], options: ReplaceOptions) -> Result<Self> {
        let target = resolve_links(output)?;
        let like_file = File::open(like).map_err(|error| Error::io(like, error))?;
        let like_metadata = like_file.metadata().map_err(|error| Error::io(like, error))?;
        let mut warnings = Vec::new();
        let mut is_copy = true;
        if let Some(old) = existing(&target)? {
            check_replaceable(output, &old, like, &like_metadata, options)?;
            is_copy = (old.dev(), old.ino()) != (like_metadata.dev(), like_metadata.ino());
            if old.nlink() > 1 {
                warnings.push(Warning::HardLinks { other_names: old.nlink() - 1 });
            }
        }
        // The program may be private: until its owner is set, only this user may read it (0600).
        let temporary = write_beside(&target, bytes, Permissions::from_mode(0o600))?;
        attributes::copy(&like_file, &like_metadata, temporary.as_file(), is_copy, &mut warnings)
            .and_then(|()| temporary.as_file().sync_all())
            .map_err(|error| Error::io(&target, error))?;
        Ok(Self { target, contents: Contents::File(temporary), warnings })
    }

    /// As [`super::whole`].
    ///
    /// # Errors
    /// As [`super::whole`].
    pub fn whole(path: &Path, bytes: &[u8]) -> Result<Self> {
        let target = resolve_links(path)?;
        let old = existing(&target)?;
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self { target, contents: Contents::Direct(bytes.to_vec()), warnings: Vec::new() });
        }
        // The process's umask applies to the mode of a new file only, as with any file that a program creates.
        let temporary = write_beside(&target, bytes, Permissions::from_mode(0o666))?;
        if let Some(old) = old {
            let kept = temporary.as_file().set_permissions(old.permissions());
            kept.and_then(|()| temporary.as_file().sync_all()).map_err(|error| Error::io(path, error))?;
        }
        Ok(Self { target, contents: Contents::File(temporary), warnings: Vec::new() })
    }
}

/// Renames all `files`, or none of them.
///
/// # Errors
/// I/O when the system refuses one.
pub fn together(files: Vec<Pending>) -> Result<Vec<Warning>> {
    give_all(files, None)
}

/// [`together`], but undoes all renames if `check` fails with the files in their places.
///
/// # Errors
/// As there, and those of `check`. Old contents are lost then on file systems that cannot exchange names.
pub fn together_if(files: Vec<Pending>, check: impl FnOnce() -> Result<()>) -> Result<Vec<Warning>> {
    give_all(files, Some(Box::new(check)))
}

/// Looks at files in their places.
type Check<'run> = Box<dyn FnOnce() -> Result<()> + 'run>;

fn give_all(files: Vec<Pending>, check: Option<Check<'_>>) -> Result<Vec<Warning>> {
    let mut warnings = Vec::new();
    let mut given = Given::default();
    let (direct, mut written): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| matches!(file.contents, Contents::Direct(_)));
    let last = if check.is_none() { written.pop() } else { None };
    for Pending { target, contents, .. } in direct {
        if let Contents::Direct(bytes) = contents {
            std::fs::write(&target, bytes).map_err(|error| Error::io(&target, error))?;
        }
    }
    let mut directories: Vec<PathBuf> = Vec::new();
    let mut take = |file: &mut Pending| {
        warnings.append(&mut file.warnings);
        directories.push(directory_of(&file.target).to_path_buf());
    };
    for mut file in written {
        take(&mut file);
        if let Contents::File(temporary) = file.contents {
            given.give(temporary, file.target)?;
        }
    }
    if let Some(mut file) = last {
        take(&mut file);
        // No later step can fail, so the old contents need not be kept.
        if let Contents::File(temporary) = file.contents {
            temporary.persist(&file.target).map_err(|error| Error::io(&file.target, error.error))?;
        }
    }
    check.map_or(Ok(()), |check| check())?;
    given.keep();
    directories.sort_unstable();
    directories.dedup();
    // The names shall survive a crash.
    let synchronised = |directory: &PathBuf| File::open(directory).and_then(|directory| directory.sync_all());
    let failed = directories.iter().filter_map(|directory| synchronised(directory).err());
    warnings.extend(failed.map(|error| Warning::NotDurable { reason: error.to_string() }));
    Ok(warnings)
}

/// Renames that can be undone; dropping undoes them.
#[derive(Debug, Default)]
struct Given(Vec<(PathBuf, Before)>);

/// What had the name before.
#[derive(Debug)]
enum Before {
    /// Nothing.
    Nothing,
    /// This file, under its temporary name.
    File(TempPath),
    /// A file whose contents are lost, because this file system cannot exchange two names.
    Gone,
}

/// Exchanges two names atomically. `nix` wraps this system call for glibc only.
fn exchange(first: &Path, second: &Path) -> nix::Result<()> {
    let exchanged = first.with_nix_path(|first| {
        second.with_nix_path(|second| {
            let (here, first, second) = (libc::AT_FDCWD, first.as_ptr(), second.as_ptr());
            // SAFETY: both are strings that end with a zero byte and outlive the call, which writes no memory.
            unsafe { libc::syscall(libc::SYS_renameat2, here, first, here, second, libc::RENAME_EXCHANGE) }
        })
    })??;
    Errno::result(exchanged).map(drop)
}

impl Given {
    fn give(&mut self, temporary: NamedTempFile, target: PathBuf) -> Result<()> {
        let temporary = temporary.into_temp_path();
        let exchanged = exchange(&temporary, &target);
        let before = match exchanged {
            Ok(()) => Before::File(temporary),
            // No file of that name, or a file system without exchange.
            Err(Errno::ENOENT | Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                let before = if target.exists() { Before::Gone } else { Before::Nothing };
                temporary.persist(&target).map_err(|error| Error::io(&target, error.error))?;
                before
            }
            Err(error) => return Err(Error::io(&target, error.into())),
        };
        self.0.push((target, before));
        Ok(())
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for (target, before) in self.0.drain(..).rev() {
            // The first failure is being reported already; a second one here cannot be repaired.
            let _ = match before {
                Before::Nothing => std::fs::remove_file(&target),
                Before::File(old) => old.persist(&target).map_err(|error| error.error),
                Before::Gone => Ok(()),
            };
        }
    }
}

/// A synchronised temporary file in the target's own directory, so that it can take the target's name.
fn write_beside(target: &Path, bytes: &[u8], permissions: Permissions) -> Result<NamedTempFile> {
    let name = target.file_name().ok_or_else(|| {
        Error::usage("the output has no file name").in_file(target).with_hint(Hint::OutputFile)
    })?;
    let mut prefix = OsString::from(".");
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
