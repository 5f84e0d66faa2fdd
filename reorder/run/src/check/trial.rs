//! Where a result is tried before it gets its name: in the same directory, so that it finds the same files relative to it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempDir, TempPath};

use reorder_base::error::{Error, Result};
use reorder_system::interruption::Interruption;
use reorder_system::write::directory_of;

/// Files that hold the original at one time and the result at another; they are removed when the value is dropped, and
/// signals that would end this process wait until then.
#[derive(Debug)]
pub struct Trial<'run> {
    files: Vec<(PathBuf, TrialFile<'run>)>,
    environment: Vec<(OsString, OsString)>,
    _kept: Kept,
    // Fields are dropped in order: a signal takes effect after the files are gone.
    _interruption: Interruption,
}

/// One file, in both versions.
#[derive(Clone, Copy, Debug)]
pub struct TrialFile<'run> {
    /// As it was.
    pub original: &'run [u8],
    /// As it is to be.
    pub result: &'run [u8],
}

/// Whose files are in the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Copies of what was there before.
    Original,
    /// What was made of it.
    Result,
}

#[derive(Debug)]
enum Kept {
    File { _path: TempPath },
    Folder { _folder: TempDir },
}

const PREFIX: &str = ".reorder-check-";

impl<'run> Trial<'run> {
    /// Of one program that is to be `output`, in the same directory.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn beside(output: &Path, file: TrialFile<'run>) -> Result<Self> {
        let interruption = Interruption::note();
        let folder = directory_of(output);
        let place =
            Builder::new().prefix(PREFIX).tempfile_in(folder).map_err(|error| Error::io(folder, error))?;
        let place = place.into_temp_path();
        let files = vec![(place.to_path_buf(), file)];
        Ok(Self {
            files,
            environment: Vec::new(),
            _kept: Kept::File { _path: place },
            _interruption: interruption,
        })
    }

    /// Of several files of `directory`, the program first, in a directory next to it; `environment` is made of its path.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn of_set(
        directory: &Path,
        files: impl IntoIterator<Item = (OsString, TrialFile<'run>)>,
        environment: impl FnOnce(&Path) -> Result<Vec<(OsString, OsString)>>,
    ) -> Result<Self> {
        let interruption = Interruption::note();
        let parent = directory_of(directory);
        let folder =
            Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(|error| Error::io(parent, error))?;
        let files = files.into_iter().map(|(name, file)| (folder.path().join(name), file)).collect();
        let environment = environment(folder.path())?;
        Ok(Self { files, environment, _kept: Kept::Folder { _folder: folder }, _interruption: interruption })
    }

    /// The program's path.
    #[must_use]
    pub fn program(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |(path, _)| path)
    }

    /// Variables that it needs there.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// Puts the files of one version there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn place(&self, version: Version) -> Result<()> {
        for (path, file) in &self.files {
            let bytes = match version {
                Version::Original => file.original,
                Version::Result => file.result,
            };
            replace(path, bytes).map_err(|error| Error::io(path, error))?;
        }
        Ok(())
    }
}

/// A new file each time: what a run left may still have the former one open.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // No other user may run what is not checked yet.
    OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)?.write_all(bytes)
}
