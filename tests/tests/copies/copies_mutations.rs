//! Correct outputs with copies of fragments and one error: the verifier reports each, or a rule says why it cannot affect
//! execution.
//!
//! `REORDER_MUTATIONS=3000` sets their number, `REORDER_IMAGES=/usr/bin/perl:/usr/bin/git` the images, which are otherwise built
//! here; the table on standard output says how many of each kind were made, reported, and accepted with which explanation.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use end_to_end::mutation_table::verify_each;
use end_to_end::wrong_copies::CopiedOutput;
use end_to_end::{process, workspace};
use reorder_verify::{VerifyOptions, verify};

/// Number of mutations without the variable in the environment.
const DEFAULT_MUTATIONS: u64 = 460;
const LIMIT: Duration = Duration::from_secs(600);

/// Together they have every kind of place.
const RECIPES: [&str; 4] = [
    "gcc -O2 -w -fPIE -pie control.c",
    "gcc -O2 -rdynamic -fPIE -pie frames.c",
    "g++ -O2 -pthread -fPIE -pie exceptions.cpp",
    "g++ -Os -std=c++14 -w -fno-pie -no-pie endings.cpp",
];

#[test]
fn what_is_made_wrong_in_copies_is_reported_or_explained() {
    let scratch = tempfile::tempdir().unwrap();
    let outputs: Vec<CopiedOutput> =
        images(scratch.path()).iter().map(|(name, image)| correct(scratch.path(), name, image)).collect();
    let without_place = verify_each(&outputs, DEFAULT_MUTATIONS);
    assert!(without_place.is_empty() || are_named(), "no image has a place for {without_place:?}");
}

/// Whether the images are not those of the test, which have a place for each kind.
fn are_named() -> bool {
    env::var_os("REORDER_IMAGES").is_some()
}

/// Names and paths of the images.
fn images(scratch: &Path) -> Vec<(String, PathBuf)> {
    if let Ok(named) = env::var("REORDER_IMAGES") {
        return named.split(':').map(|path| (path.to_owned(), PathBuf::from(path))).collect();
    }
    let build = |(number, recipe): (usize, &&str)| {
        let image = scratch.join(format!("image{number}"));
        let sources = workspace::root().join("tests/copies");
        let line = format!("cd '{}' && {recipe} -o '{}'", sources.display(), image.display());
        process::shell(&line, LIMIT).unwrap();
        ((*recipe).to_owned(), image)
    };
    RECIPES.iter().enumerate().map(build).collect()
}

/// An image, and the same with copies of a random half of its blocks, which the command has proven.
fn correct(scratch: &Path, name: &str, image: &Path) -> CopiedOutput {
    let output = scratch.join("output");
    let mut command = workspace::reorder();
    command.arg("apply").arg(image).args(["--layout", "blocks", "--strategy", "random", "--seed", "1", "-o"]);
    let applied = process::run(command.arg(&output), LIMIT).unwrap();
    assert!(applied.success(), "{name}: {applied}");
    let (old, new) = (fs::read(image).unwrap(), fs::read(&output).unwrap());
    fs::remove_file(&output).unwrap();
    assert!(verify(&old, &new, VerifyOptions::default()).unwrap().is_proven(), "{name}");
    CopiedOutput::new(name, old, new).unwrap()
}
