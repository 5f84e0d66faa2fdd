//! Gives every file of `tests/profiles`, whole and damaged, to every reader: a result or an error, never a panic.
//!
//! The fuzz targets of `fuzz/` start from the same files; what they find is kept in `tests/profiles/found`, one file
//! for each finding, and so is replayed here.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use end_to_end::profiles::sample;
use layout_algos::random::Random;
use rayon::prelude::*;
use reorder_trace::formats::{FORMATS, detect};
use reorder_trace::{Companions, Input, statistics};

/// Damaged copies of each file for each reader that would take it; others see the whole file only.
const COPIES: u64 = 150;

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort_unstable();
    files
}

/// What any reader must satisfy, for any bytes.
fn read_with_all(bytes: &[u8], file: &Path, is_accepted_only: bool, companions: &Companions) {
    for format in FORMATS {
        if is_accepted_only && !(format.accepts)(bytes) {
            continue;
        }
        // A lookup of companions that finds none.
        let input = Input { bytes, path: Path::new("/nowhere/file"), companions };
        let inside = |offset: u64| offset <= bytes.len() as u64;
        match (format.read)(&input) {
            Ok(reading) => {
                let events: usize = reading.traces.iter().map(|trace| trace.events.len()).sum();
                // A compressed table of names may expand, but at most by a known factor.
                assert!(
                    events <= bytes.len().saturating_mul(1032),
                    "{}: {}: {events} events in {} bytes",
                    file.display(),
                    format.name,
                    bytes.len()
                );
                for offset in reading.notes.iter().filter_map(|note| note.offset) {
                    assert!(inside(offset), "{}: {}: note at {offset:#x}", file.display(), format.name);
                }
                drop(statistics(&reading.traces));
            }
            Err(error) => {
                let is_inside = error.offset.is_none_or(inside);
                assert!(is_inside, "{}: {}: {error}", file.display(), format.name);
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// `bytes` with one error.
fn damaged(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    let at = random.below(copy.len() as u64) as usize;
    match random.below(6) {
        0 => copy.truncate(at),
        1 => copy[at] = random.next_u64() as u8,
        2 => copy[at] ^= 1 << random.below(8),
        3 => {
            // Readers often trust sizes and counts.
            let value = [u64::MAX, 1 << 63, 1 << 32, 0x7fff_ffff, 0][random.below(5) as usize];
            let length = 8.min(copy.len() - at);
            copy[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        }
        4 => {
            let end = at + random.below((copy.len() - at) as u64 + 1) as usize;
            copy.drain(at..end);
        }
        _ => {
            let tail = copy[at..].to_vec();
            copy.extend(tail);
        }
    }
    copy
}

#[test]
fn every_reader_answers_to_every_file() {
    let files = files(&sample(""));
    assert!(files.len() > 80, "{} files", files.len());
    let images = files.iter().filter(|file| file.extension().is_some_and(|it| it == "debug"));
    let companions = Companions::open(&images.cloned().collect::<Vec<_>>()).unwrap();
    files.par_iter().enumerate().for_each(|(number, file)| {
        let bytes = std::fs::read(file).unwrap();
        read_with_all(&bytes, file, false, &companions);
        if bytes.is_empty() {
            return;
        }
        let mut random = Random::new(0, &[number as u64]);
        for _ in 0..COPIES {
            read_with_all(&damaged(&bytes, &mut random), file, true, &companions);
        }
    });
}

/// The format of each file of `tests/profiles`; `None` for companions and texts about the others.
fn expected_format(name: &str) -> Option<&'static str> {
    let (folder, file) = name.split_once('/')?;
    let ending = file.rsplit('.').next()?;
    Some(match (folder, file, ending) {
        (_, "README.md", _) | ("source", ..) => return None,
        // The format of an empty file is unknown.
        (_, "damaged/empty.profraw", _) => return None,
        (_, _, "profraw") => "LLVM raw profile",
        (_, _, "profdata") => "LLVM indexed profile",
        (_, _, "proftext") => "LLVM text profile",
        (_, _, "gcda") => "GCC .gcda",
        ("gcov", _, "gcno") => return None,
        // A map alone is accepted, and reported as one.
        (_, _, "mipraw" | "mipmap") => "Machine IR Profile",
        ("xray", _, "log") => "XRay log",
        ("xray", "coverage.txt", _) => "XRay coverage list",
        ("xray" | "llvm_raw" | "order_buffer", ..) => return None,
        ("emulators", "callgrind.out", _) => "callgrind",
        ("emulators", "valgrind-blocks.txt", _) => "valgrind blocks",
        ("emulators", "qemu-blocks.txt", _) => "QEMU blocks",
        ("sampling", "afdo-text.prof" | "afdo-contexts.prof", _) => "LLVM sample profile, text",
        ("sampling", _, "prof") => "LLVM sample profile, binary",
        ("sampling", _, "gcov") => "GCC AutoFDO profile",
        ("sampling", _, "fdata") => "BOLT profile",
        ("sampling", _, "data") => "perf.data",
        ("sampling", "perf-uprobes.nm.txt", _) => "plain list",
        ("sampling", _, "txt") => "perf script",
        ("lists", "cyg-entry-bare.offsets.txt", _) => "Chromium offsets",
        ("lists", "link-map.txt", _) => "link map",
        ("lists", _, "txt") => "plain list",
        ("found", ..) => return None,
        _ => panic!("{name}: say what reads it"),
    })
}

/// Detection uses only contents: each file is accepted by the reader of its folder.
#[test]
fn every_sample_is_detected() {
    let root = sample("");
    let mut formats = BTreeSet::new();
    for path in files(&root) {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let found = detect(&std::fs::read(&path).unwrap());
        match expected_format(name) {
            Some(expected) => {
                assert_eq!(found.map(|format| format.name), Some(expected), "{name}");
                formats.insert(expected);
            }
            None => assert!(found.is_none_or(|format| !format.has_signature), "{name} is taken for a trace"),
        }
    }
    assert_eq!(formats.len(), 19, "{formats:?}");
}

/// The buffer that clang's order-file instrumentation writes is kept compressed.
#[test]
fn a_buffer_of_clang_is_detected() {
    let packed = std::fs::File::open(sample("order_buffer/orderfile-clang14.order.gz")).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    assert_eq!(detect(&bytes).map(|format| format.name), Some("clang order-file buffer"));
}
