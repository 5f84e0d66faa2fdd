//! Layouts for compression and for small updates, on a large program as a distribution ships it, with real compressors.

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

    /// What a command prints of the image and its traces, as JSON.
    fn told(&self, command_name: &str, flags: &[&str]) -> Value {
        let mut command = workspace::reorder();
        command.arg(command_name).arg(&self.image).args(flags).arg("-t").arg(self.path("traces"));
        let outcome = process::run(command.args(["--format", "json"]), LIMIT).unwrap();
        assert!(outcome.success(), "{outcome}");
        serde_json::from_slice(&outcome.stdout).unwrap()
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

#[test]
fn each_budget_is_told_and_the_chosen_one_kept() {
    let case = Case::new();
    let output = case.path("output");
    let output = output.to_str().unwrap();
    let trades = |command: &str, flag: &str| case.told(command, &[flag, "-o", output])["trades"].clone();
    for command in ["order", "apply"] {
        let told = trades(command, "--compress=3");
        let curve = told["curve"].as_array().unwrap();
        let budgets: Vec<&str> = curve.iter().map(|point| point["budget"].as_str().unwrap()).collect();
        assert_eq!(budgets, ["0.5%", "1%", "2%", "3%", "5%", "10%", "20%", "900%"]);
        let figures =
            |point: &Value| ["more_permille", "compressed_bytes"].map(|name| point[name].as_i64().unwrap());
        assert_eq!(figures(&told["chosen"]), figures(&curve[3]), "{told}");
        let [more, bytes] = figures(&curve[7]);
        assert!(more > figures(&curve[0])[0] && bytes < figures(&curve[0])[1], "{told}");
        // A budget gives what the curve of another one says.
        assert_eq!(figures(&trades(command, "--compress=10")["chosen"]), figures(&curve[5]), "{told}");
    }
    let text = case.reorder("apply", &["--compress"], "again").stdout_text();
    assert_eq!(
        text.lines()
            .filter(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit())
                && line.contains("% "))
            .count(),
        7,
        "{text}"
    );
}

#[test]
fn optimize_stays_close_to_the_last_release_too() {
    let case = Case::new();
    case.reorder("apply", &["--seed", "7"], "last");
    let last = case.path("last");
    let optimize = |flags: &[&str]| {
        let mut command = workspace::reorder();
        command.arg("optimize").arg(&case.image).args([
            "--run",
            "--version",
            "--measure-runs",
            "0",
            "--previous",
        ]);
        process::run(command.arg(&last).args(flags), LIMIT).unwrap()
    };
    let near = case.path("near");
    let outcome = optimize(&["--format", "json", "-o", near.to_str().unwrap()]);
    assert!(outcome.success(), "{outcome}");
    let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    let number = |name: &str| report["previous"][name].as_u64().unwrap();
    assert!(number("more_permille") <= 10, "{report}");
    assert!(number("kept_permille") > number("kept_permille_without"), "{report}");
    let near_again = optimize(&["-o", case.path("again").to_str().unwrap()]);
    assert!(near_again.stdout_text().contains("previous layout: "), "{near_again}");
    let before = fs::read(&last).unwrap();
    let replacing = optimize(&["-o", last.to_str().unwrap()]);
    assert!(replacing.stderr_text().contains("would replace the last release"), "{replacing}");
    assert_eq!(fs::read(&last).unwrap(), before);
    let copies = optimize(&["--layout", "blocks", "-o", case.path("copies").to_str().unwrap()]);
    assert!(copies.stderr_text().contains("moves none"), "{copies}");
}

#[test]
fn report_and_gate_tell_sizes_by_tier_and_deltas() {
    let case = Case::new();
    case.reorder("apply", &[], "new");
    let new = case.path("new");
    let page = case.path("page.html");
    let report = case.told("report", &[new.to_str().unwrap(), "--sizes", "-o", page.to_str().unwrap()]);
    let sizes = &report["sizes"];
    let [old_file, new_file] =
        ["compressed_bytes", "new_compressed_bytes"].map(|name| sizes["file"][name].as_u64().unwrap());
    for (told, name) in [(old_file, "cmake"), (new_file, "new")] {
        let real = case.compressed("gzip -9", name);
        assert!(told.abs_diff(real) * 50 < real, "{name}: {told}, gzip has {real}");
    }
    let tiers = sizes["tiers"].as_array().unwrap();
    let of_tiers = |name: &str| tiers.iter().map(|tier| tier[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(of_tiers("functions").iter().all(|functions| *functions > 0), "{sizes}");
    assert_eq!(of_tiers("functions").iter().sum::<u64>(), report["functions"].as_u64().unwrap());
    assert_eq!(of_tiers("functions")[0], report["functions_run"].as_u64().unwrap());
    assert!(of_tiers("compressed_bytes").iter().sum::<u64>() < old_file, "{sizes}");
    // The same functions in another order.
    assert_ne!(of_tiers("compressed_bytes"), of_tiers("new_compressed_bytes"));
    let line = format!(
        "zstd -q -12 --long=27 -c --patch-from='{}' '{}' | wc -c",
        case.image.display(),
        new.display()
    );
    let real: u64 = shell(&line, LIMIT).unwrap().trim().parse().unwrap();
    let delta = sizes["delta_bytes"].as_u64().unwrap();
    assert!(delta.abs_diff(real) * 10 < real, "{delta}, zstd has {real}");
    assert!(delta * 2 < new_file, "{sizes}");

    let report = case.told("gate", &["--baseline", "off", "--against", new.to_str().unwrap(), "--all"]);
    let checks = report["checks"].as_array().unwrap();
    let current = |metric: &str, part: &str| {
        let check = checks
            .iter()
            .find(|check| check["metric"] == metric && check["part"].as_str().unwrap_or("") == part);
        check.unwrap_or_else(|| panic!("{metric}.{part} of {report:#}"))["current"]
            .as_f64()
            .unwrap_or_else(|| panic!("{metric}.{part} of {report:#}")) as u64
    };
    let parts = ["recorded.gzip", "likely.gzip", "rest.gzip"].map(|part| current("compressed-code", part));
    assert_eq!(parts.to_vec(), of_tiers("compressed_bytes"));
    assert!(current("delta-bytes", "") < new_file / 2, "{report:#}");
}
