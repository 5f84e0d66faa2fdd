//! Runs the targets on inputs that the fuzzer kept: those with coverage of their own, and those that once failed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::panic::catch_unwind;
use std::path::Path;

use end_to_end::fuzz::{Counted, check, targets};
use end_to_end::workspace::root;

/// Readers that take more memory than their file justifies end the test.
#[global_allocator]
static COUNTED: Counted = Counted;

/// With fewer inputs, archives were lost.
const MIN_INPUTS: usize = 5_000;

/// All in one test: allocations are counted for the whole process.
#[test]
fn every_target_accepts_its_inputs() {
    let mut failed = Vec::new();
    let mut inputs = 0;
    for target in targets() {
        for (name, bytes) in inputs_of(target) {
            inputs += 1;
            if catch_unwind(|| check(target, &bytes)).is_err() {
                failed.push(format!("{target} {name}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(inputs >= MIN_INPUTS, "only {inputs} inputs in tests/fuzz");
}

#[test]
fn every_archive_and_folder_is_of_a_target() {
    let mut left: Vec<String> = ["corpus", "found"]
        .iter()
        .flat_map(|folder| fs::read_dir(root().join("tests/fuzz").join(folder)).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    left.retain(|name| !targets().any(|target| name.strip_suffix(".zip").unwrap_or(name) == target));
    assert!(left.is_empty(), "{left:?}");
}

/// Names and contents, from `tests/fuzz/corpus/TARGET.zip` and `tests/fuzz/found/TARGET`.
fn inputs_of(target: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = root().join("tests/fuzz");
    let mut inputs = archived(&folder.join("corpus").join(format!("{target}.zip")));
    if let Ok(found) = fs::read_dir(folder.join("found").join(target)) {
        for entry in found {
            let path = entry.unwrap().path();
            inputs.insert(format!("found/{}", path.file_name().unwrap().display()), fs::read(path).unwrap());
        }
    }
    inputs
}

fn archived(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let count = archive.len();
    let contents = |index| {
        let mut file = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        (file.name().unwrap().into_owned(), bytes)
    };
    (0..count).map(contents).collect()
}
