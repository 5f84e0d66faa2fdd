//! Buffers of clang's order-file instrumentation, with and without their mapping.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use end_to_end::llvm_tools::name_key;
use end_to_end::process;
use end_to_end::profiles::{DEMO_A, names, sample};
use reorder_trace::{Companions, Evidence, Location, NameHash, Reading, read_files};

/// The sample as the program wrote it, in `directory`.
fn unpacked(directory: &Path) -> PathBuf {
    let packed = sample("order_buffer/orderfile-clang14.order.gz");
    let outcome = process::run(Command::new("gzip").arg("-dc").arg(packed), Duration::from_secs(60)).unwrap();
    assert!(outcome.success(), "gzip: {outcome}");
    let path = directory.join("run.order");
    fs::write(&path, outcome.stdout).unwrap();
    path
}

fn mapping() -> PathBuf {
    sample("order_buffer/orderfile-clang14.mapping.txt")
}

fn read(path: &Path, companions: &[PathBuf]) -> Reading {
    read_files(&[path.to_path_buf()], &Companions::open(companions).unwrap()).unwrap()
}

#[test]
fn without_a_mapping_events_are_the_hashes_of_the_symbols() {
    let directory = tempfile::tempdir().unwrap();
    let reading = read(&unpacked(directory.path()), &[]);
    let [trace] = reading.traces.as_slice() else { panic!("{} traces", reading.traces.len()) };
    let locations: Vec<Location> = trace.events.iter().map(|event| event.location.clone()).collect();
    assert_eq!(locations, DEMO_A.map(|name| Location::NameHash(NameHash::Md5(name_key(name)))));
    assert_eq!(trace.evidence, Evidence::Exact);
    assert!(reading.notes.is_empty());
}

#[test]
fn a_mapping_gives_the_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = unpacked(directory.path());
    assert_eq!(names(&read(&path, &[mapping()]).traces[0]), DEMO_A);

    fs::copy(mapping(), directory.path().join("demo.mapping.txt")).unwrap();
    let beside = read(&path, &[]);
    assert_eq!(names(&beside.traces[0]), DEMO_A);
    assert!(beside.notes.is_empty());

    // A buffer of a system with the other byte order: the mapping reveals it.
    let bytes = fs::read(&path).unwrap();
    let swapped: Vec<u8> = bytes.chunks(8).flat_map(|entry| entry.iter().rev().copied()).collect();
    fs::write(&path, swapped).unwrap();
    assert_eq!(names(&read(&path, &[]).traces[0]), DEMO_A);
}

#[test]
fn functions_that_a_mapping_does_not_know_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = unpacked(directory.path());
    let other = directory.path().join("other.txt");
    fs::write(&other, "MD5 34e720dfad9570bf util_log\nMD5 34e720dfad9570bf util_log\n").unwrap();
    let reading = read(&path, &[other]);
    assert_eq!(reading.traces[0].events.iter().filter(|event| event.symbol().is_some()).count(), 1);
    let [note] = reading.notes.as_slice() else { panic!("{:?}", reading.notes) };
    assert!(note.to_string().contains("7 of 8 functions are not in the mapping"), "{note}");
}
