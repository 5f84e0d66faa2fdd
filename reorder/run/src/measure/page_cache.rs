//! A program file and its share of the page cache.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::FsType;
use nix::unistd::{SysconfVar, sysconf};

use super::cached_file::CachedFile;
use crate::processor;
use crate::runnable;
use reorder_base::error::{Error, Result};
use reorder_base::hint::{Hint, RecordedUse, RunPurpose};
use reorder_image::elf::file::ElfFile;
use reorder_system::PAGE_BYTES;
use reorder_system::residence::Residence;

/// The number that statfs(2) gives for ramfs.
const RAMFS: FsType = FsType(0x8584_58f6);

/// An executable whose page cache can be emptied and inspected.
#[derive(Debug)]
pub(super) struct ProgramFile {
    cached: CachedFile,
    text: Vec<Range<u64>>,
}

/// Kernels for AArch64 may have larger pages.
fn check_page_size() -> Result<()> {
    match sysconf(SysconfVar::PAGE_SIZE) {
        Ok(Some(size)) if size.cast_unsigned() != PAGE_BYTES => Err(Error::usage(format!(
            "this system has pages of {size} bytes, and only those of {PAGE_BYTES} are measured"
        ))
        .with_hint(Hint::Simulate)),
        _ => Ok(()),
    }
}

impl ProgramFile {
    /// Opens an ELF program.
    pub(super) fn open(path: &Path) -> Result<Self> {
        runnable::check(path, RecordedUse::Compare)?;
        processor::check_program(path, RunPurpose::Measure)?;
        check_page_size()?;
        let cached = CachedFile::open(path)?;
        // Read through another mapping than the one that is inspected.
        let read = Residence::map(cached.file()).map_err(|error| Error::io(path, error))?;
        let text = text_ranges(&read).map_err(|error| error.in_file(path))?;
        Ok(Self { cached, text })
    }

    pub(super) fn path(&self) -> &Path {
        self.cached.path()
    }

    /// Size of the executable segments.
    pub(super) fn text_bytes(&self) -> u64 {
        self.text.iter().map(|range| range.end - range.start).sum()
    }

    /// As [`CachedFile::try_evict`].
    pub(super) fn try_evict(&self) -> Result<bool> {
        self.cached.try_evict()
    }

    /// As [`CachedFile::evict`].
    pub(super) fn evict(&self) -> Result<()> {
        self.cached.evict()
    }

    /// Text pages in the page cache, by their place in the file.
    pub(super) fn resident_text(&self) -> Result<BTreeSet<u64>> {
        let resident = self.cached.resident_pages()?;
        let cached = |page: &u64| resident.get(*page as usize).copied().unwrap_or(false);
        Ok(self.text_page_numbers().filter(cached).map(|page| page * PAGE_BYTES).collect())
    }

    /// Drops the pages that loading the program has read in: those that no process has mapped. Whether all text is gone.
    pub(super) fn drop_unmapped_text(&self) -> Result<bool> {
        self.cached.drop_until(|| Ok(self.resident_text()?.is_empty()))
    }

    /// Whether the file is on a file system that has no disk under its page cache.
    pub(super) fn is_in_memory(&self) -> bool {
        let Ok(system) = nix::sys::statfs::fstatfs(self.cached.file()) else { return false };
        [nix::sys::statfs::TMPFS_MAGIC, RAMFS].contains(&system.filesystem_type())
    }

    /// Pages of the file that hold text, in file order.
    fn text_page_numbers(&self) -> impl Iterator<Item = u64> {
        self.text.iter().flat_map(|range| range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES))
    }

    /// Bytes that the kernel reads at once from the device under this file, and where it says so.
    pub(super) fn read_ahead(&self) -> Option<(u64, PathBuf)> {
        read_ahead(self.cached.file())
    }
}

/// Bytes that the kernel reads at once from the device under `file`, and where it says so.
pub(super) fn read_ahead(file: &File) -> Option<(u64, PathBuf)> {
    let device = file.metadata().ok()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let setting = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let kibibytes: u64 = std::fs::read_to_string(&setting).ok()?.trim().parse().ok()?;
    Some((kibibytes.checked_mul(1024)?, setting))
}

/// File ranges of the executable segments.
fn text_ranges(bytes: &[u8]) -> Result<Vec<Range<u64>>> {
    let image = ElfFile::parse(bytes)?;
    let text = image.segments.iter().filter(|segment| segment.is_load() && segment.is_executable());
    // The parser has checked that segments end inside the file, so the sum does not overflow.
    Ok(text.map(|segment| segment.offset.0..segment.offset.0 + segment.file_size).collect())
}
