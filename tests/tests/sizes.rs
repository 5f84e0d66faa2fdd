//! Layouts for compression and for small updates, on a large program as a distribution ships it, with real compressors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace;
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(300);

/// Debian's cmake, stripped, and recordings of it.
struct Case {
    directory: TempDir,
    image: PathBuf,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("cmake");
        fs::copy("/usr/bin/cmake", &image).unwrap();
        let case = Self { directory, image };
        for arguments in [&["--version"][..], &["-E", "capabilities"], &["--help-module-list"]] {
            let mut command = workspace::reorder();
            command.args(["record", "-q", "-o"]).arg(case.path("traces")).arg("--");
            let outcome = process::run(command.arg(&case.image).args(arguments), LIMIT).unwrap();
            assert!(outcome.success(), "{outcome}");
        }
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn reorder(&self, command_name: &str, flags: &[&str], output: &str) -> Outcome {
        let mut command = workspace::reorder();
        command.arg(command_name).arg(&self.image).arg("-t").arg(self.path("traces"));
        command.args(flags).arg("-o").arg(self.path(output));
        let outcome = process::run(&mut command, LIMIT).unwrap();
        assert!(outcome.success(), "{outcome}");
        outcome
    }

    /// Simulated faults of the recorded runs in `image`.
    fn faults(&self, image: &Path) -> u64 {
        let mut command = workspace::reorder();
        command.arg("simulate").arg(&self.image).arg(image).arg("-t").arg(self.path("traces"));
        let outcome = process::run(command.args(["--model", "4k", "--format", "json"]), LIMIT).unwrap();
        assert!(outcome.success(), "{outcome}");
        let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        report["totals"][0]["new_faults"].as_u64().unwrap()
    }

    fn compressed(&self, compressor: &str, name: &str) -> u64 {
        let line = format!("{compressor} -c '{}' | wc -c", self.path(name).display());
        shell(&line, LIMIT).unwrap().trim().parse().unwrap()
    }
}

#[test]
fn a_large_budget_makes_the_file_smaller_for_real_compressors() {
    let case = Case::new();
    case.reorder("apply", &[], "pages");
    case.reorder("apply", &["--compress=900"], "content");
    for compressor in ["gzip -6", "zstd -q -12", "xz -3"] {
        let [pages, content] = ["pages", "content"].map(|name| case.compressed(compressor, name));
        assert!(content * 100 < pages * 99, "{compressor}: {content} after {pages}");
    }
    let [pages, content] = ["pages", "content"].map(|name| case.faults(&case.path(name)));
    assert!(content * 100 <= pages * 101, "{content} faults after {pages}");
    let version = |image: PathBuf| shell(&format!("'{}' --version", image.display()), LIMIT).unwrap();
    assert_eq!(version(case.path("content")), version(case.image.clone()));
}

#[test]
fn the_last_release_is_kept_where_pages_allow() {
    let case = Case::new();
    case.reorder("apply", &["--seed", "7"], "last");
    let last = case.path("last");
    let last = last.to_str().unwrap();
    case.reorder("order", &["--addresses", "--format", "json"], "free.order");
    let outcome =
        case.reorder("order", &["--addresses", "--previous", last, "--format", "json"], "near.order");
    let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    let number = |name: &str| report["previous"][name].as_u64().unwrap();
    assert!(number("known") > 1000, "{report}");
    assert!(number("more_permille") <= 10, "{report}");
    assert!(number("kept_permille") > number("kept_permille_without"), "{report}");
}
