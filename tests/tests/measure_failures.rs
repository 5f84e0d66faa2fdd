//! `reorder measure` in error cases: crashes, runs without end, interruptions, and exports in the wrong place.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use end_to_end::workspace::reorder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Crashes, waits for ever next to a child that writes its process number into a file, or exits with 0.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "crash")) abort();
    if (count > 2 && !strcmp(arguments[1], "wait")) {
        int child = fork();
        if (child) {
            FILE *file = fopen(arguments[2], "w");
            fprintf(file, "%d", child);
            fclose(file);
        }
        for (;;) pause();
    }
    if (count > 1 && !strcmp(arguments[1], "other")) execl("/bin/true", "true", (char *)0);
    return 0;
}
"#;

fn workplace() -> TempDir {
    let directory = TempDir::new_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("program.c"), SOURCE).unwrap();
    let built = Command::new("gcc").arg("-O1").arg("-o").arg(path("program")).arg(path("program.c")).status();
    assert!(built.unwrap().success());
    directory
}

fn measure(directory: &Path, arguments: &[&str]) -> Output {
    reorder().arg("measure").args(arguments).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exports_replace_nothing_that_is_measured() {
    let workplace = workplace();
    let directory = workplace.path();
    let program = fs::read(directory.join("program")).unwrap();
    fs::hard_link(directory.join("program"), directory.join("linked")).unwrap();
    fs::write(directory.join("reorder.toml"), "[measure]\nruns = 1\n").unwrap();
    for (exports, expected) in [
        (&["--export", "json=program"] as &[&str], "would replace"),
        (&["--export", "json=linked"], "would replace"),
        (&["--export", "csv=reorder.toml"], "would replace"),
        (&["--export", "csv=a", "--export", "json=./a"], "another output"),
        (&["--export", "csv=none/a"], "none"),
    ] {
        let output = measure(directory, &[&["./program"], exports].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{exports:?}: {message}");
        assert!(message.contains(expected) && output.stdout.is_empty(), "{exports:?}: {message}");
    }
    assert_eq!(fs::read(directory.join("program")).unwrap(), program);
}

#[test]
fn how_runs_end_is_told() {
    let workplace = workplace();
    let directory = workplace.path();
    let told = |arguments: &[&str]| {
        let output = measure(directory, &[&["./program", "--runs", "1", "--"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(
        told(&["\u{1b}[2J"]).contains("\\u{1b}[2J")
            && told(&[]).contains("every run ended with exit status 0")
    );
    let crash = told(&["crash"]);
    assert!(crash.contains("note: every run ended with signal SIGABRT"), "{crash}");
    let other = told(&["other"]);
    assert!(other.contains("executed another one") && !other.contains("could not be traced"), "{other}");
}

#[test]
fn signals_of_every_number_reach_the_measured_program() {
    let workplace = workplace();
    let directory = workplace.path();
    let source = r#"
        #include <pthread.h>
        #include <signal.h>
        #include <string.h>
        #include <unistd.h>
        static volatile int seen;
        void see(int signal) { seen += signal; }
        /* The C library tells all threads by a signal of its own. */
        void *change(void *unused) { setgid(getgid()); return 0; }
        int main(int count, char **arguments) {
            if (count > 1 && !strcmp(arguments[1], "killed")) raise(SIGRTMIN + 4);
            signal(SIGUSR1, see);
            signal(SIGRTMIN + 3, see);
            raise(SIGUSR1);
            raise(SIGRTMIN + 3);
            pthread_t thread;
            pthread_create(&thread, 0, change, 0);
            pthread_join(thread, 0);
            return seen == SIGUSR1 + SIGRTMIN + 3 ? 7 : 1;
        }"#;
    fs::write(directory.join("signals.c"), source).unwrap();
    let mut built = Command::new("gcc");
    built.args(["-pthread", "-o", "signals", "signals.c"]).current_dir(directory);
    assert!(built.status().unwrap().success());
    for (arguments, ending) in [(&[] as &[&str], "exit status 7"), (&["killed"], "signal 38")] {
        let output = measure(directory, &[&["./signals", "--runs", "2", "--"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = text(&output.stdout);
        assert!(told.contains(&format!("every run ended with {ending}")), "{told}");
    }
}

#[test]
fn programs_of_another_processor_are_refused() {
    let workplace = workplace();
    let directory = workplace.path();
    let mut built = Command::new("aarch64-linux-gnu-gcc");
    built.args(["-w", "-Wl,--emit-relocs", "-o", "foreign", "program.c"]).current_dir(directory);
    assert!(built.status().unwrap().success());
    fs::write(directory.join("reorder.toml"), "[scenario.a]\nprogram = './foreign'\ntraces = ['t']\n")
        .unwrap();
    for (arguments, verb) in [
        (&["measure", "./foreign"] as &[&str], "measure"),
        (&["measure", "./program", "./foreign"], "measure"),
        (&["measure", "./foreign", "--agreement", "-t", "t"], "measure"),
        (&["measure"], "measure"),
        (&["optimize", "./foreign", "--run", "", "-o", "new"], "record"),
    ] {
        let output = reorder().args(arguments).current_dir(directory).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        let refusal = format!("this image is for AArch64, and this reorder {verb}s what is for x86-64");
        let cure = format!("{verb} it on AArch64 with a reorder built for it, or ");
        assert!(message.contains(&refusal) && message.contains(&cure), "{arguments:?}: {message}");
    }
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let workplace = workplace();
    let directory = workplace.path();
    let scenario = "[scenario.a]\nprogram = './program'\ndirectory = 'missing'\n";
    fs::write(directory.join("reorder.toml"), scenario).unwrap();
    let output = measure(directory, &["--runs", "1"]);
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("missing"), "{message}");
}

#[test]
fn flags_that_would_be_ignored_or_mean_nothing_are_refused() {
    let workplace = workplace();
    for flags in [&["--export", "csv=a"] as &[&str], &["--within", "nan"], &["--within=-1"]] {
        let output =
            measure(workplace.path(), &[&["./program", "--agreement", "-t", "none"], flags].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(
            message.contains("cannot be used with") || message.contains("0 or more"),
            "{flags:?}: {message}"
        );
    }
}

/// Whether a process has ended, or is a zombie that its new parent has not reaped yet.
fn has_ended(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.is_empty() || status.rsplit(") ").next().unwrap().starts_with('Z')
}

#[test]
fn runs_that_are_stopped_leave_no_children_and_no_copies() {
    let workplace = workplace();
    let directory = workplace.path();
    let late = measure(directory, &["./program", "--runs", "1", "--time-limit", "1", "--", "wait", "late"]);
    assert!(text(&late.stderr).contains("still running"), "{}", text(&late.stderr));
    let interrupted = reorder()
        .args(["measure", "./program", "--runs", "1", "--", "wait", "interrupted"])
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let child = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    while child("interrupted").is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "the program was never started");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(interrupted.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = interrupted.wait_with_output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(Signal::SIGTERM as i32));
    for name in ["late", "interrupted"] {
        // Killed, but the process may still exist for a moment.
        let started = Instant::now();
        while !has_ended(&child(name)) {
            assert!(started.elapsed() < Duration::from_secs(60), "{name}: the child is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let left =
        fs::read_dir(directory).unwrap().map(|entry| text(entry.unwrap().file_name().as_encoded_bytes()));
    assert_eq!(left.filter(|name| name.starts_with(".reorder-measure-")).count(), 0);
}
