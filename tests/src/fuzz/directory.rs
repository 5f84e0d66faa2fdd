//! A directory on disk for the formats that are directories.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Holds its files until it is dropped.
pub(super) struct Directory(PathBuf);

impl Directory {
    /// A directory with files of these names and contents; names that lead out of it are skipped.
    pub(super) fn of(files: &[(&str, &[u8])]) -> Self {
        let directory = std::env::temp_dir().join(format!("reorder-fuzz-{}", std::process::id()));
        // A process that was killed may have left one.
        drop(std::fs::remove_dir_all(&directory));
        std::fs::create_dir(&directory).expect("a directory for the input's files");
        for (name, contents) in
            files.iter().filter(|(name, _)| Path::new(name).file_name() == Some(OsStr::new(name)))
        {
            // Names can be too long, or contain a zero byte.
            drop(std::fs::write(directory.join(name), contents));
        }
        Self(directory)
    }

    /// Path of the file that stands for the directory.
    pub(super) fn file(&self) -> PathBuf {
        self.0.join("file")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
