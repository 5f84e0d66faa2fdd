//! What the targets of trace readers require of every format, and which target covers which formats.
//!
//! An input is a file as the fuzzer makes it, followed by its companions: each begins with [`COMPANION`] and its
//! name on one line. Formats that are directories find the companions as files in theirs.

use std::path::Path;
use std::sync::OnceLock;

use reorder_trace::formats::{FORMATS, Format};
use reorder_trace::{Companion, Companions, Input, Reading, statistics};

use super::allocation;
use super::directory::Directory;

/// The formats by target. Every format has one: [`read`] refuses to run otherwise.
const TARGETS: &[(&str, &[&str])] = &[
    ("reorder_text", &["reorder trace"]),
    ("llvm_raw", &["LLVM raw profile"]),
    ("llvm_indexed", &["LLVM indexed profile"]),
    ("llvm_text", &["LLVM text profile", "LLVM text profile without header"]),
    ("gcov", &["GCC .gcda"]),
    ("machine_ir", &["Machine IR Profile"]),
    ("order_buffer", &["clang order-file buffer"]),
    ("uftrace", &["uftrace directory"]),
    ("emulators", &["callgrind", "valgrind blocks", "QEMU blocks"]),
    ("xray", &["XRay log", "XRay coverage", "XRay coverage list"]),
    ("perf", &["perf.data", "perf script"]),
    (
        "sample_profiles",
        &["LLVM sample profile, binary", "LLVM sample profile, text", "GCC AutoFDO profile", "BOLT profile"],
    ),
    ("texts", &["plain list", "link map", "DTrace output", "Chromium offsets", "sanitizer coverage"]),
];

/// Comes before the name of a companion.
const COMPANION: &[u8] = b"\n@companion ";

/// Compressed tables may expand by at most this factor.
const INFLATION: usize = 1032;

/// The names of the targets.
pub(super) fn targets() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|(name, _)| *name)
}

/// Reads `bytes` as each format of `target`, accepted or not.
///
/// # Panics
/// When a reader violates a property, or the table of formats has changed and the one of targets has not.
pub(super) fn read(target: &str, bytes: &[u8]) {
    static OF_TARGET: OnceLock<Vec<&'static Format>> = OnceLock::new();
    let (file, companions) = parts(bytes);
    for format in OF_TARGET.get_or_init(|| formats_of(target)) {
        allocation::bounded(bytes.len(), || {
            (format.accepts)(file);
            match format.is_part.is_some() {
                true => read_directory(format, file, &companions),
                false => read_file(format, file, &companions),
            }
        });
    }
}

/// Reads `bytes` as the first format that accepts them.
///
/// # Panics
/// As [`read`].
pub(super) fn detect_and_read(bytes: &[u8]) {
    let reading = allocation::bounded(bytes.len(), || {
        reorder_trace::read_bytes(bytes, Path::new(NOWHERE), &Companions::default())
    });
    match reading {
        Ok(reading) => drop(statistics(&reading.traces)),
        Err(error) => assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64), "{error}"),
    }
}

/// A path in a directory that does not exist, so that no companion is found.
const NOWHERE: &str = "/nowhere/input";

fn formats_of(target: &str) -> Vec<&'static Format> {
    let has_target = |format: &&Format| TARGETS.iter().any(|(_, names)| names.contains(&format.name));
    let missing: Vec<_> =
        FORMATS.iter().filter(|format| !has_target(format)).map(|format| format.name).collect();
    assert!(missing.is_empty(), "formats without a target: {missing:?}");
    let Some((_, names)) = TARGETS.iter().find(|(name, _)| *name == target) else {
        panic!("no formats for the target {target}");
    };
    let format = |name: &&str| FORMATS.iter().find(|format| format.name == *name);
    names.iter().map(|name| format(name).unwrap_or_else(|| panic!("no format is called {name}"))).collect()
}

/// The file, and names and contents of its companions.
fn parts(bytes: &[u8]) -> (&[u8], Vec<(&str, &[u8])>) {
    let find = |bytes: &[u8]| bytes.windows(COMPANION.len()).position(|window| window == COMPANION);
    let (file, mut rest) = bytes.split_at(find(bytes).unwrap_or(bytes.len()));
    let mut companions = Vec::new();
    while let Some(part) = rest.strip_prefix(COMPANION) {
        let end = find(part).unwrap_or(part.len());
        let name_end = part[..end].iter().position(|&byte| byte == b'\n').unwrap_or(end);
        let contents = part[..end].get(name_end + 1..).unwrap_or_default();
        companions.push((std::str::from_utf8(&part[..name_end]).unwrap_or("companion"), contents));
        rest = &part[end..];
    }
    (file, companions)
}

fn read_file(format: &Format, bytes: &[u8], companions: &[(&str, &[u8])]) {
    let companion = |&(name, bytes): &(&str, &[u8])| Companion {
        path: Path::new("/nowhere").join(name),
        bytes: bytes.into(),
    };
    let companions = Companions::from(companions.iter().map(companion).collect::<Vec<_>>());
    let inside = |offset: u64| offset <= bytes.len() as u64;
    match (format.read)(&Input { bytes, path: Path::new(NOWHERE), companions: &companions }) {
        Ok(reading) => {
            let events: usize = reading.traces.iter().map(|trace| trace.events.len()).sum();
            assert!(events <= bytes.len().saturating_mul(INFLATION), "{}: {events} events", format.name);
            for note in &reading.notes {
                assert!(note.offset.is_none_or(inside), "{}: {note}", format.name);
            }
            digest(format, reading);
        }
        Err(error) => {
            assert!(error.offset.is_some_and(inside), "{}: {error}", format.name);
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Offsets of errors and notes must lie within one of the directory's files.
fn read_directory(format: &Format, bytes: &[u8], companions: &[(&str, &[u8])]) {
    let directory = Directory::of(companions);
    let companions = Companions::default();
    if let Ok(reading) = (format.read)(&Input { bytes, path: &directory.file(), companions: &companions }) {
        digest(format, reading);
    }
}

/// Processes traces as commands do after reading them.
fn digest(format: &Format, reading: Reading) {
    let reading = match format.join {
        // Two files of one run.
        Some(join) => join(vec![reading.clone(), reading]),
        None => reading,
    };
    drop(statistics(&reading.traces));
}
