//! `TID.dat`: 16 bytes for each entry and exit of one thread.
//!
//! | bits | |
//! |---|---|
//! | 0–63 | nanoseconds |
//! | 64–65 | 0 entry, 1 exit, 2 lost records, 3 an event |
//! | 66 | whether values of arguments follow |
//! | 67–69 | always 5 |
//! | 70–79 | depth |
//! | 80–127 | address in the function |
//!
//! The size of the arguments is not stated; they end at a multiple of eight bytes, where the next record begins.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::tasks::Tasks;
use crate::Note;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};
use reorder_base::numbers::decimal;

const RECORD: usize = 16;
const MAGIC: u64 = 5;

/// The first call of one function in one session of one process.
pub(super) struct Call {
    pub(super) time: u64,
    pub(super) process: u32,
    pub(super) session: Option<usize>,
    pub(super) address: u64,
    pub(super) count: u64,
    thread: u32,
}

/// Collects first calls over all threads.
#[derive(Default)]
pub(super) struct Calls {
    by_place: HashMap<(u32, Option<usize>, u64), usize>,
    calls: Vec<Call>,
    lost: u64,
    damaged: u64,
}

impl Calls {
    /// First calls of all threads, in order of time.
    pub(super) fn read(
        directory: &Path,
        order: ByteOrder,
        tasks: &Tasks,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Call>> {
        let mut calls = Self::default();
        for (thread, path) in threads(directory)? {
            let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
            calls.thread(thread, &bytes, order, tasks);
            let rest = bytes.len() % (RECORD / 2);
            if rest > 0 {
                notes.push(Note::new(format!("{thread}.dat is cut: its last {rest} bytes were left out")));
            }
        }
        if calls.lost > 0 {
            notes.push(
                Note::new(format!("uftrace lost {} records, so first calls may be missing", calls.lost))
                    .with_hint("record with a larger buffer: uftrace record -b 64M PROGRAM"),
            );
        }
        if calls.damaged > 0 {
            let damaged = calls.damaged;
            notes.push(Note::new(format!("{damaged} times 8 bytes are not a record and were skipped")));
        }
        calls.calls.sort_by_key(|call| (call.time, call.thread));
        Ok(calls.calls)
    }

    fn thread(&mut self, thread: u32, bytes: &[u8], order: ByteOrder, tasks: &Tasks) {
        let process = tasks.process_of(thread);
        let (mut position, mut last_time, mut has_arguments) = (0, 0u64, false);
        while let Some(record) =
            bytes.get(position..position + RECORD).and_then(|bytes| Record::parse(bytes, order))
        {
            if has_arguments {
                has_arguments = false;
                position = after_arguments(bytes, position, last_time, order);
                continue;
            }
            if record.magic != MAGIC {
                self.damaged += 1;
                position += RECORD / 2;
                continue;
            }
            (last_time, has_arguments) = (record.time, record.has_arguments);
            position += RECORD;
            match record.kind {
                0 => self.entry(thread, process, &record, tasks),
                2 => self.lost = self.lost.saturating_add(record.address.max(1)),
                _ => {}
            }
        }
    }

    fn entry(&mut self, thread: u32, process: u32, record: &Record, tasks: &Tasks) {
        let session = tasks.session_at(process, record.time);
        let (time, address) = (record.time, record.address);
        let index = *self.by_place.entry((process, session, address)).or_insert_with(|| {
            self.calls.push(Call { time, process, session, address, count: 0, thread });
            self.calls.len() - 1
        });
        let call = &mut self.calls[index];
        call.count += 1;
        if (time, thread) < (call.time, call.thread) {
            (call.time, call.thread) = (time, thread);
        }
    }
}

/// A day, in nanoseconds.
const MAX_PAUSE: u64 = 86_400_000_000_000;
/// Bound on the values of arguments of one call, in bytes; uftrace stores less.
const MAX_ARGUMENTS: usize = 1024;

/// Offset of the next record after values of arguments, which begin at `position` and have no stated length. The record is
/// recognised by its fixed bits and by a later time. A pointer may have both, but its time is far later.
fn after_arguments(bytes: &[u8], position: usize, last_time: u64, order: ByteOrder) -> usize {
    let times = last_time..last_time.saturating_add(MAX_PAUSE);
    let candidates = (position..=position + MAX_ARGUMENTS).step_by(RECORD / 2).filter_map(|position| {
        let record = Record::parse(bytes.get(position..position + RECORD)?, order)?;
        (record.magic == MAGIC && times.contains(&record.time)).then_some((record.time, position))
    });
    // Without one, the bytes there are counted as damage.
    candidates.min().map_or(position, |(_, position)| position)
}

/// The files of threads, sorted. Files of processors and of the kernel have other names.
fn threads(directory: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let entries = std::fs::read_dir(directory).map_err(|error| Error::io(directory, error))?;
    let thread = |path: PathBuf| {
        let name = path.file_name()?.as_encoded_bytes().strip_suffix(b".dat")?.to_vec();
        Some((decimal(&name)?, path))
    };
    let mut threads: Vec<(u32, PathBuf)> =
        entries.filter_map(|entry| thread(entry.ok()?.path())).filter(|(_, path)| path.is_file()).collect();
    threads.sort_unstable();
    Ok(threads)
}

struct Record {
    time: u64,
    kind: u8,
    has_arguments: bool,
    magic: u64,
    address: u64,
}

impl Record {
    fn parse(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        let mut cursor = Cursor::new(bytes, order);
        let (time, bits) = (cursor.u64().ok()?, cursor.u64().ok()?);
        Some(Self {
            time,
            kind: (bits & 3) as u8,
            has_arguments: bits >> 2 & 1 == 1,
            magic: bits >> 3 & 7,
            address: bits >> 16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_that_look_like_records_are_values_of_arguments() {
        const ENTRY: u64 = MAGIC << 3;
        // On a system that has run for a day, the address of a stack, read as a time, is tomorrow.
        let (now, stack) = (80_000_000_000_000, 0x7ffd_0000_1000);
        let words = [now, ENTRY | 4 | 0x1000 << 16, stack, stack | ENTRY, 1, now + 9, ENTRY | 0x2000 << 16];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let mut calls = Calls::default();
        calls.thread(1, &bytes, ByteOrder::Little, &Tasks::default());
        let addresses: Vec<u64> = calls.calls.iter().map(|call| call.address).collect();
        assert_eq!((addresses, calls.damaged), (vec![0x1000, 0x2000], 0));
    }

    #[test]
    fn lost_records_are_counted_without_end() {
        let lost = MAGIC << 3 | 2 | 7 << 16;
        let bytes = [1u64.to_le_bytes(), lost.to_le_bytes()].concat();
        let mut calls = Calls { lost: u64::MAX - 1, ..Calls::default() };
        calls.thread(1, &bytes, ByteOrder::Little, &Tasks::default());
        assert_eq!(calls.lost, u64::MAX);
    }
}
