//! The list of cases in `tests/CASES.md` names tests that exist.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::{Path, PathBuf};

use end_to_end::{fixture, workspace};

/// Cases are numbered from 1 on.
const CASES: usize = 127;

#[test]
fn every_case_has_tests_that_exist() {
    let root = workspace::root();
    let variants = fixture::variants(&root.join("tests/fixtures")).unwrap();
    let variants: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let sources = sources(root);
    let mut missing = Vec::new();
    let cases = cases(root);
    for (number, case) in cases.iter().enumerate() {
        assert_eq!(case.number, number + 1, "cases are listed in order, each once");
        assert!(!case.places.is_empty(), "case {} has no test", case.number);
        for place in &case.places {
            let exists = match place.split_once(' ') {
                Some(("fixture", name)) => variants.iter().any(|variant| is_of(variant, name)),
                Some(("script", name)) => root.join("scripts/bulk").join(name).is_file(),
                None => place.split_once("::").is_some_and(|(file, test)| has_test(&sources, file, test)),
                Some(_) => false,
            };
            if !exists {
                missing.push(format!("{}: {place}", case.number));
            }
        }
    }
    assert_eq!(cases.len(), CASES);
    assert!(missing.is_empty(), "{missing:#?}");
}

struct Case {
    number: usize,
    places: Vec<String>,
}

/// The rows of the table.
fn cases(root: &Path) -> Vec<Case> {
    let text = fs::read_to_string(root.join("tests/CASES.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let [number, _, places] = *line.trim_matches('|').split(" | ").collect::<Vec<_>>() else {
            return None;
        };
        let places = places.split(", ").map(|place| place.trim().to_owned()).collect();
        Some(Case { number: number.trim().parse().ok()?, places })
    });
    rows.collect()
}

/// Whether `variant` is `name`, or `name` is the fixture that it belongs to.
fn is_of(variant: &str, name: &str) -> bool {
    variant == name || variant.split_once('/').is_some_and(|(fixture, _)| fixture == name)
}

/// Rust files of tests and of what runs them.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["tests/tests", "tests/src", "reorder"].map(|name| root.join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Whether `file.rs`, or any file of the folder `file`, has a function `test`.
fn has_test(sources: &[PathBuf], file: &str, test: &str) -> bool {
    let is_file = |path: &Path| {
        path.file_stem().is_some_and(|stem| stem == file)
            || path.parent().is_some_and(|folder| folder.file_name().is_some_and(|name| name == file))
    };
    let marker = format!("fn {test}(");
    sources
        .iter()
        .filter(|path| is_file(path))
        .any(|path| fs::read_to_string(path).unwrap().contains(&marker))
}
