//! Which files are run: fresh private copies where possible, else the given ones.

use std::ops::Range;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::page_cache::ProgramFile;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// One program or two, the old one first, ready to run.
#[derive(Debug)]
pub(super) struct Programs {
    files: Vec<ProgramFile>,
    shown: Vec<PathBuf>,
    status: String,
    /// Removed when this value is dropped, after the runs.
    copies: Option<TempDir>,
    cold: bool,
}

impl Programs {
    /// Opens them and decides which files run.
    ///
    /// Cold starts are made with fresh copies, because the place and age of a file on the disk affect
    /// how fast it is read. A program that `ends` differently as a copy (it looks for files next to itself)
    /// is run in place. `ends` runs a program once and returns how it ended.
    pub(super) fn prepare(
        shown: Vec<PathBuf>,
        warm: bool,
        ends: &dyn Fn(&ProgramFile) -> Result<String>,
    ) -> Result<Self> {
        let files = shown.iter().map(|path| ProgramFile::open(path)).collect::<Result<Vec<_>>>()?;
        let (Some(old), Some(last)) = (files.first(), shown.last()) else {
            return Err(Error::usage("no program is given").with_hint(Hint::MeasureProgram));
        };
        let status = ends(old)?;
        if warm {
            return Ok(Self { files, shown, status, copies: None, cold: false });
        }
        let directory = private_directory(last)?;
        let sides = shown.iter().zip(["old", "new"]);
        let copies =
            sides.map(|(path, side)| copy(path, directory.path(), side)).collect::<Result<Vec<_>>>()?;
        if all_evictable(&copies)? && ends(&copies[0])? == status {
            return Ok(Self { files: copies, shown, status, copies: Some(directory), cold: true });
        }
        let cold = all_evictable(&files)?;
        Ok(Self { files, shown, status, copies: None, cold })
    }

    /// How the old program ends in its own place; every run must end this way.
    pub(super) fn status(&self) -> &str {
        &self.status
    }

    pub(super) fn file(&self, index: usize) -> &ProgramFile {
        &self.files[index]
    }

    /// The program under test: the new one, if there are two.
    pub(super) fn last(&self) -> &ProgramFile {
        &self.files[self.files.len() - 1]
    }

    /// Positions, old first.
    pub(super) fn indices(&self) -> Range<usize> {
        0..self.files.len()
    }

    /// The path as the user gave it.
    pub(super) fn shown(&self, index: usize) -> &Path {
        &self.shown[index]
    }

    /// Whether starts are cold.
    pub(super) fn cold(&self) -> bool {
        self.cold
    }

    /// Whether the files that run are copies.
    pub(super) fn copied(&self) -> bool {
        self.copies.is_some()
    }
}

fn all_evictable(files: &[ProgramFile]) -> Result<bool> {
    for file in files {
        if !file.try_evict()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Next to the new program, whose directory is writable and more likely on a real disk than the system's temporary
/// directory; else in the latter.
pub(super) fn private_directory(new: &Path) -> Result<TempDir> {
    let beside = new.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".reorder-measure-");
    builder
        .tempdir_in(beside)
        .or_else(|_| builder.tempdir())
        .map_err(|error| Error::io(&std::env::temp_dir(), error))
}

/// Copies keep their file name, because programs inspect it, in a directory of their own.
pub(super) fn copy(program: &Path, directory: &Path, side: &str) -> Result<ProgramFile> {
    let directory = directory.join(side);
    std::fs::create_dir(&directory).map_err(|error| Error::io(&directory, error))?;
    let name = program.file_name().ok_or_else(|| Error::usage("not a file").in_file(program))?;
    let path = directory.join(name);
    // `fs::copy` keeps the mode; a copy made by sharing blocks still has a page cache of its own.
    std::fs::copy(program, &path).map_err(|error| Error::io(&path, error))?;
    ProgramFile::open(&path)
}
