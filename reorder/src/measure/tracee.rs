//! What is asked of a stopped program: how much of its text is mapped and how much it has touched.
//!
//! Touched pages are told by the processor's own accessed bits. Before the first instruction all text is mapped, so
//! that no page fault maps neighbours later, and all accessed bits are cleared; at the end they are counted.

use std::fs;
use std::path::Path;

use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::page_cache::PAGE_BYTES;
use crate::error::{Error, ErrorKind, Result};

/// A mapping of the program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    is_executable: bool,
    resident_bytes: u64,
    referenced_bytes: u64,
}

/// Pages of a program's text, of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPages {
    /// In the page table.
    pub(super) mapped: u64,
    /// Accessed since [`forget_accesses`], or since they were mapped.
    pub(super) accessed: u64,
}

/// The text pages of a stopped process; `None` when it cannot be looked at.
pub(super) fn text_pages(pid: Pid, program: &Path) -> Option<TextPages> {
    let mappings = mappings(pid, program)?;
    let text: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.is_executable).collect();
    // A process whose memory is gone already has nothing mapped, which is no figure.
    (!text.is_empty()).then(|| TextPages {
        mapped: text.iter().map(|mapping| mapping.resident_bytes).sum::<u64>() / PAGE_BYTES,
        accessed: text.iter().map(|mapping| mapping.referenced_bytes).sum::<u64>() / PAGE_BYTES,
    })
}

fn mappings(pid: Pid, program: &Path) -> Option<Vec<Mapping>> {
    let program = program.canonicalize().ok()?;
    let listing = fs::read(format!("/proc/{pid}/smaps")).ok()?;
    Some(parse_smaps(&String::from_utf8_lossy(&listing), &program.to_string_lossy()))
}

/// Mappings of `program` in the form that proc(5) gives for `smaps`.
fn parse_smaps(listing: &str, program: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut inside = false;
    for line in listing.lines() {
        if let Some((mapping, path)) = parse_header(line) {
            inside = path == program;
            mappings.extend(inside.then_some(mapping));
        } else if let (true, Some(last)) = (inside, mappings.last_mut()) {
            if let Some(bytes) = parse_size(line, "Rss:") {
                last.resident_bytes = bytes;
            } else if let Some(bytes) = parse_size(line, "Referenced:") {
                last.referenced_bytes = bytes;
            }
        }
    }
    mappings
}

/// A line such as `Rss:       132 kB`, in bytes.
fn parse_size(line: &str, key: &str) -> Option<u64> {
    let kibibytes: u64 = line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// A line `start-end rwxp offset device inode path`; the path is the rest of the line and may hold spaces.
fn parse_header(line: &str) -> Option<(Mapping, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let is_executable = rest.as_bytes().get(2) == Some(&b'x');
    let path = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim_start();
    Some((Mapping { start, end, is_executable, resident_bytes: 0, referenced_bytes: 0 }, path))
}

/// Maps all text of a program that has not started yet and clears its accessed bits.
///
/// Answers `false` when the program is not mapped as expected, or the kernel (before 5.14) cannot do it.
pub(super) fn forget_accesses(pid: Pid, program: &Path) -> Result<bool> {
    let Some(mappings) = mappings(pid, program) else { return Ok(false) };
    let mut done = false;
    for mapping in mappings.iter().filter(|mapping| mapping.is_executable) {
        let range = [mapping.start, mapping.end.saturating_sub(mapping.start)];
        // A huge page has one accessed bit for 512 pages; kernels without huge pages refuse, which is as good.
        advise(pid, range, libc::MADV_NOHUGEPAGE)?;
        done = advise(pid, range, libc::MADV_POPULATE_READ)?;
    }
    // 1 clears the accessed bits of all pages of the process: proc(5).
    Ok(done && fs::write(format!("/proc/{pid}/clear_refs"), "1").is_ok())
}

/// Makes the program call `madvise` on `[start, length]`; whether that succeeded.
fn advise(pid: Pid, [start, length]: [u64; 2], advice: libc::c_int) -> Result<bool> {
    let arguments = [start, length, u64::from(advice.cast_unsigned())];
    inject(pid, libc::SYS_madvise.cast_unsigned(), arguments).map(|result| result == Some(0)).map_err(
        |error| {
            Error::new(ErrorKind::Io(error.into()), "the running program cannot be made to call the system")
        },
    )
}

/// The bytes of the `syscall` instruction, as the low end of a little-endian word.
const SYSCALL_INSTRUCTION: i64 = 0x050f;
const SYSCALL_MASK: i64 = 0xffff;

/// Makes a stopped process perform one system call and puts it back as it was; its result, or `None` when the
/// process ended or stopped for another reason.
fn inject(pid: Pid, number: u64, arguments: [u64; 3]) -> nix::Result<Option<u64>> {
    let saved = ptrace::getregs(pid)?;
    let place = saved.rip as ptrace::AddressType;
    let word = ptrace::read(pid, place)?;
    let mut registers = saved;
    registers.rax = number;
    // Not inside a system call, or the kernel might restart the interrupted one.
    registers.orig_rax = u64::MAX;
    [registers.rdi, registers.rsi, registers.rdx] = arguments;
    ptrace::write(pid, place, word & !SYSCALL_MASK | SYSCALL_INSTRUCTION)?;
    ptrace::setregs(pid, registers)?;
    ptrace::step(pid, None)?;
    let stopped = matches!(waitpid(pid, None)?, WaitStatus::Stopped(_, nix::sys::signal::Signal::SIGTRAP));
    if !stopped {
        return Ok(None);
    }
    let result = ptrace::getregs(pid)?.rax;
    ptrace::write(pid, place, word)?;
    ptrace::setregs(pid, saved)?;
    Ok(Some(result))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LISTING: &str = "\
55d0c0000000-55d0c0010000 r--p 00000000 fe:00 1234                       /opt/my tools/git
Rss:                  64 kB
55d0c0010000-55d0c0110000 r-xp 00010000 fe:00 1234                       /opt/my tools/git
Size:               1024 kB
Rss:                 132 kB
Pss:                 132 kB
Referenced:           48 kB
7f0000000000-7f0000100000 r-xp 00010000 fe:00 99                         /usr/lib/libc.so.6
Rss:                 800 kB
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0                          [vdso]
Rss:                   4 kB
";

    #[test]
    fn only_the_programs_own_text_counts() {
        let text: Vec<Mapping> = parse_smaps(LISTING, "/opt/my tools/git")
            .into_iter()
            .filter(|mapping| mapping.is_executable)
            .collect();
        let expected = Mapping {
            start: 0x55d0_c001_0000,
            end: 0x55d0_c011_0000,
            is_executable: true,
            resident_bytes: 132 * 1024,
            referenced_bytes: 48 * 1024,
        };
        assert_eq!(text, [expected]);
        assert_eq!(parse_smaps(LISTING, "/opt/my"), []);
    }

    proptest! {
        #[test]
        fn any_listing_is_survived(listing in "([0-9a-f]{0,20}-?[0-9a-f]{0,20} [rwxp-]{0,5} .{0,30}\n|Rss:.{0,30}\n){0,20}") {
            for mapping in parse_smaps(&listing, "/program") {
                let start = format!("{:x}", mapping.start);
                prop_assert!(listing.contains(&start), "{} comes from nowhere", start);
            }
        }
    }
}
