//! `reorder doctor` of images by every linker: which linker made them, what they lack, and the flag for it.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use end_to_end::process::shell;
use end_to_end::workspace::reorder;

const LIMIT: Duration = Duration::from_secs(60);

fn link(directory: &Path, command: &str) {
    std::fs::write(directory.join("main.c"), "int main(void) { return 0; }").unwrap();
    shell(&format!("cd '{}' && {command} -O1 main.c -o program", directory.display()), LIMIT).unwrap();
}

fn doctor(directory: &Path, arguments: &[&str]) -> (Output, String) {
    let output = reorder().arg("doctor").args(arguments).current_dir(directory).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn every_linker_is_recognised() {
    let cases = [
        ("gcc -fuse-ld=bfd", "linker: unknown, perhaps GNU ld"),
        ("gcc -fuse-ld=gold", "linker: gold"),
        ("gcc -fuse-ld=mold", "linker: mold"),
        ("clang$LLVM -fuse-ld=lld", "linker: lld"),
    ];
    for (command, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        link(directory.path(), &format!("{command} -fPIE -pie"));
        let (output, text) = doctor(directory.path(), &["program"]);
        assert!(text.contains(expected) && text.contains("functions can move"), "{command}: {text}");
        // Restrictions of the system are independent of the image.
        let image = text.split("move its functions").nth(1).unwrap();
        assert!(!image.contains("failed"), "{command}: {text}\n{output:?}");
    }
}

#[test]
fn a_fixed_program_gets_the_flag_of_its_build_system() {
    let directory = tempfile::tempdir().unwrap();
    link(directory.path(), "gcc -no-pie");
    let (output, text) = doctor(directory.path(), &["program"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for line in [
        "gcc, clang: -Wl,--emit-relocs",
        "CMake: -DCMAKE_EXE_LINKER_FLAGS=-Wl,--emit-relocs",
        "cargo: RUSTFLAGS='-C link-arg=-Wl,--emit-relocs'",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    link(directory.path(), "gcc -no-pie -Wl,--emit-relocs");
    let (_, text) = doctor(directory.path(), &["program"]);
    assert!(text.contains("kept by the linker"), "{text}");
    let (output, text) = doctor(directory.path(), &["main.c"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("failed read the image"), "{text}");
}

#[test]
fn what_is_configured_is_shown_with_its_origin() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("reorder.toml"), "[gate.limits]\nfaults = \"+2 %\"\n").unwrap();
    let mut command = reorder();
    command.args(["doctor", "--show-config", "--format", "json"]).current_dir(directory.path());
    let output = command.env("REORDER_MEMORY", "16k").output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let setting = |name: &str| {
        let all = report["configuration"].as_array().unwrap();
        let found = all.iter().find(|setting| setting["name"] == name).unwrap();
        (found["value"].as_str().unwrap().to_owned(), found["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(setting("gate.limits.faults"), ("\"+2 %\"".to_owned(), "./reorder.toml".to_owned()));
    assert_eq!(setting("REORDER_MEMORY"), ("16k".to_owned(), "environment".to_owned()));
}
