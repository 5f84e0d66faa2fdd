//! `reorder gate --measure`: measured runs of two builds, judged only where they have a limit.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;
use std::process::{Command, Output};

use end_to_end::workspace::reorder;
use serde_json::Value;

/// Sleeps for a time set at build time: no system makes it shorter, and the longest exceeds any delay of a busy one.
const SOURCE: &str = "
#include <unistd.h>
int main(void) { usleep(MICROSECONDS); return 0; }
";

fn call(arguments: &[&str], directory: &Path) -> Output {
    reorder().args(arguments).current_dir(directory).output().unwrap()
}

fn build(name: &str, microseconds: u32, directory: &Path) {
    std::fs::write(directory.join("program.c"), SOURCE).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o", name, "program.c", &format!("-DMICROSECONDS={microseconds}")]);
    assert!(compiler.current_dir(directory).status().expect("gcc is installed").success());
}

/// Three builds: `fast`, `again` with the same wait, `slow` with a much longer one; the baseline is of `fast`.
fn builds(limits: &str, directory: &Path) {
    for (name, microseconds) in [("fast", 1_000), ("again", 1_000), ("slow", 1_000_000)] {
        build(name, microseconds, directory);
    }
    assert!(call(&["record", "-q", "-o", "traces", "--", "./fast"], directory).status.success());
    // One scenario, whose name is not that of the folder.
    let configuration = format!(
        "[gate]\ncompressors = []\n[gate.limits]\nfaults = 'off'\ntrace-coverage = 'off'\n{limits}\n[scenario.wait]\ntraces = ['names']\nruns = 7\n"
    );
    std::fs::write(directory.join("reorder.toml"), configuration).unwrap();
    // By name, because the three are different builds.
    let list = call(&["traces", "convert", "--to", "list", "-o", "names", "traces"], directory);
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let written = call(&["gate", "fast", "--update-baseline"], directory);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
}

fn checks(output: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    report["checks"].as_array().unwrap().clone()
}

fn verdict(output: &Output, metric: &str) -> Option<String> {
    let found = checks(output).into_iter().find(|check| check["metric"] == metric)?;
    assert_eq!(found["scenario"], "wait");
    Some(found["verdict"].as_str().unwrap().to_owned())
}

#[test]
fn slower_runs_fail_and_noise_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    builds("wall-milliseconds = '+100 %'", directory);
    let judge = |image| call(&["gate", image, "--measure", "fast", "--format", "json"], directory);
    let (again, slow) = (judge("again"), judge("slow"));
    assert_eq!(verdict(&slow, "wall-milliseconds").as_deref(), Some("fail"));
    assert_eq!(slow.status.code(), Some(1));
    assert_eq!(verdict(&again, "wall-milliseconds").as_deref(), Some("pass"));
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stdout));
}

#[test]
fn times_need_a_limit_to_fail_and_a_flag_to_be_measured() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    builds("", directory);
    let shown = call(&["gate", "slow", "--measure", "fast", "--format", "json"], directory);
    assert_eq!(verdict(&shown, "wall-milliseconds").as_deref(), Some("unlimited"));
    assert_eq!(shown.status.code(), Some(0));
    let quiet = call(&["gate", "slow", "--format", "json"], directory);
    assert_eq!(verdict(&quiet, "wall-milliseconds"), None);
}

#[test]
fn runs_too_few_to_show_anything_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    builds("wall-milliseconds = '+100 %'", directory);
    let few = call(&["gate", "slow", "--measure", "fast", "--runs", "2"], directory);
    let told = String::from_utf8_lossy(&few.stderr);
    assert_eq!(few.status.code(), Some(2));
    assert!(told.contains("cannot show anything") && told.contains("--runs 5"), "{told}");
}
