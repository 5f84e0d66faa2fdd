//! Options that no other test uses: each does what its help says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::{self, Outcome, shell, succeed};
use end_to_end::workspace::reorder;
use reorder_image::elf::file::ElfFile;
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

const SOURCE: &str = r#"
#include <stdio.h>
static int state;
__attribute__((noinline)) void unused(int n) { for (int i = 0; i < n; i++) state += i * n; }
__attribute__((noinline)) void first(int n) { state += n; }
__attribute__((noinline)) void second(int n) { state *= n + 1; first(n); }
int main(int count, char **words) {
    if (count > 2) unused(count);
    second(count);
    printf("%d %s\n", state, words[count - 1]);
    return 0;
}
"#;

/// A directory with `program`, and recordings of it in `traces`.
fn recorded(flags: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.c"), SOURCE).unwrap();
    let line = format!("cd '{}' && gcc -O1 {flags} program.c -o program", directory.path().display());
    shell(&line, LIMIT).unwrap();
    run(directory.path(), &["record", "-o", "traces", "--", "./program"]);
    directory
}

fn attempt(directory: &Path, arguments: &[&str]) -> Outcome {
    process::run(reorder().args(arguments).current_dir(directory), LIMIT).unwrap()
}

fn run(directory: &Path, arguments: &[&str]) -> String {
    succeed(reorder().args(arguments).current_dir(directory))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn addresses_stand_for_functions_without_a_symbol() {
    let directory = recorded("-s");
    let directory = directory.path();
    let lines = |order: &str| order.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(lines(&run(directory, &["order", "program", "-t", "traces"])), 0);
    let order = run(directory, &["order", "program", "-t", "traces", "--addresses"]);
    assert!(lines(&order) >= 4, "{order}");
    assert!(order.lines().all(|line| line.starts_with('#') || line.starts_with("function@0x")), "{order}");
    fs::write(directory.join("order"), &order).unwrap();
    run(directory, &["apply", "program", "--order", "order", "-o", "by-order"]);
    run(directory, &["apply", "program", "-t", "traces", "-o", "by-traces"]);
    let read = |name: &str| fs::read(directory.join(name)).unwrap();
    assert!(read("by-order") == read("by-traces") && read("by-order") != read("program"));
}

#[test]
fn early_is_a_share() {
    let directory = recorded("");
    let order = |share: &str| run(directory.path(), &["order", "program", "-t", "traces", "--early", share]);
    assert!(order("0").contains(" early 0 ") && order("100").contains(" early 100 "));
    let refused = attempt(directory.path(), &["order", "program", "-t", "traces", "--early", "101"]);
    assert_eq!(refused.ending, process::Ending::Exited(2), "{refused}");
}

#[test]
fn a_build_id_is_kept_on_request_alone() {
    let directory = recorded("-Wl,--build-id");
    let directory = directory.path();
    let build_id = |name: &str| {
        let bytes = fs::read(directory.join(name)).unwrap();
        ElfFile::parse(&bytes).unwrap().build_id().unwrap().to_vec()
    };
    run(directory, &["apply", "program", "-t", "traces", "-o", "new"]);
    run(directory, &["apply", "program", "-t", "traces", "-o", "kept", "--keep-build-id"]);
    assert_ne!(build_id("new"), build_id("program"));
    assert_eq!(build_id("kept"), build_id("program"));
}

#[test]
fn few_differences_are_listed_and_all_are_counted() {
    let directory = recorded("");
    let directory = directory.path();
    let mut bytes = fs::read(directory.join("program")).unwrap();
    let text = bytes.windows(6).position(|window| window == b"%d %s\n").unwrap();
    bytes[text] ^= 1;
    bytes[text + 4] ^= 1;
    fs::write(directory.join("damaged"), &bytes).unwrap();
    for limit in [1, 2] {
        let words = ["verify", "program", "damaged", "--differences", &limit.to_string(), "--format", "json"];
        let outcome = attempt(directory, &words);
        assert_eq!(outcome.ending, process::Ending::Exited(1), "{outcome}");
        let report = json(&outcome.stdout_text());
        assert_eq!(report["differences"].as_array().unwrap().len(), limit, "{report}");
        assert_eq!(report["difference_count"], 2, "{report}");
    }
}

#[test]
fn each_run_of_optimize_is_recorded_as_often_as_asked() {
    let directory = recorded("");
    let words = ["optimize", "program", "-o", "fast", "--run", "a", "--run", "b", "--measure-runs", "0"];
    let kept = ["--record-runs", "2", "--keep-traces", "kept"];
    run(directory.path(), &[&words[..], &kept].concat());
    assert_eq!(fs::read_dir(directory.path().join("kept")).unwrap().count(), 4);
}
