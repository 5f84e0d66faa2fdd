//! Relocated Mach-O images compared with the linker's own: the same objects linked in the same order.

use std::process::Command;

use end_to_end::macho_fixtures::{Build, CHAINED, Fixture, OPCODES, build, program, rust};
use end_to_end::macho_tools::{run, seeds};
use end_to_end::workspace;

fn agrees(fixture: &Fixture) {
    for seed in seeds() {
        fixture.linked.agrees(seed);
    }
}

fn exceptions(how: Build) {
    agrees(&build(&[("exceptions.cpp", "")], how));
}

#[test]
fn c_without_optimisation() {
    agrees(&program(CHAINED.compiled("-O0")));
}

#[test]
fn c_optimised() {
    agrees(&program(CHAINED));
}

#[test]
fn c_for_size_with_opcodes() {
    agrees(&program(OPCODES.compiled("-Os")));
}

#[test]
fn cxx_exceptions_chained() {
    exceptions(CHAINED);
}

#[test]
fn cxx_exceptions_with_opcodes() {
    exceptions(OPCODES);
}

#[test]
fn cxx_exceptions_folded() {
    exceptions(CHAINED.linked("--icf=all"));
}

#[test]
fn cxx_exceptions_without_dead_code() {
    exceptions(OPCODES.linked("-dead_strip"));
}

#[test]
fn rust_with_panics() {
    agrees(&rust(CHAINED.linked("-dead_strip")));
}

#[test]
fn dylib() {
    agrees(&build(&[("library.c", "")], CHAINED.linked("-dylib -install_name @rpath/library.dylib")));
}

#[test]
fn bundle() {
    agrees(&build(&[("library.c", "")], OPCODES.linked("-bundle")));
}

#[test]
fn debug_information() {
    let fixture = program(CHAINED.compiled("-O1 -g"));
    agrees(&fixture);
    // One more seed, for what dsymutil reads from the stabs.
    let seed = seeds().end;
    let order = fixture.linked.shuffled_link(seed);
    let relocated = fixture.linked.directory.join("relocated");
    let outcome = run(workspace::reorder()
        .arg("apply")
        .arg(&fixture.image)
        .arg("--order")
        .args([&order])
        .arg("-o")
        .arg(&relocated));
    assert!(outcome.success(), "{outcome}");
    let map = |image: &std::path::Path| {
        let outcome = run(Command::new("dsymutil-22").arg("--dump-debug-map").arg(image));
        assert!(outcome.success(), "{outcome}");
        let mut lines: Vec<String> = outcome
            .stdout_text()
            .lines()
            .filter(|line| !line.starts_with("binary-path:"))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(map(&relocated), map(&fixture.linked.second(seed)));
}

#[test]
fn more_than_a_mebibyte() {
    // Relaxed code is not the linker's when data is out of reach: this needs no hints, the emulator runs it with hints.
    agrees(&build(&[("large.c", "")], CHAINED.linked("-ignore_optimization_hints")));
}

#[test]
fn without_optimisation_hints() {
    agrees(&program(OPCODES.linked("-ignore_optimization_hints")));
}

#[test]
fn objective_c_methods() {
    agrees(&build(&[("methods.m", "")], CHAINED.linked("-bundle -undefined dynamic_lookup")));
}
