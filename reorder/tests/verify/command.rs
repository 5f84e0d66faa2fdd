//! `reorder verify` as a command: its three exit statuses and both forms of its report.

use std::path::Path;
use std::process::{Command, Output};

use crate::relinked::Relinked;

fn verify(old: &Path, new: &Path, form: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reorder"))
        .arg("verify")
        .args([old, new])
        .args(["--format", form])
        .output()
        .expect("the command starts")
}

#[test]
fn the_exit_status_says_proven_finding_or_could_not_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (old, new, damaged) =
        (directory.path().join("old"), directory.path().join("new"), directory.path().join("damaged"));
    let pair = Relinked::build(&[]);
    let mut bytes = pair.new.clone();
    bytes[0x18] ^= 1;
    for (path, bytes) in [(&old, &pair.old), (&new, &pair.new), (&damaged, &bytes)] {
        std::fs::write(path, bytes).expect("the image is written");
    }

    let proven = verify(&old, &new, "text");
    assert_eq!(proven.status.code(), Some(0), "{proven:?}");
    assert!(String::from_utf8_lossy(&proven.stdout).contains("\nproven: "), "{proven:?}");

    let finding = verify(&old, &damaged, "text");
    assert_eq!(finding.status.code(), Some(1), "{finding:?}");
    assert!(String::from_utf8_lossy(&finding.stdout).contains("differs: the entry point"), "{finding:?}");

    let json = verify(&old, &damaged, "json");
    assert_eq!(json.status.code(), Some(1), "{json:?}");
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    assert_eq!(report["difference_count"], 1, "{report}");
    assert_eq!(report["differences"][0]["check"], "loader-pointers", "{report}");

    for (old, new) in
        [(&directory.path().join("absent"), &new), (&Path::new("/etc/passwd").to_path_buf(), &new)]
    {
        let failed = verify(old, new, "text");
        assert_eq!(failed.status.code(), Some(2), "{failed:?}");
        assert!(failed.stdout.is_empty() && !failed.stderr.is_empty(), "{failed:?}");
    }
}
