//! The files of one run of `reorder gate`, and that none of them is overwritten by another.
//!
//! In: what is read and what will be written, by path. Out: nothing, or the two that are the same file. Files are the same
//! by device and inode; those that do not exist yet by their names in the same directory.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What a file is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRole {
    /// It is judged.
    Image,
    /// Its limits apply.
    Configuration,
    /// A start is read from it.
    Trace,
    /// Its lines are looked for.
    Order,
    /// It is measured for comparison.
    Old,
    /// It is compared with.
    Baseline,
    /// It is compared with, and written again.
    UpdatedBaseline,
    /// A form of the report is written to it.
    Export,
    /// The runner's file, which grows.
    Summary,
}

impl FileRole {
    /// Whether its contents are replaced.
    #[must_use]
    pub fn is_replaced(self) -> bool {
        matches!(self, Self::Export | Self::UpdatedBaseline)
    }

    fn is_written(self) -> bool {
        self.is_replaced() || self == Self::Summary
    }
}

impl fmt::Display for FileRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Image => "the image",
            Self::Configuration => "the configuration",
            Self::Trace => "a trace",
            Self::Order => "the order file",
            Self::Old => "the program to compare with",
            Self::Baseline | Self::UpdatedBaseline => "the baseline",
            Self::Export => "another output",
            Self::Summary => "the summary of the job",
        })
    }
}

/// What makes two paths the same file.
#[derive(PartialEq, Eq)]
enum Identity {
    Inode(u64, u64),
    Name(PathBuf, OsString),
}

/// Nothing for devices and pipes, which keep nothing, and for names in directories that do not exist.
fn identity(path: &Path) -> Option<Identity> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(Identity::Inode(metadata.dev(), metadata.ino())),
        Ok(_) => None,
        Err(_) => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(Identity::Name(directory, path.file_name()?.to_owned()))
        }
    }
}

/// Refuses two roles of one file when one of them writes it.
///
/// # Errors
/// Usage, with the path that would be overwritten and what it is.
pub fn refuse_overwriting(files: &[(FileRole, PathBuf)]) -> Result<()> {
    let identities: Vec<_> = files.iter().map(|(_, path)| identity(path)).collect();
    for (later, (role, path)) in files.iter().enumerate() {
        let is_same =
            |earlier: &usize| identities[later].is_some() && identities[*earlier] == identities[later];
        for earlier in (0..later).filter(is_same) {
            let (other, _) = &files[earlier];
            let also = match (role.is_written(), other.is_written()) {
                (true, _) => other,
                (false, true) => role,
                (false, false) => continue,
            };
            return Err(Error::usage(format!("the output is also {also}"))
                .in_file(path)
                .with_hint("give each output a file of its own: --export FORM=FILE, --baseline FILE"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn one_file_has_many_names() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("image"), "").unwrap();
        std::fs::hard_link(at("image"), at("hard")).unwrap();
        std::os::unix::fs::symlink("image", at("soft")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let refused = |one: &str, other: &str| {
            refuse_overwriting(&[(FileRole::Image, at(one)), (FileRole::Export, at(other))]).is_err()
        };
        for name in ["image", "hard", "soft", "folder/../image"] {
            assert!(refused("image", name), "{name}");
        }
        assert!(refused("new", "folder/../new"));
        assert!(!refused("image", "new") && !refused("new", "folder/new") && !refused("image", "no/image"));
        let read = [(FileRole::Trace, at("image")), (FileRole::Order, at("hard"))];
        assert!(refuse_overwriting(&read).is_ok(), "reading twice destroys nothing");
        let null = || (FileRole::Export, PathBuf::from("/dev/null"));
        assert!(refuse_overwriting(&[null(), null()]).is_ok());
    }
}
