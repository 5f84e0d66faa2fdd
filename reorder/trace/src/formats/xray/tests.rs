//! Logs of arbitrary bytes, and of versions that no current tool writes.

use std::path::Path;

use proptest::prelude::*;

use super::super::detect;
use super::header::Header;
use super::records::{Entry, Records};
use super::{accepts, basic, fdr, read};
use crate::cursor::ByteOrder;
use crate::{Companion, Companions, Input, Location};

fn header(version: u16, kind: u16, buffer_size: u64) -> Vec<u8> {
    let mut bytes = [version.to_le_bytes(), kind.to_le_bytes()].concat();
    bytes.extend([0xaa; 4]);
    bytes.extend(1_000_000_000u64.to_le_bytes());
    bytes.extend(buffer_size.to_le_bytes());
    bytes.extend([0xaa; 8]);
    bytes
}

fn basic_record(event: u8, id: u32, tick: u64, thread: u32, process: u32) -> Vec<u8> {
    let mut bytes = vec![0, 0, 7, event];
    bytes.extend(id.to_le_bytes());
    bytes.extend(tick.to_le_bytes());
    bytes.extend(thread.to_le_bytes());
    bytes.extend(process.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn metadata(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind << 1 | 1];
    bytes.extend(body);
    bytes.resize(16, 0xaa);
    bytes
}

fn call(event: u32, id: u32, delta: u32) -> Vec<u8> {
    [(id << 4 | event << 1).to_le_bytes(), delta.to_le_bytes()].concat()
}

fn new_cpu(tick: u64) -> Vec<u8> {
    metadata(2, &[&[1, 0][..], &tick.to_le_bytes()].concat())
}

fn recorder_entries(bytes: &[u8]) -> (Vec<Entry>, usize) {
    let header = Header::parse(bytes).unwrap();
    assert!(fdr::accepts(bytes));
    let mut records = Records::default();
    fdr::read(&header, bytes, &mut records).unwrap();
    let mut notes = std::mem::take(&mut records.notes);
    (records.first_entries(&header, &mut notes), notes.len())
}

fn ids_and_ticks(entries: &[Entry]) -> Vec<(u32, u64)> {
    entries.iter().map(|entry| (entry.function, entry.tick)).collect()
}

#[test]
fn old_basic_logs_have_no_process() {
    for (version, process) in [(1, None), (2, None), (3, Some(9))] {
        let bytes =
            [header(version, 0, 0), basic_record(0, 5, 20, 1, 9), basic_record(3, 4, 10, 2, 9)].concat();
        let header = Header::parse(&bytes).unwrap();
        assert!(accepts(&bytes));
        let mut records = Records::default();
        basic::read(&header, &bytes, &mut records);
        let entries = records.first_entries(&header, &mut Vec::new());
        assert_eq!(ids_and_ticks(&entries), [(4, 10), (5, 20)], "threads are merged in order of time");
        assert_eq!(entries[0].process, process);
        assert_eq!(entries[1].nanoseconds, Some(10));
    }
}

#[test]
fn big_endian_basic_logs_are_read() {
    let mut bytes = [3u16.to_be_bytes(), 0u16.to_be_bytes()].concat();
    bytes.extend([0; 4]);
    bytes.extend(1_000_000_000u64.to_be_bytes());
    bytes.extend([0; 16]);
    bytes.extend([0, 0, 0, 0]);
    bytes.extend(6u32.to_be_bytes());
    bytes.extend(77u64.to_be_bytes());
    bytes.extend([0; 16]);
    let header = Header::parse(&bytes).unwrap();
    assert_eq!(header.order, ByteOrder::Big);
    assert!(accepts(&bytes));
    let mut records = Records::default();
    basic::read(&header, &bytes, &mut records);
    assert_eq!(ids_and_ticks(&records.first_entries(&header, &mut Vec::new())), [(6, 77)]);
}

#[test]
fn buffers_of_a_fixed_size_end_with_a_mark() {
    for version in [1, 2] {
        let buffer = |thread: u32, tick: u64, id: u32| {
            let mut bytes = [metadata(0, &thread.to_le_bytes()), new_cpu(tick), call(0, id, 3)].concat();
            bytes.extend(metadata(1, &[]));
            bytes.resize(128, 0xee);
            bytes
        };
        let bytes = [header(version, 1, 128), buffer(1, 1000, 8), buffer(2, 500, 9)].concat();
        let (entries, notes) = recorder_entries(&bytes);
        assert_eq!((ids_and_ticks(&entries), notes), (vec![(9, 503), (8, 1003)], 0));
        // A last buffer that is cut after its mark has lost nothing.
        let (entries, notes) = recorder_entries(&bytes[..bytes.len() - 50]);
        assert_eq!((entries.len(), notes), (2, 0));
    }
}

#[test]
fn events_of_the_program_are_skipped_with_their_time() {
    for version in [3, 4, 5] {
        let custom = match version {
            5 => metadata(5, &[3u32.to_le_bytes(), 10u32.to_le_bytes()].concat()),
            _ => metadata(5, &[&3u32.to_le_bytes()[..], &99u64.to_le_bytes()].concat()),
        };
        let typed = metadata(8, &[2u32.to_le_bytes(), 4u32.to_le_bytes()].concat());
        let wrapped = metadata(3, &2000u64.to_le_bytes());
        let items = [
            metadata(9, &42u32.to_le_bytes()),
            new_cpu(1000),
            call(0, 1, 1),
            [custom, vec![1; 3]].concat(),
            [typed, vec![1; 2]].concat(),
            call(3, 2, 1),
            metadata(6, &7u64.to_le_bytes()),
            wrapped,
            call(0, 3, 1),
        ]
        .concat();
        let extents = metadata(7, &(items.len() as u64).to_le_bytes());
        let bytes = [header(version, 1, 4096), extents.clone(), items.clone(), extents, items].concat();
        let (entries, notes) = recorder_entries(&bytes);
        let second = if version == 5 { 1016 } else { 1006 };
        assert_eq!((ids_and_ticks(&entries), notes), (vec![(1, 1001), (2, second), (3, 2001)], 0));
        assert_eq!((entries[0].process, entries[0].calls), (Some(42), 2));
    }
}

#[test]
fn damage_ends_one_buffer() {
    let buffer = |tick: u64, items: &[Vec<u8>]| {
        let items = [&[new_cpu(tick)][..], items].concat().concat();
        [metadata(7, &(items.len() as u64).to_le_bytes()), items].concat()
    };
    let damaged = [call(0, 1, 1), metadata(77, &[]), call(0, 2, 1)];
    let bytes = [header(5, 1, 4096), buffer(10, &damaged), buffer(20, &[call(0, 3, 1)])].concat();
    let (entries, notes) = recorder_entries(&bytes);
    assert_eq!((ids_and_ticks(&entries), notes), (vec![(1, 11), (3, 21)], 1));
}

/// An image that has a map, so that the map is read as well.
fn companions() -> Companions {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profiles/xray/relocatable.o");
    Companions::open(&[path]).unwrap()
}

fn read_with(bytes: &[u8], companions: &Companions) {
    match read(&Input { bytes, path: Path::new("log"), companions }) {
        Ok(reading) => {
            for trace in &reading.traces {
                assert!(!trace.events.is_empty());
                assert!(trace.events.is_sorted_by_key(|event| event.tick));
                assert!(trace.events.iter().all(|event| matches!(event.location, Location::Name(_))));
            }
            assert!(reading.notes.iter().all(|note| note.offset.is_none_or(|at| at <= bytes.len() as u64)));
        }
        Err(error) => assert!(error.offset.unwrap() <= bytes.len() as u64, "{error}"),
    }
}

fn stored(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profiles/xray").join(name)).unwrap()
}

#[test]
fn stored_logs_are_known_by_their_contents() {
    for name in ["basic.log", "fdr.log", "fdr-threads.log"] {
        assert_eq!(detect(&stored(name)).unwrap().name, "XRay log", "{name}");
    }
    assert_eq!(detect(&stored("coverage.txt")).unwrap().name, "XRay coverage list");
}

#[test]
fn every_cut_of_a_log_is_read_or_refused() {
    let companions = companions();
    for name in ["basic.log", "fdr.log", "fdr-threads.log"] {
        let bytes = stored(name);
        for length in (32..bytes.len()).step_by(if bytes.len() > 1000 { 61 } else { 1 }) {
            read_with(&bytes[..length], &companions);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damaged_logs_are_read_or_refused(
        name in prop::sample::select(vec!["basic.log", "fdr.log", "fdr-threads.log"]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = stored(name);
        for (index, value) in damage {
            // Versions and modes are often valid, so that reading continues after the header.
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        read_with(&bytes, &companions());
    }

    #[test]
    fn damaged_maps_are_read_or_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = stored("relocatable.o");
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("map.o");
        std::fs::write(&path, &bytes).unwrap();
        let companions = Companions::open(&[path]).unwrap();
        prop_assert_eq!(companions.iter().map(|companion: &Companion| companion.bytes.len()).sum::<usize>(), bytes.len());
        let log = stored("basic.log");
        if let Err(error) = read(&Input { bytes: &log, path: Path::new("log"), companions: &companions }) {
            prop_assert!(error.offset.unwrap() <= log.len() as u64);
        }
    }
}

#[test]
fn a_log_without_records_needs_a_clock() {
    assert!(accepts(&header(3, 0, 0)));
    assert!(accepts(&header(5, 1, 4096)));
    let mut bytes = vec![1, 0, 0, 0];
    bytes.resize(32, 0);
    assert!(!accepts(&bytes), "numbers and zeros");
    bytes[8] = 7;
    assert!(!accepts(&bytes), "a clock of 7 Hz");
}
