//! ARCHITECTURE.md against the code: what it names exists, and the verifier shares nothing with the writer.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::{Path, PathBuf};

use end_to_end::workspace;

/// What stands between single backticks, outside of drawings and listings.
fn spans(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Paths that name no crate are of the library.
fn located(path: &str) -> Option<PathBuf> {
    let places = [workspace::root().join(path), workspace::root().join("reorder/src").join(path)];
    places.into_iter().find(|place| place.exists())
}

#[test]
fn paths_exist_and_functions_are_in_their_files() {
    let text = fs::read_to_string(workspace::root().join("ARCHITECTURE.md")).unwrap();
    let mut missing = Vec::new();
    let mut found = 0;
    for span in spans(&text) {
        let mut words = span.split_whitespace();
        let is_path = |word: &&str| word.ends_with('/') || word.ends_with(".rs");
        let Some(path) = words.next().filter(is_path) else { continue };
        let Some(place) = located(path) else {
            missing.push(path.to_owned());
            continue;
        };
        found += 1;
        for function in words {
            let code = fs::read_to_string(&place).unwrap();
            let is_there = [format!("fn {function}("), format!("fn {function}<")];
            if !is_there.iter().any(|begin| code.contains(begin)) {
                missing.push(format!("{path} {function}"));
            }
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:#?}");
    assert!(found > 100, "{found} paths");
}

#[test]
fn the_verifier_uses_nothing_of_the_writer() {
    const SHARED: [&str; 4] = ["address", "address_index", "error", "verify"];
    let mut directories = vec![workspace::root().join("reorder/src/verify")];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files += 1;
                check_uses(&path, &SHARED);
            }
        }
    }
    assert!(files > 50, "{files} files");
}

fn check_uses(path: &Path, shared: &[&str]) {
    let text = fs::read_to_string(path).unwrap();
    // `verify` is as many steps up as there are folders below it, and one more for a file that is no `mod.rs`.
    let within = path.strip_prefix(workspace::root().join("reorder/src/verify")).unwrap();
    let steps = within.components().count() - usize::from(within.ends_with("mod.rs"));
    // Modules inside of a file, such as its tests, are one step deeper.
    let escape = "super::".repeat(steps + 2);
    assert!(!text.contains(&escape), "{} leads out of the verifier", path.display());
    for rest in text.split("crate::").skip(1) {
        let module = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap();
        assert!(shared.contains(&module), "{} uses {module}", path.display());
    }
}
