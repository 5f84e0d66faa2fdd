//! A file whose share of the page cache can be emptied and inspected.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_system::residence::{Residence, write_back};

/// Pages that another processor has just touched sit in its private list for a moment and cannot be dropped; a few
/// short waits are enough, and more would not help a file that another process maps.
const EVICTION_ATTEMPTS: u32 = 6;

/// An open file and a mapping of it that is never read: what this process had touched could not be dropped.
#[derive(Debug)]
pub(super) struct CachedFile {
    path: PathBuf,
    file: File,
    mapping: Residence,
}

impl CachedFile {
    /// Opens the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let file = File::open(path).map_err(io)?;
        let mapping = Residence::map(&file).map_err(io)?;
        Ok(Self { path: path.to_path_buf(), file, mapping })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// For each page of the file, whether it is in the page cache.
    pub(super) fn resident_pages(&self) -> Result<Vec<bool>> {
        self.mapping.resident_pages().map_err(|error| Error::io(&self.path, error))
    }

    /// Drops the file from the page cache and tells whether it is really gone.
    ///
    /// Pages that another process maps stay, and the kernel answers "resident" for every page of a file that
    /// another user owns, so `false` may also mean "cannot be known".
    pub(super) fn try_evict(&self) -> Result<bool> {
        if self.drop_pages()? {
            return Ok(true);
        }
        // Dirty pages cannot be dropped. Nothing has to outlive a crash, so the disk need not be flushed.
        write_back(&self.file).map_err(|error| Error::io(&self.path, error))?;
        self.drop_until(|| Ok(self.resident_pages()?.iter().all(|page| !page)))
    }

    /// Drops what can be dropped at once; whether nothing is left.
    fn drop_pages(&self) -> Result<bool> {
        posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .map_err(|error| Error::io(&self.path, error.into()))?;
        Ok(self.resident_pages()?.iter().all(|page| !page))
    }

    /// Empties a page cache that was emptied before.
    pub(super) fn evict(&self) -> Result<()> {
        if self.try_evict()? {
            return Ok(());
        }
        Err(Error::usage("the page cache cannot be emptied any more: another process started using the file")
            .in_file(&self.path)
            .with_hint(Hint::MeasureWarm))
    }

    /// Asks the kernel to drop the file's pages, a few times at most, until `is_done`; whether it is.
    pub(super) fn drop_until(&self, is_done: impl Fn() -> Result<bool>) -> Result<bool> {
        for attempt in 0..EVICTION_ATTEMPTS {
            posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                .map_err(|error| Error::io(&self.path, error.into()))?;
            if is_done()? {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(1 << attempt));
        }
        Ok(false)
    }
}
