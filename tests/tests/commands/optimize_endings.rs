//! `optimize`, `record` and `apply --check` of programs that do not end by themselves, and of programs that read their
//! standard input.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use end_to_end::process::{self, Outcome, shell};
use end_to_end::workspace::reorder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(300);

/// A server with a child, which ends in its own way when it is asked to; and a filter.
const SOURCE: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#define OTHER(n) __attribute__((noinline, used)) int other##n(int x) { for (int i = 0; i < n % 5; i++) x = x * n + i; return x ^ n; }
OTHER(1) OTHER(2) OTHER(3) OTHER(4) OTHER(5) OTHER(6) OTHER(7) OTHER(8) OTHER(9) OTHER(10) OTHER(11) OTHER(12)
static volatile sig_atomic_t asked;
__attribute__((noinline)) void ask(int signal) { asked = signal; }
__attribute__((noinline)) int serve(void) {
    signal(SIGTERM, ask);
    if (!fork()) { prctl(PR_SET_NAME, "endless-child"); for (;;) pause(); }
    puts("starting");
    puts("ready to accept connections");
    fflush(stdout);
    while (!asked) usleep(1000);
    puts("shut down");
    return 7;
}
__attribute__((noinline)) int filter(void) {
    char text[100];
    size_t length = fread(text, 1, sizeof text, stdin);
    printf("%zu bytes\n", length);
    return other5(length) == 0;
}
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "serve")) return serve();
    if (count > 1 && !strcmp(words[1], "filter")) return filter();
    return other3(count) == 0;
}
"#;

fn workplace() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.c"), SOURCE).unwrap();
    shell(&format!("cd '{}' && gcc -O1 program.c -o program", directory.path().display()), LIMIT).unwrap();
    directory
}

fn attempt(directory: &Path, words: &[&str]) -> Outcome {
    process::run(reorder().args(words).current_dir(directory), LIMIT).unwrap()
}

/// Processes called `name` that have `directory` as their own.
fn left_running(directory: &Path, name: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_left = |process: &Path| {
        fs::read_to_string(process.join("comm")).is_ok_and(|comm| comm.trim() == name)
            && fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == directory)
    };
    processes.filter(|process| is_left(process)).count()
}

/// Nothing but these files is in the directory.
fn assert_files(directory: &Path, expected: &[&str]) {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_server_is_recorded_checked_and_measured_until_it_is_ready() {
    let directory = workplace();
    let directory = directory.path().canonicalize().unwrap();
    for (number, ending) in
        [&["--until", "ready to accept"][..], &["--stop-after", "0.3"]].into_iter().enumerate()
    {
        let output = format!("new{number}");
        let words = ["optimize", "program", "-o", &output, "--run", "serve", "--measure-runs", "2"];
        let outcome = attempt(&directory, &[&words[..], ending, &["--format", "json"]].concat());
        assert!(outcome.success(), "{ending:?} {outcome}");
        let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let run = &report["runs"][0];
        assert_eq!(run["checked"]["status"], "exit status 7", "{ending:?}: it ended in its own way");
        assert_eq!(run["checked"]["was_asked_to_end"], true);
        assert_eq!(run["measured"]["status"], "exit status 7", "{ending:?}");
        assert!(run["simulated"]["old_faults"].as_u64().unwrap() > 0);
        assert_eq!(left_running(&directory, "endless-child"), 0, "{ending:?}");
    }
    assert_files(&directory, &["new0", "new1", "program", "program.c"]);
}

/// Something else was recorded than a server that is ready.
#[test]
fn a_server_that_never_gets_ready_is_told() {
    let directory = workplace();
    let directory = directory.path();
    let words = [
        "optimize",
        "program",
        "-o",
        "new",
        "--run",
        "",
        "--until",
        "ready to accept",
        "--measure-runs",
        "0",
    ];
    let outcome = attempt(directory, &words);
    let told = "the run `` ended by itself with exit status 0 and never printed `ready to accept`";
    assert!(outcome.success() && outcome.stderr_text().contains(told), "{outcome}");
    assert!(outcome.stdout_text().contains("checked: `` ends with exit status 0"), "{outcome}");
}

#[test]
fn endless_runs_stop_at_the_time_limit_and_flags_are_named() {
    let directory = workplace();
    let directory = directory.path().canonicalize().unwrap();
    let words = ["optimize", "program", "-o", "new", "--run", "serve", "--time-limit", "1"];
    let outcome = attempt(&directory, &words);
    let said = outcome.stderr_text();
    assert!(!outcome.success(), "{outcome}");
    for expected in ["`serve`: still running after 1 s", "--stop-after SECONDS", "--until"] {
        assert!(said.contains(expected), "{expected}: {outcome}");
    }
    let words = ["record", "-o", "traces", "--time-limit", "1", "--", "./program", "serve"];
    let outcome = attempt(&directory, &words);
    assert!(outcome.stderr_text().contains("--stop-after SECONDS"), "{outcome}");
    assert_eq!(left_running(&directory, "program"), 0);
}

#[test]
fn record_and_checks_end_a_server_and_pass_on_what_it_prints() {
    let directory = workplace();
    let directory = directory.path().canonicalize().unwrap();
    let words = ["record", "-o", "traces", "--until", "ready to accept", "--", "./program", "serve"];
    let outcome = attempt(&directory, &words);
    assert_eq!(outcome.ending, process::Ending::Exited(7), "{outcome}");
    assert_eq!(outcome.stdout_text(), "starting\nready to accept connections\nshut down\n");
    let words = ["apply", "program", "-t", "traces", "-o", "new", "--check", "serve", "--until", "ready"];
    let outcome = attempt(&directory, &words);
    assert!(outcome.success(), "{outcome}");
    assert!(outcome.stdout_text().contains("is asked to end"), "{outcome}");
}

#[test]
fn standard_input_is_given_or_missed() {
    let directory = workplace();
    let directory = directory.path();
    let optimize = ["optimize", "program", "-o", "new", "--measure-runs", "1", "--run"];
    let missed = "reads its standard input, which is empty";
    let outcome = attempt(directory, &[&optimize[..], &["filter"]].concat());
    assert!(outcome.success() && outcome.stderr_text().contains(missed), "{outcome}");
    assert!(outcome.stderr_text().contains("--stdin FILE"), "{outcome}");
    let outcome = attempt(directory, &[&optimize[..], &[""]].concat());
    assert!(outcome.success() && !outcome.stderr_text().contains(missed), "{outcome}");
    fs::write(directory.join("text"), "twelve bytes").unwrap();
    let given = [&optimize[..], &["filter", "--stdin", "text", "--format", "json"]].concat();
    let outcome = attempt(directory, &given);
    assert!(outcome.success() && !outcome.stderr_text().contains(missed), "{outcome}");
    let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(report["runs"][0]["checked"]["stdout_bytes"], "12 bytes\n".len());
    let outcome = attempt(directory, &[&optimize[..], &["filter", "--stdin", "missing"]].concat());
    assert!(!outcome.success() && outcome.stderr_text().contains("missing"), "{outcome}");
}

/// At whatever moment Ctrl-C comes, in any phase.
#[test]
fn an_interruption_leaves_no_file_and_no_process() {
    let directory = workplace();
    let directory = directory.path().canonicalize().unwrap();
    let words = ["optimize", "program", "-o", "new", "--run", "serve", "--stop-after", "0.2"];
    for step in 0..14 {
        let mut child = reorder()
            .args(words)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(70 + step * step * 12));
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT);
        let _ = child.wait().unwrap();
        // The output is there if it was written before the interruption; then it is whole.
        if directory.join("new").exists() {
            let verified = attempt(&directory, &["verify", "program", "new"]);
            assert!(verified.success(), "step {step}: {verified}");
            fs::remove_file(directory.join("new")).unwrap();
        }
        assert_files(&directory, &["program", "program.c"]);
        let begun = Instant::now();
        while left_running(&directory, "endless-child") + left_running(&directory, "program") > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "step {step}: processes are left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_program_is_found_in_path_and_scripts_are_told() {
    let directory = workplace();
    let directory = directory.path();
    let path = std::env::join_paths(
        std::iter::once(directory.to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    fs::create_dir(directory.join("elsewhere")).unwrap();
    let mut command = reorder();
    command.args(["optimize", "program", "-o", "new", "--run", "", "--measure-runs", "0"]);
    let outcome =
        process::run(command.env("PATH", path.unwrap()).current_dir(directory.join("elsewhere")), LIMIT);
    let outcome = outcome.unwrap();
    assert!(outcome.success() && directory.join("elsewhere/new").exists(), "{outcome}");
    fs::write(directory.join("script"), "#!/bin/sh\nexit 0\n").unwrap();
    shell(&format!("chmod +x '{}/script'", directory.display()), LIMIT).unwrap();
    let outcome = attempt(directory, &["record", "-o", "traces", "--", "./script"]);
    assert!(
        outcome.stderr_text().contains("./script is a script: the program that runs it was recorded"),
        "{outcome}"
    );
}

/// Most of its code is in no function that a table knows.
#[test]
fn code_in_no_known_function_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let source = ".text\n.globl main\n.type main, @function\nmain: xor %eax, %eax\n jmp hidden\n.size main, . - main\nhidden: \
                  ret\n.fill 100000, 1, 0x90\n.section .note.GNU-stack\n";
    fs::write(directory.join("program.s"), source).unwrap();
    shell(&format!("cd '{}' && gcc program.s -o program", directory.display()), LIMIT).unwrap();
    let outcome = attempt(directory, &["record", "-o", "traces", "--", "./program"]);
    assert!(outcome.stderr_text().contains("is in no known function"), "{outcome}");
}
