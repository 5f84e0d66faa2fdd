//! Correct outputs with one error: the verifier reports each, or a rule says why it cannot affect execution.
//!
//! `REORDER_MUTATIONS=5000` sets their number; the table on standard output says how many of each kind were made, reported,
//! and accepted with which explanation.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::mutation_table::verify_each;
use end_to_end::wrong_output::CorrectOutput;
use end_to_end::{process, workspace};
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
    let without_place = verify_each(&outputs, DEFAULT_MUTATIONS);
    assert!(without_place.is_empty(), "no image has a place for {without_place:?}");
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
