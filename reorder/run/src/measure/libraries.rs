//! Libraries that are measured with a program: private copies of both versions, which the loader finds first.
//!
//! The installed ones are mapped by other processes, so their pages cannot be dropped from the page cache.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::cached_file::CachedFile;
use super::staging::private_directory;
use crate::loaded_libraries::SEARCH_PATH;
use reorder_base::error::{Error, Result};

/// A library that programs load by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryPair {
    /// The name that programs ask for.
    pub name: OsString,
    /// What the old program loads.
    pub old: PathBuf,
    /// What the new program loads.
    pub new: PathBuf,
}

/// Copies of the libraries, ready to be loaded; the old ones first. Without libraries there is nothing in it.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    sides: Vec<Side>,
    /// Removed when this value is dropped, after the runs.
    _copies: Option<TempDir>,
}

#[derive(Debug)]
struct Side {
    search_path: OsString,
    files: Vec<CachedFile>,
}

impl Libraries {
    /// Copies both versions of all libraries to a directory beside `program`, which is more likely on a real disk than others.
    pub(super) fn prepare(pairs: &[LibraryPair], program: &Path) -> Result<Self> {
        if pairs.is_empty() {
            return Ok(Self::default());
        }
        let copies = private_directory(program)?;
        let side = |name: &str, path_of: fn(&LibraryPair) -> &PathBuf| {
            let directory = copies.path().join(name);
            std::fs::create_dir(&directory).map_err(|error| Error::io(&directory, error))?;
            let copy = |pair: &LibraryPair| {
                let path = directory.join(&pair.name);
                std::fs::copy(path_of(pair), &path).map_err(|error| Error::io(&path, error))?;
                CachedFile::open(&path)
            };
            let files = pairs.iter().map(copy).collect::<Result<Vec<_>>>()?;
            let mut search_path = std::path::absolute(&directory)
                .map_err(|error| Error::io(&directory, error))?
                .into_os_string();
            if let Some(rest) = std::env::var_os(SEARCH_PATH).filter(|rest| !rest.is_empty()) {
                search_path.push(":");
                search_path.push(rest);
            }
            Ok::<_, Error>(Side { search_path, files })
        };
        let sides = vec![side("old", |pair| &pair.old)?, side("new", |pair| &pair.new)?];
        Ok(Self { sides, _copies: Some(copies) })
    }

    /// Where the loader finds those of program `index`.
    pub(super) fn search_path(&self, index: usize) -> Option<&OsStr> {
        self.sides.get(index).map(|side| side.search_path.as_os_str())
    }

    /// The copies for program `index`, each with the library that the old program loads in its place.
    pub(super) fn copies<'a>(
        &'a self,
        index: usize,
        pairs: &'a [LibraryPair],
    ) -> impl Iterator<Item = (&'a Path, &'a Path)> {
        let files = self.sides.get(index).into_iter().flat_map(|side| &side.files);
        files.map(CachedFile::path).zip(pairs.iter().map(|pair| pair.old.as_path()))
    }

    /// Empties the page cache of those of program `index`.
    pub(super) fn evict(&self, index: usize) -> Result<()> {
        self.sides.get(index).map_or(Ok(()), |side| side.files.iter().try_for_each(CachedFile::evict))
    }
}
