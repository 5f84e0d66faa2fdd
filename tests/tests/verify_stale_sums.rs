//! The verifier notices a stored distance that went stale, even where the writer overlooked it.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::process::Command;
use std::time::Duration;

use end_to_end::{process, workspace};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_verify::{VerifyOptions, verify};

/// The distances of the fixture: two functions that follow each other at 16 bytes, and the end of the table.
const DISTANCES: [u8; 12] = [16, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0];

/// The writer pins the functions that the distances lead to. So the image is permuted without the distances, which are put
/// back into both files: the output is now one of a writer that knows nothing of such jumps.
#[test]
fn distances_from_loaded_addresses_must_not_go_stale() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-fPIE", "-pie", "loaded_bases/main.c", "ballast.c", "-o"]).arg(&image);
    command.current_dir(workspace::root().join("tests/fixtures"));
    let built = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(built.success(), "{built}");
    let whole = fs::read(&image).unwrap();
    let places: Vec<usize> = whole
        .windows(DISTANCES.len())
        .enumerate()
        .filter(|(_, at)| *at == DISTANCES)
        .map(|it| it.0)
        .collect();
    assert_eq!(places.len(), 2, "one table of distances for each dispatcher");

    let mut old = whole.clone();
    places.iter().for_each(|&place| old[place..place + DISTANCES.len()].fill(0));
    let mut new = permuted(&old);
    assert!(verify(&old, &new, VerifyOptions::default()).unwrap().is_proven());

    places.iter().for_each(|&place| new[place..place + DISTANCES.len()].copy_from_slice(&DISTANCES));
    let report = verify(&whole, &new, VerifyOptions::default()).unwrap();
    let is_stale = |place: &str| place.contains("which a jump may add to");
    assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
}

/// The image with its functions in random order.
fn permuted(old: &[u8]) -> Vec<u8> {
    let file = ElfFile::parse(old).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let analysis = Analysis::new(&file, &functions).unwrap();
    let request = LayoutRequest::of(Strategy::Random, 1);
    let order = lay_out(&file, &functions.table, &[], Room::Linker, &request).unwrap().order;
    apply(&file, &functions, analysis, Arrangement::Order(&order), RelocateOptions::default()).unwrap().bytes
}
