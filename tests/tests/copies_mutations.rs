//! Correct outputs with copies of fragments and one error: the verifier reports each, or a rule says why it cannot affect
//! execution.
//!
//! `REORDER_MUTATIONS=3000` sets their number, `REORDER_IMAGES=/usr/bin/perl:/usr/bin/git` the images, which are otherwise built
//! here; the table on standard output says how many of each kind were made, reported, and accepted with which explanation.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use end_to_end::wrong_copies::{CopiedOutput, Kind};
use end_to_end::{process, workspace};
use rayon::prelude::*;
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
    let wanted =
        env::var("REORDER_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_MUTATIONS);
    let each = wanted / Kind::ALL.len() as u64;
    let cases: Vec<(Kind, u64)> =
        Kind::ALL.into_iter().flat_map(|kind| (0..each).map(move |number| (kind, number))).collect();
    let outcomes: Vec<(Kind, Outcome)> = cases
        .par_iter()
        .filter_map(|&(kind, number)| Some((kind, outcome(&outputs, kind, number)?)))
        .collect();
    let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
    for (kind, outcome) in outcomes {
        let row = rows.entry(kind).or_default();
        row.made += 1;
        match outcome {
            Outcome::Reported => row.reported += 1,
            Outcome::Explained(why) => *row.explained.entry(why).or_default() += 1,
            Outcome::Missed(case) => row.missed.push(case),
        }
    }
    println!("| kind | made | reported | accepted, and why |\n|---|--:|--:|---|");
    for (kind, row) in &rows {
        let why: Vec<String> = row.explained.iter().map(|(why, count)| format!("{count}: {why}")).collect();
        println!("| {kind:?} | {} | {} | {} |", row.made, row.reported, why.join("; "));
    }
    let missed: Vec<&String> = rows.values().flat_map(|row| &row.missed).collect();
    assert!(
        missed.is_empty(),
        "{} were accepted, such as {:#?}",
        missed.len(),
        &missed[..missed.len().min(40)]
    );
    let made: usize = rows.values().map(|row| row.made).sum();
    assert!(made as u64 * 2 > wanted, "{made} mutations");
}

#[derive(Default)]
struct Row {
    made: usize,
    reported: usize,
    explained: BTreeMap<&'static str, usize>,
    missed: Vec<String>,
}

enum Outcome {
    Reported,
    Explained(&'static str),
    Missed(String),
}

/// The outcome of a mutation, on the first image from number `number` on that has a place for it.
fn outcome(outputs: &[CopiedOutput], kind: Kind, number: u64) -> Option<Outcome> {
    let count = outputs.len() as u64;
    // An image whose random place does not serve is asked for a few others.
    let (output, wrong) = (0..count * 8).find_map(|attempt| {
        let output = &outputs[((number + attempt) % count) as usize];
        Some((output, output.wrong(kind, number.wrapping_add(attempt << 32))?))
    })?;
    let is_proven =
        verify(&output.old, &wrong, VerifyOptions::default()).is_ok_and(|report| report.is_proven());
    Some(match (is_proven, output.excuse(&wrong)) {
        (false, _) => Outcome::Reported,
        (true, Some(why)) => Outcome::Explained(why),
        (true, None) => {
            let first = (0..wrong.len()).find(|&at| wrong[at] != output.new[at]).unwrap_or_default();
            Outcome::Missed(format!(
                "{kind:?} {number} of `{}` at {first:#x}: {:#04x} became {:#04x}",
                output.name, output.new[first], wrong[first]
            ))
        }
    })
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
