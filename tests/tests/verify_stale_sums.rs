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
use reorder_verify::{VerifyOptions, VerifyReport, verify};

/// The distances of the fixture: two functions that follow each other at 16 bytes, and the end of the table.
const DISTANCES: [u8; 12] = [16, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0];

/// The writer pins the functions that the distances lead to. So the image is permuted without the distances, which are put
/// back into both files: the output is now one of a writer that knows nothing of such jumps.
#[test]
fn distances_from_loaded_addresses_must_not_go_stale() {
    let whole = built("gcc", "loaded_bases");
    let report = report_of_unaware(&whole, &DISTANCES, &[0; DISTANCES.len()], 2);
    let is_stale = |place: &str| place.contains("which a jump may add to");
    assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
}

/// The same for code that takes 16 bytes off its own address and calls the sum: the instruction that does so is put back.
#[test]
fn own_addresses_less_a_constant_must_not_go_stale() {
    const ADD: [u8; 4] = [0x48, 0x83, 0xc0, 0xf0];
    const LONG_NOP: [u8; 4] = [0x0f, 0x1f, 0x40, 0x77];
    const SUB: u32 = 0xd100_4108;
    /// `mov x9, x17`, which nothing else here contains.
    const MOV: u32 = 0xaa11_03e9;
    let host = report_of_unaware(&built("gcc", CASE), &ADD, &LONG_NOP, 1);
    let arm_image = built("aarch64-linux-gnu-gcc", CASE);
    let arm = report_of_unaware(&arm_image, &SUB.to_le_bytes(), &MOV.to_le_bytes(), 1);
    for report in [host, arm] {
        let is_stale = |place: &str| place.contains("with -16 added");
        assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
    }
}

/// The same for a table of four distances that code names twice, whose words a thunk calls; three other words follow it.
#[test]
fn distances_past_a_name_must_not_go_stale() {
    for compiler in ["gcc", "aarch64-linux-gnu-gcc"] {
        let whole = built_with(compiler, "distances_past_a_name", &["-DTHUNK"]);
        let after = [9_u32, 8, 7].map(u32::to_le_bytes).concat();
        let &[end] = places_of(&whole, &after).as_slice() else {
            panic!("the words after the table stand elsewhere, too")
        };
        let report = report_of_unaware(&whole, &whole[end - 16..end], &[0; 16], 1);
        let is_stale = |place: &str| place.contains("to a function as the word next to it does");
        assert!(report.differences.iter().any(|difference| is_stale(&difference.place)), "{report:#?}");
    }
}

/// The fixture whose code takes a constant off its own address.
const CASE: &str = "own_address_less_a_constant";

/// The program of a fixture.
fn built(compiler: &str, fixture: &str) -> Vec<u8> {
    built_with(compiler, fixture, &[])
}

fn built_with(compiler: &str, fixture: &str, flags: &[&str]) -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-fPIE", "-pie", &format!("{fixture}/main.c"), "ballast.c", "-o"]).arg(&image);
    command.args(flags).current_dir(workspace::root().join("tests/fixtures"));
    let built = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(built.success(), "{built}");
    fs::read(&image).unwrap()
}

/// What the verifier says of an output whose writer knew nothing of the bytes `fact`, which stand `count` times in the image:
/// while it wrote, `harmless` stood there.
fn report_of_unaware(whole: &[u8], fact: &[u8], harmless: &[u8], count: usize) -> VerifyReport {
    let places = places_of(whole, fact);
    assert_eq!(places.len(), count, "the bytes stand elsewhere, too");
    let mut old = whole.to_vec();
    put(&mut old, &places, harmless);
    let mut new = permuted(&old);
    assert!(verify(&old, &new, VerifyOptions::default()).unwrap().is_proven());

    // Code has moved, data has not.
    let code = places_of(&new, harmless);
    put(&mut new, if code.len() == count { &code } else { &places }, fact);
    verify(whole, &new, VerifyOptions::default()).unwrap()
}

fn places_of(image: &[u8], wanted: &[u8]) -> Vec<usize> {
    image.windows(wanted.len()).enumerate().filter(|(_, at)| *at == wanted).map(|it| it.0).collect()
}

fn put(image: &mut [u8], places: &[usize], bytes: &[u8]) {
    places.iter().for_each(|&place| image[place..place + bytes.len()].copy_from_slice(bytes));
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
