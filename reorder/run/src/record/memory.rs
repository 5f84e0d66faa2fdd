//! The memory and the mappings of a traced process.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use reorder_base::numbers::hexadecimal;

/// One address space, open for reading and writing regardless of the protection of its pages.
///
/// Writing gives the process a private copy of the page, as a debugger's breakpoint does; the file is never
/// touched.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    file: File,
}

impl ProcessMemory {
    /// Opens the memory that `task` has now; after it executes another program this still is the old memory.
    pub(super) fn open(task: Pid) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{task}/mem"))?;
        Ok(Self { file })
    }

    /// Fills `bytes` from `address` on.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, address)
    }

    /// Writes `bytes` from `address` on.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }

    /// The mark that the system gave the program of `task`, whose memory this is; `None` for 32-bit programs.
    pub(super) fn program_mark(&self, task: Pid) -> Option<ProgramMark> {
        let vector = fs::read(format!("/proc/{task}/auxv")).ok()?;
        let (words, _) = vector.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let [_, address] = pairs.iter().find(|[key, _]| u64::from_le_bytes(*key) == libc::AT_RANDOM)?;
        let mut mark = [0; 16];
        self.read(u64::from_le_bytes(*address), &mut mark).ok()?;
        Some(ProgramMark(mark))
    }

    /// The eight bytes at `address`, if they are mapped.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).ok().map(|()| u64::from_le_bytes(bytes))
    }
}

/// The random bytes that the system leaves in the memory of each program that is executed (`AT_RANDOM`, getauxval(3)):
/// the same in all processes that it forks, and in no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramMark([u8; 16]);

/// One file mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First byte in memory.
    pub(super) start: u64,
    /// Bytes.
    pub(super) length: u64,
    /// First byte in the file.
    pub(super) offset: u64,
    /// The file, as the process sees it.
    pub(super) path: PathBuf,
}

/// The executable file mappings of `task`, in address order.
pub(super) fn executable_mappings(task: Pid) -> io::Result<Vec<Mapping>> {
    let mappings = mappings(task)?;
    Ok(mappings.into_iter().filter_map(|(mapping, is_executable)| is_executable.then_some(mapping)).collect())
}

/// The file mappings of `task` of any protection, with the paths that their files had when they were mapped.
pub(super) fn present_mappings(task: Pid) -> io::Result<Vec<Mapping>> {
    let named = |(mut mapping, _): (Mapping, bool)| {
        if let Some(path) = mapping.path.as_os_str().as_bytes().strip_suffix(DELETED) {
            mapping.path = PathBuf::from(OsString::from_vec(path.to_vec()));
        }
        mapping
    };
    Ok(mappings(task)?.into_iter().map(named).collect())
}

/// The file mappings of `task`, in address order; whether they are executable.
fn mappings(task: Pid) -> io::Result<Vec<(Mapping, bool)>> {
    let text = fs::read(format!("/proc/{task}/maps"))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(file_mapping).collect())
}

/// `start-end permissions offset device inode path`; `None` for memory that is not a file's.
fn file_mapping(line: &[u8]) -> Option<(Mapping, bool)> {
    let mut columns = line.splitn(6, |&byte| byte == b' ');
    let (start, end) = std::str::from_utf8(columns.next()?).ok()?.split_once('-')?;
    let permissions = columns.next()?;
    let offset = std::str::from_utf8(columns.next()?).ok()?;
    let path = columns.nth(2)?.trim_ascii_start();
    if !path.starts_with(b"/") {
        return None;
    }
    let number = |digits: &str| hexadecimal(digits.as_bytes());
    let start = number(start)?;
    let mapping = Mapping {
        start,
        length: number(end)?.checked_sub(start)?,
        offset: number(offset)?,
        path: PathBuf::from(OsString::from_vec(path.to_vec())),
    };
    Some((mapping, permissions.get(2) == Some(&b'x')))
}

/// The program file that `task` executes.
pub(super) fn executed_file(task: Pid) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{task}/exe"))
}

/// The file that one of `task`'s descriptors refers to.
pub(super) fn descriptor_file(task: Pid, descriptor: i32) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{task}/fd/{descriptor}"))
}

/// `path` as `task` sees it, spelled so that this process can open it.
pub(super) fn seen_by(task: Pid, path: &Path) -> PathBuf {
    let mut spelled = OsString::from(format!("/proc/{task}/root"));
    spelled.push(path.as_os_str());
    PathBuf::from(spelled)
}

/// Whether the kernel marks the file as removed.
pub(super) fn is_deleted(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(DELETED)
}

/// What the kernel writes after the path of a removed file.
const DELETED: &[u8] = b" (deleted)";
