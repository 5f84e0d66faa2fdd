//! The command `reorder measure`: scenarios of `reorder.toml`, cold and warm starts, exports, and errors.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use end_to_end::process::copy_executable;
use end_to_end::workspace::reorder;
use tempfile::TempDir;

/// A program that reports its argument, directory and a variable by its exit status.
const SOURCE: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
    char place[4096];
    const char *mode = getenv("MODE");
    if (count > 1 && !strcmp(arguments[1], "children")) {
        int ends[2];
        if (pipe(ends)) return 1;
        for (int i = 0; i < 3; i++)
            if (!fork()) { volatile char *page = malloc(64 << 12); for (int j = 0; j < 64; j++) page[j << 12] = 1; _exit(0); }
        close(ends[1]);
        /* The pipe ends when all of them have, without waiting for any. */
        return read(ends[0], place, 1) != 0;
    }
    return count > 1 && !strcmp(arguments[1], "check")
        ? !(mode && !strcmp(mode, "fast") && getcwd(place, sizeof place) && !strcmp(strrchr(place, '/'), "/data"))
        : 0;
}
"#;

/// A directory on a real disk with the program as `old` and `new`.
fn workplace() -> TempDir {
    let directory = TempDir::new_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("program.c"), SOURCE).unwrap();
    let built =
        Command::new("gcc").arg("-O1").arg("-o").arg(path("old")).arg(path("program.c")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    copy_executable(&path("old"), &path("new")).unwrap();
    fs::create_dir(path("data")).unwrap();
    directory
}

fn measure(directory: &Path, arguments: &[&str]) -> Output {
    reorder().arg("measure").args(arguments).current_dir(directory).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const CONFIGURATION: &str = r#"
[measure]
runs = 2

[scenario.check]
program = "old"
arguments = ["check"]
directory = "data"
environment = { MODE = "fast" }

[scenario.plain]
program = "./old"
runs = 3

[scenario.traced]
traces = ["traces"]
"#;

#[test]
fn scenarios_come_from_the_configuration() {
    let workplace = workplace();
    let directory = workplace.path();
    fs::write(directory.join("reorder.toml"), CONFIGURATION.replace("\"old\"", "\"./old\"")).unwrap();
    let report = json(&measure(directory, &["--format", "json", "--start", "both"]));
    let measurements = report["measurements"].as_array().unwrap();
    let shown: Vec<_> = measurements
        .iter()
        .map(|one| {
            let word = |key: &str| one[key].as_str().unwrap().to_owned();
            (word("scenario"), word("start"), one["rounds"].as_u64().unwrap(), word("status"))
        })
        .collect();
    let line = |name: &str, start: &str, rounds| {
        (name.to_owned(), start.to_owned(), rounds, "exit status 0".to_owned())
    };
    let expected = [
        line("check", "cold", 2),
        line("check", "warm", 2),
        line("plain", "cold", 3),
        line("plain", "warm", 3),
    ];
    assert_eq!(shown, expected, "directory and environment make `check` succeed");
    // A subdirectory finds the file above; programs on the command line replace those of the scenarios.
    let pair = json(&measure(
        &directory.join("data"),
        &["../old", "../new", "--scenario", "plain", "--runs", "7", "--format", "json"],
    ));
    let measurements = pair["measurements"].as_array().unwrap();
    assert_eq!(measurements.len(), 1);
    assert_eq!((&measurements[0]["new"], measurements[0]["rounds"].as_u64()), (&"../new".into(), Some(7)));
    let figure = |kind: &str| {
        measurements[0]["figures"]
            .as_array()
            .unwrap()
            .iter()
            .find(|figure| figure["kind"] == kind)
            .unwrap()
            .clone()
    };
    assert_eq!(figure("wall_milliseconds")["old"]["values"].as_array().unwrap().len(), 7);
    assert!(figure("text_pages_touched")["change_interval_percent"]["low"].as_f64() == Some(0.0));
    let unknown = measure(directory, &["--scenario", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(message.contains("check, plain, traced"), "{message}");
}

#[test]
fn exports_hold_every_run() {
    let workplace = workplace();
    let directory = workplace.path();
    let run = measure(
        directory,
        &[
            "./old",
            "./new",
            "--runs",
            "6",
            "--start",
            "both",
            "--export",
            "csv=a",
            "--export",
            "json=b",
            "--export",
            "markdown=c",
            "--",
            "a,b \"c\"",
        ],
    );
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let lines: Vec<Vec<String>> = csv::Reader::from_path(directory.join("a"))
        .unwrap()
        .into_records()
        .map(|record| record.unwrap().iter().map(str::to_owned).collect())
        .collect();
    let wall = lines.iter().filter(|line| line[2] == "wall_milliseconds");
    assert_eq!(wall.clone().count(), 2 * 2 * 6, "two kinds of start, two programs, six rounds");
    assert!(wall.clone().all(|line| line[0] == "a,b \"c\"" && line[5].parse::<f64>().unwrap() > 0.0));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(directory.join("b")).unwrap()).unwrap();
    assert_eq!((&report["schema"], &report["command"]), (&"reorder/1".into(), &"measure".into()));
    let markdown = fs::read_to_string(directory.join("c")).unwrap();
    assert!(
        markdown.contains("| 6 cold starts each | old | new |")
            && markdown.contains("| text pages touched |")
    );
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    for expected in
        ["6 cold starts each", "6 warm starts each", "pages touched", "did not touch", "system: Linux"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for (export, cure) in [
        ("a.csv", "write FORM=FILE"),
        ("text=a", "there are json, markdown, csv"),
        ("json=-", "--format json"),
    ] {
        let refused = measure(directory, &["./old", "--export", export]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && message.contains(cure), "{export}: {message}");
    }
}

#[test]
fn counters_see_children_that_no_process_waits_for() {
    let workplace = workplace();
    let report = json(&measure(
        workplace.path(),
        &["./old", "--runs", "1", "--warm", "--format", "json", "--", "children"],
    ));
    let figures = report["measurements"][0]["figures"].as_array().unwrap();
    let value = |kind: &str| {
        let figure = figures.iter().find(|figure| figure["kind"] == kind).unwrap();
        figure["program"]["median"].as_f64().unwrap()
    };
    // Three children with 64 pages each, which the process itself does not touch.
    assert!(value("page_faults_counted") >= value("minor_faults") + 100.0, "{figures:?}");
    assert!(value("processor_milliseconds") > 0.0);
}

#[test]
fn mistakes_name_the_next_step() {
    let workplace = workplace();
    let directory = workplace.path();
    fs::write(directory.join("reorder.toml"), "[scenario.a]\ntraces = [\"t\"]\n").unwrap();
    for (arguments, expected) in [
        (&["--runs", "1"] as &[&str], "reorder measure PROGRAM -- ARGUMENTS"),
        (&["./old", "--runs", "0"], "--runs 1"),
        (&["./old", "--confidence", "100"], "from 50 to less than 100"),
        (&["./old", "-t", "traces"], "--agreement"),
        (&["--agreement"], "PROGRAM"),
    ] {
        let output = measure(directory, arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    // With too few runs for an interval, the report says how many are needed.
    let few = measure(directory, &["./old", "./new", "--runs", "2", "--", "x"]);
    assert!(
        String::from_utf8_lossy(&few.stdout).contains("--runs 6"),
        "{}",
        String::from_utf8_lossy(&few.stdout)
    );
}
