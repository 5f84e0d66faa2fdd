//! Correct outputs with one error: the verifier reports each, or a rule says why it cannot affect execution.
//!
//! `REORDER_MUTATIONS=5000` sets their number; the table on standard output says how many of each kind were made, reported,
//! and accepted with which explanation.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use end_to_end::wrong_output::{CorrectOutput, Kind};
use end_to_end::{process, workspace};
use rayon::prelude::*;
use reorder_base::tool_versions::tool;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_verify::{VerifyOptions, verify};

/// Number of mutations without the variable in the environment.
const DEFAULT_MUTATIONS: u64 = 520;

/// Recipe of each image; together they have every kind of place.
const IMAGES: [&str; 8] = [
    "gcc -O2 -fPIE -pie -Wl,--emit-relocs switch_tables/main.c ballast.c",
    "clang$LLVM -O2 -fPIE -pie -fuse-ld=lld switch_tables/main.c ballast.c",
    "gcc -O2 -fPIC -shared -fuse-ld=gold shared_library/main.c ballast.c",
    "g++ -O2 -fPIE -pie exceptions/main.cpp",
    "gcc -O1 -fPIE -pie -Wl,-z,pack-relative-relocs packed_relative_relocations/main.c ballast.c",
    "gcc -O1 -fPIE -pie static_probes/main.c ballast.c",
    "gcc -O2 -fPIE -pie constructors/main.c ballast.c",
    "aarch64-linux-gnu-gcc -O2 -fPIE -pie switch_tables/main.c ballast.c",
];

#[test]
fn what_is_made_wrong_is_reported_or_explained() {
    let scratch = tempfile::tempdir().unwrap();
    let outputs: Vec<CorrectOutput> =
        IMAGES.iter().enumerate().map(|(number, recipe)| correct(scratch.path(), number, recipe)).collect();
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
        &missed[..missed.len().min(10)]
    );
    let without: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !rows.contains_key(kind)).collect();
    assert!(without.is_empty(), "no image has a place for {without:?}");
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
fn outcome(outputs: &[CorrectOutput], kind: Kind, number: u64) -> Option<Outcome> {
    let count = outputs.len() as u64;
    // An image whose random place does not serve is asked for a few others.
    let (output, wrong) = (0..count * 8).find_map(|attempt| {
        let output = &outputs[((number + attempt) % count) as usize];
        Some((output, output.wrong(kind, number.wrapping_add(attempt << 32))?))
    })?;
    let report = verify(&output.old, &wrong, VerifyOptions::default()).unwrap();
    Some(match (report.is_proven(), output.excuse(&wrong)) {
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

/// An image and its permuted copy, which are proven to be the same.
fn correct(scratch: &Path, number: usize, recipe: &str) -> CorrectOutput {
    let image = scratch.join(number.to_string());
    let mut words = recipe.split(' ');
    let mut command = Command::new(tool(words.next().unwrap()));
    command.args(words).arg("-o").arg(&image).current_dir(workspace::root().join("tests/fixtures"));
    let built = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(built.success(), "{recipe}: {built}");
    let old = fs::read(&image).unwrap();
    let file = ElfFile::parse(&old).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let analysis = Analysis::new(&file, &functions).unwrap();
    let request = LayoutRequest::of(Strategy::Random, 1);
    let order = lay_out(&file, &functions.table, &[], Room::Linker, &request).unwrap().order;
    let applied =
        apply(&file, &functions, analysis, Arrangement::Order(&order), RelocateOptions::default()).unwrap();
    assert!(verify(&old, &applied.bytes, VerifyOptions::default()).unwrap().is_proven(), "{recipe}");
    CorrectOutput::new(recipe, old.clone(), applied.bytes).unwrap()
}
