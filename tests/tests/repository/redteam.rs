//! The kit that searches for broken outputs finds one that is broken on purpose.
//!
//! `scripts/bulk/redteam/programs` runs it on thousands of programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::process::Outcome;
use end_to_end::{process, workspace};

const LIMIT: Duration = Duration::from_secs(600);

/// Runs the kit on some programs from `first` on, with `reorder` as the command under test.
fn campaign(reorder: &Path, directory: &Path, options: &[&str]) -> Outcome {
    let mut command = Command::new("python3");
    command.arg("-B").arg(workspace::root().join("tests/redteam/campaign.py")).arg(reorder).arg(directory);
    process::run(command.args(options), LIMIT).unwrap()
}

#[test]
fn a_broken_result_is_found_and_made_small() {
    let scratch = tempfile::tempdir().unwrap();
    // Does what the command does, then makes the result begin at an address that has no code.
    let broken = scratch.path().join("broken");
    let real = workspace::reorder_path().display();
    let lines = [
        "#!/usr/bin/env bash".to_owned(),
        format!("{real} \"$@\" || exit"),
        "while [ \"$1\" != -o ]; do shift; done".to_owned(),
        "head -c 8 /dev/zero | dd of=\"$2\" bs=1 seek=24 conv=notrunc status=none".to_owned(),
    ];
    fs::write(&broken, lines.join("\n")).unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let options =
        ["--programs", "1", "--builds", "2", "--machines", "x86_64", "--languages", "c", "--jobs", "1"];
    let outcome = campaign(&broken, scratch.path(), &options);
    assert!(outcome.ending == process::Ending::Exited(1), "{outcome}");
    let findings: Vec<_> =
        fs::read_dir(scratch.path().join("findings")).unwrap().map(Result::unwrap).collect();
    assert!(!findings.is_empty(), "{outcome}");
    for finding in findings {
        let told = fs::read_to_string(finding.path().join("README")).unwrap();
        assert!(told.starts_with("crash: ") && told.contains(" apply image --strategy random "), "{told}");
        // One part of several is left.
        assert!(!finding.file_name().to_string_lossy().contains('+'), "{told}");
    }
}
