//! ARCHITECTURE.md compared with the code: everything that it names exists.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::PathBuf;

use end_to_end::workspace;

/// Texts between single backticks, outside of drawings and listings.
fn spans(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Paths that do not begin with a folder of the workspace are below `reorder/`.
fn located(path: &str) -> Option<PathBuf> {
    let places = [workspace::root().join(path), workspace::root().join("reorder").join(path)];
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
