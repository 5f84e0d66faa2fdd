//! Which pages of a file the page cache holds.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;

use memmap2::Mmap;

use crate::PAGE_BYTES;

/// Writes the file's changed pages to the disk and waits for that, but not for the disk's own cache and the file system's
/// journal, which may wait for all that others write.
///
/// # Errors
/// When they cannot be written.
pub fn write_back(file: &File) -> io::Result<()> {
    const WRITE_AND_WAIT: libc::c_uint =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open as long as `file` lives, and the call touches no memory of this process.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, WRITE_AND_WAIT) } {
        0 => Ok(()),
        // File systems that cannot write parts of a file.
        _ => file.sync_data(),
    }
}

/// A mapping of a file to ask about its pages. Pages that this process read through it cannot be dropped from the cache, so the
/// one that is asked should not be the one that is read.
#[derive(Debug)]
pub struct Residence(Mmap);

impl Residence {
    /// Maps the whole file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is read by the ELF parser and asked for residency, which reads no contents. A file cut
        // short meanwhile ends this process with SIGBUS, which harms nothing but the measurement.
        unsafe { Mmap::map(file) }.map(Self)
    }

    /// For each page of the file, whether the page cache holds it.
    ///
    /// # Errors
    /// When the system refuses, such as for files of others.
    pub fn resident_pages(&self) -> io::Result<Vec<bool>> {
        let length = self.0.len();
        let mut pages = vec![0_u8; length.div_ceil(PAGE_BYTES as usize)];
        // SAFETY: the address and the length are those of a live mapping, and the vector has a byte per page.
        match unsafe { libc::mincore(self.0.as_ptr().cast_mut().cast(), length, pages.as_mut_ptr()) } {
            0 => Ok(pages.into_iter().map(|page| page & 1 != 0).collect()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for Residence {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
