//! Which pages of its text a stopped program has in its page table.
//!
//! As the system maps them, these are pages that were touched and their neighbours. To tell the two apart, each page of
//! the text can be made a mapping of its own before the first instruction: neither read-ahead nor fault-around reaches
//! beyond a mapping, so then a page is in the table if and only if it was touched.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::unistd::Pid;

use super::inject::advise;
use super::unknown::Unknown;
use reorder_base::numbers::hexadecimal;
use reorder_system::PAGE_BYTES;

/// A mapping of the program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) is_executable: bool,
    pub(super) is_writable: bool,
    /// Where in the file it begins.
    pub(super) offset: u64,
}

/// Mappings of `program` in a process; `None` when it cannot be inspected.
pub(super) fn mappings(pid: Pid, program: &Path) -> Option<Vec<Mapping>> {
    let program = program.canonicalize().ok()?;
    let listing = fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(parse_maps(&String::from_utf8_lossy(&listing), &program.to_string_lossy()))
}

/// Mappings of `program` in the form that proc(5) gives for `maps`.
fn parse_maps(listing: &str, program: &str) -> Vec<Mapping> {
    let lines = listing.lines().filter_map(parse_line);
    lines.filter(|(_, path)| *path == program).map(|(mapping, _)| mapping).collect()
}

/// A line `start-end rwxp offset device inode path`; the path is the rest of the line and may hold spaces.
pub(super) fn parse_line(line: &str) -> Option<(Mapping, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hexadecimal(start.as_bytes())?, hexadecimal(end.as_bytes())?);
    let has = |place: usize, permission: u8| rest.as_bytes().get(place) == Some(&permission);
    let (is_writable, is_executable) = (has(1, b'w'), has(2, b'x'));
    let offset = hexadecimal(rest.split(' ').nth(1)?.as_bytes())?;
    let path = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim_start();
    (start <= end).then_some((Mapping { start, end, is_executable, is_writable, offset }, path))
}

/// Pages of the program's file, by their place in the file, whose text mapping a stopped process has in its page
/// table.
pub(super) fn mapped_text(pid: Pid, program: &Path) -> Result<BTreeSet<u64>, Unknown> {
    let mappings = mappings(pid, program).ok_or(Unknown::Unreadable)?;
    let text: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.is_executable).collect();
    if text.is_empty() {
        // A process whose memory is gone already has no mappings at all, which is no figure either.
        let is_gone = fs::read(format!("/proc/{pid}/maps")).is_ok_and(|listing| listing.is_empty());
        return Err(if is_gone { Unknown::Unreadable } else { Unknown::Replaced });
    }
    pages_in_table(pid, &text).ok_or(Unknown::Unreadable)
}

/// Bytes that a process had the kernel read from disks so far, as proc(5) gives them for `io`.
pub(super) fn bytes_read(pid: Pid) -> Option<u64> {
    let listing = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = listing.lines().find_map(|line| line.strip_prefix("read_bytes:"))?;
    line.trim().parse().ok()
}

/// Addresses of the pages between `start` and `end` that a stopped process has in its page table; `None` when it cannot be
/// inspected, and of regions that no real memory fills, such as shadows of sanitizers.
pub(super) fn pages_between(pid: Pid, start: u64, end: u64) -> Option<BTreeSet<u64>> {
    const MAX_BYTES: u64 = 1 << 36;
    if end - start > MAX_BYTES {
        return None;
    }
    let mapping = Mapping { start, end, is_executable: false, is_writable: false, offset: start };
    pages_in_table(pid, &[&mapping])
}

fn pages_in_table(pid: Pid, text: &[&Mapping]) -> Option<BTreeSet<u64>> {
    let table = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let mut pages = BTreeSet::new();
    for mapping in text {
        let count = (mapping.end - mapping.start) / PAGE_BYTES;
        // Mappings come from the kernel; the largest ones are files, or bounded by the caller.
        let mut entries = vec![0; usize::try_from(count).ok()?.checked_mul(ENTRY_BYTES)?];
        table.read_exact_at(&mut entries, mapping.start / PAGE_BYTES * ENTRY_BYTES as u64).ok()?;
        let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
        for (number, entry) in (0..).zip(entries) {
            if u64::from_le_bytes(*entry) & IS_PRESENT != 0 {
                pages.insert(mapping.offset + number * PAGE_BYTES);
            }
        }
    }
    Some(pages)
}

/// Bytes of an entry of `/proc/PID/pagemap`, and the bit of pages that are in the page table: proc(5).
const ENTRY_BYTES: usize = 8;
const IS_PRESENT: u64 = 1 << 63;

/// Makes each page of the text of a program that has not started yet a mapping of its own, and switches read-ahead off
/// for the rest of its file. Returns why not where that is not possible, such as when the kernel does not allow that
/// many mappings. Signals that come meanwhile are `held` back for the caller to send again.
///
/// `MADV_RANDOM` alone is not enough: since Linux 6.17 read-ahead of executable mappings ignores it. Leaving every
/// second page out of core dumps only prevents the kernel from merging neighbours into one mapping.
pub(super) fn map_page_by_page(
    pid: Pid,
    program: &Path,
    held: &mut Vec<i32>,
) -> reorder_base::error::Result<Result<(), Unknown>> {
    let Some(mappings) = mappings(pid, program) else { return Ok(Err(Unknown::Unreadable)) };
    let mut done = Err(Unknown::NoMapping);
    for mapping in &mappings {
        let size = mapping.end - mapping.start;
        if mapping.is_executable && size / PAGE_BYTES > mappings_allowed() {
            return Ok(Err(Unknown::TooManyMappings));
        }
        advise(pid, [mapping.start, size], libc::MADV_RANDOM, held)?;
        if mapping.is_executable {
            // Forbids huge pages; kernels without huge pages refuse, which is just as good.
            advise(pid, [mapping.start, size], libc::MADV_NOHUGEPAGE, held)?;
            for page in (mapping.start..mapping.end).step_by(2 * PAGE_BYTES as usize) {
                if !advise(pid, [page, PAGE_BYTES], libc::MADV_DONTDUMP, held)? {
                    return Ok(Err(Unknown::TooManyMappings));
                }
            }
            done = Ok(());
        }
    }
    Ok(done)
}

/// How many mappings the text may be cut into: the system's limit, less those that the program itself may need.
fn mappings_allowed() -> u64 {
    const DEFAULT: u64 = 65530;
    const FOR_THE_PROGRAM: u64 = 4096;
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(DEFAULT).saturating_sub(FOR_THE_PROGRAM)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LISTING: &str = "\
55d0c0000000-55d0c0010000 r--p 00000000 fe:00 1234                       /opt/my tools/git
55d0c0010000-55d0c0110000 r-xp 00010000 fe:00 1234                       /opt/my tools/git
7f0000000000-7f0000100000 r-xp 00010000 fe:00 99                         /usr/lib/libc.so.6
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn only_the_programs_own_text_counts() {
        let text: Vec<Mapping> = parse_maps(LISTING, "/opt/my tools/git")
            .into_iter()
            .filter(|mapping| mapping.is_executable)
            .collect();
        let expected = Mapping {
            start: 0x55d0_c001_0000,
            end: 0x55d0_c011_0000,
            is_executable: true,
            is_writable: false,
            offset: 0x10000,
        };
        assert_eq!(text, [expected]);
        assert_eq!(parse_maps(LISTING, "/opt/my"), []);
    }

    proptest! {
        #[test]
        fn any_listing_is_survived(listing in "([0-9a-f]{0,20}-?[0-9a-f]{0,20} [rwxp-]{0,5} [0-9a-f]{0,9} .{0,30}\n){0,20}") {
            for mapping in parse_maps(&listing, "/program") {
                let start = format!("{:x}", mapping.start);
                prop_assert!(listing.contains(&start), "{} comes from nowhere", start);
            }
        }
    }
}
