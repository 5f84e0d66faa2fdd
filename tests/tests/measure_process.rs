//! `reorder measure --whole-process`: where in a program and its libraries page faults happen.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use end_to_end::process::copy_executable;
use end_to_end::workspace::reorder;
use serde_json::Value;
use tempfile::TempDir;

/// A library with 64 pages of data that are written, and a program that writes them and 100 pages of the heap.
const LIBRARY: &str = "static char data[64 << 12] = {1}; int fill(void) { for (int i = 0; i < 64; i++) data[i << 12] = 2; return data[0]; }";
const PROGRAM: &str = "#include <stdlib.h>
int fill(void);
int main(void) {
    volatile char *heap = malloc(100 << 12);
    for (int i = 0; i < 100; i++) heap[i << 12] = 1;
    return fill() != 2;
}";

/// The group and user that own nothing.
const NOBODY: u32 = 65534;

/// A directory that everybody may enter, with `program`, which loads `libfilled.so` from there.
fn workplace() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("library.c"), LIBRARY).unwrap();
    fs::write(path("program.c"), PROGRAM).unwrap();
    let line = "gcc -O1 -shared -fPIC library.c -o libfilled.so && \
                gcc -O0 program.c -L. -lfilled -Wl,-rpath,'$ORIGIN' -o program";
    let built = Command::new("sh").args(["-c", line]).current_dir(directory.path()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    directory
}

fn measured(directory: &Path, command: &mut Command) -> Value {
    let output: Output = command
        .args(["measure", "--whole-process", "--runs", "3", "--format", "json", "./program"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["measurements"][0].clone()
}

/// All faults of the rows of a table.
fn sum(rows: &Value) -> f64 {
    rows.as_array().unwrap().iter().map(|row| row["old"]["all"].as_f64().unwrap()).sum()
}

fn of_kind(process: &Value, kind: &str) -> f64 {
    let row = process["kinds"].as_array().unwrap().iter().find(|row| row["place"] == kind);
    row.map_or(0.0, |row| row["old"]["all"].as_f64().unwrap())
}

fn check(measurement: &Value) {
    let process = &measurement["process"];
    assert!(of_kind(process, "written_data") >= 64.0, "{process:#}");
    // Larger pages make fewer faults of 100 pages.
    assert!(of_kind(process, "heap_and_stack") >= 20.0, "{process:#}");
    assert!(of_kind(process, "text") >= 2.0, "{process:#}");
    let files = process["files"].as_array().unwrap();
    let library = files.iter().find(|row| row["place"].as_str().unwrap().ends_with("libfilled.so"));
    // The copy that runs has the name of the installed library.
    let library = library.unwrap_or_else(|| panic!("{process:#}"));
    assert!(!library["place"].as_str().unwrap().contains("reorder-measure"), "{library}");
    // Medians of parts need not add up exactly.
    let (total, kinds) = (process["total"]["old"]["all"].as_f64().unwrap(), sum(&process["kinds"]));
    assert!((total - kinds).abs() <= total / 20.0, "{total} {kinds}");
}

#[test]
fn a_whole_process_is_measured_with_privileges() {
    let directory = workplace();
    let measurement = measured(directory.path(), &mut reorder());
    check(&measurement);
    let process = &measurement["process"];
    if process["source"] == "events" {
        // The kernel's counter is a second witness: it counts from the same instruction on.
        let figures = measurement["figures"].as_array().unwrap();
        let counted = figures.iter().find(|figure| figure["kind"] == "page_faults_counted").unwrap();
        let (counted, total) = (
            counted["program"]["median"].as_f64().unwrap(),
            process["total"]["old"]["all"].as_f64().unwrap(),
        );
        assert!((counted - total).abs() <= counted / 10.0, "{counted} {total}");
    }
}

#[test]
fn a_whole_process_is_measured_without_privileges() {
    let directory = workplace();
    let command = directory.path().join("reorder");
    copy_executable(Path::new(reorder().get_program()), &command).unwrap();
    let mut command = Command::new(command);
    command.env("TMPDIR", directory.path());
    // Only root may become somebody else; others have no privileges anyway.
    if nix::unistd::geteuid().is_root() {
        let owned = Command::new("chown").args(["-R", "65534:65534"]).arg(directory.path()).status().unwrap();
        assert!(owned.success());
        command.uid(NOBODY).gid(NOBODY);
    }
    let measurement = measured(directory.path(), &mut command);
    check(&measurement);
}

#[test]
fn libraries_of_the_new_program_are_found_in_their_directory() {
    let directory = workplace();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("fast")).unwrap();
    copy_executable(&path("program"), &path("fast/program")).unwrap();
    // It writes fewer pages than the old one.
    let line = "sed 's/i < 64/i < 4/' library.c > fast/library.c && gcc -O1 -shared -fPIC fast/library.c -o fast/libfilled.so";
    let built = Command::new("sh").args(["-c", line]).current_dir(directory.path()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = reorder();
    command.args([
        "measure",
        "--whole-process",
        "--new-libraries",
        "fast",
        "--runs",
        "3",
        "--format",
        "json",
    ]);
    let output = command.args(["./program", "fast/program"]).current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kinds = report["measurements"][0]["process"]["kinds"].as_array().unwrap().clone();
    let written = kinds.iter().find(|row| row["place"] == "written_data").unwrap();
    let of = |side: &str| written[side]["all"].as_f64().unwrap();
    assert!(of("old") - of("new") >= 50.0, "{written}");

    let mut command = reorder();
    command.args([
        "measure",
        "--whole-process",
        "--new-libraries",
        "fast/library.c",
        "./program",
        "fast/program",
    ]);
    let output = command.current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("this is not a directory"));
}
