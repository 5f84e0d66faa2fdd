//! `apply --check` and `optimize`: original and result run side by side, and no file is written unless they behave the same.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::{self, Ending, Outcome, shell, succeed};
use end_to_end::workspace::reorder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(300);

/// Behaves as its first argument says; the behaviour by the distance of two functions changes once they have moved.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// Enough functions that hardly any order leaves the two at their distance.
#define OTHER(n) __attribute__((noinline, used)) int other##n(int x) { for (int i = 0; i < n % 5; i++) x = x * n + i; return x ^ n; }
OTHER(1) OTHER(2) OTHER(3) OTHER(4) OTHER(5) OTHER(6) OTHER(7) OTHER(8) OTHER(9) OTHER(10) OTHER(11) OTHER(12)
__attribute__((noinline)) int one(int n) { return n * 3 + 1; }
__attribute__((noinline)) int two(int n) { return n * 5 + 1; }
__attribute__((noinline)) int three(int n) { return n * 7 + 1; }
int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    int (*volatile first)(int) = one, (*volatile second)(int) = two;
    volatile long distance = (long)first - (long)second;
    int is_moved = distance != DISTANCE;
    char text[100];
    if (!strcmp(what, "equal")) { printf("%d %d %d %s\n", one(count), two(count), three(count), words[0]); return 3; }
    if (!strcmp(what, "unstable")) { printf("first\n%d\n%p\nlast\n", getpid(), (void *)text); return 0; }
    if (!strcmp(what, "growing")) { printf("first\n"); for (int i = 0; i < getpid() % 7; i++) puts("more"); return 0; }
    if (!strcmp(what, "distance")) { printf("first\n%ld\n", distance); return 0; }
    if (!strcmp(what, "error")) { fprintf(stderr, "distance %ld\n", distance); return 0; }
    if (!strcmp(what, "status")) return is_moved;
    if (!strcmp(what, "crash")) { if (is_moved) *(volatile int *)8 = 1; return 0; }
    if (!strcmp(what, "hang")) { while (is_moved) pause(); return 0; }
    if (!strcmp(what, "killed")) abort();
    if (!strcmp(what, "never")) for (;;) pause();
    if (!strcmp(what, "much")) { static char block[70 << 20]; return write(1, block, sizeof block) < 0; }
    if (!strcmp(what, "random")) return getpid() % 2;
    if (!strcmp(what, "input")) { size_t n = fread(text, 1, 99, stdin); printf("<%.*s>\n", (int)n, text); return 0; }
    return 0;
}
"#;

const RANDOM: [&str; 4] = ["--strategy", "random", "--seed", "3"];

/// A directory with `program`.
fn workplace() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.c"), SOURCE).unwrap();
    let make = format!(
        "cd '{}' && gcc -O1 -DDISTANCE=0 program.c -o program && distance=$(./program distance | sed -n 2p) && \
         gcc -O1 \"-DDISTANCE=($distance)\" program.c -o program && test \"$(./program distance | sed -n 2p)\" = \"$distance\"",
        directory.path().display()
    );
    shell(&make, LIMIT).unwrap();
    directory
}

fn attempt(directory: &Path, words: &[&str]) -> Outcome {
    process::run(reorder().args(words).current_dir(directory), LIMIT).unwrap()
}

fn apply(directory: &Path, words: &[&str]) -> Outcome {
    attempt(directory, &[&["apply", "program"][..], &RANDOM, words].concat())
}

fn names(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// No file is written, the status reports the difference, and the message has all of `expected`.
fn assert_found(directory: &Path, outcome: &Outcome, expected: &[&str]) {
    let said = outcome.stderr_text();
    assert_eq!(outcome.ending, Ending::Exited(1), "{outcome}");
    for expected in expected.iter().chain(&["nothing was written", "please report this image"]) {
        assert!(said.contains(expected), "{expected}: {outcome}");
    }
    assert!(!said.contains("leave out --check"), "{outcome}");
    assert_eq!(names(directory), ["program", "program.c"]);
}

#[test]
fn equal_runs_are_told_and_the_result_is_written() {
    let directory = workplace();
    let directory = directory.path();
    let checks = ["--check", "equal 'a b'", "--check", "", "--format", "json"];
    let outcome = apply(directory, &[&["-o", "new"][..], &checks].concat());
    assert!(outcome.success(), "{outcome}");
    let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    let field = |check: usize, name: &str| report["checks"][check][name].clone();
    assert_eq!(field(0, "arguments"), "equal 'a b'");
    assert_eq!(field(0, "status"), "exit status 3");
    assert_eq!((field(0, "stdout_bytes"), field(0, "stderr_bytes")), (17.into(), 0.into()));
    assert_eq!((field(0, "unstable_lines"), field(0, "is_killed")), (0.into(), false.into()));
    assert_eq!((field(1, "arguments"), field(1, "status")), ("".into(), "exit status 0".into()));
    assert_eq!(names(directory), ["new", "program", "program.c"]);
    assert_ne!(fs::read(directory.join("new")).unwrap(), fs::read(directory.join("program")).unwrap());
    // Without `--check` the difference is not detected.
    let plain: Value =
        serde_json::from_slice(&apply(directory, &["-o", "new", "--format", "json"]).stdout).unwrap();
    assert_eq!(plain["checks"], Value::Array(Vec::new()));
}

// case: a result that does something else than its original
#[test]
fn each_difference_is_found_before_anything_is_written() {
    let directory = workplace();
    let directory = directory.path();
    for (what, expected) in [
        (
            "distance",
            &["does something else; it ends with exit status 0", "line 2 of its standard output", "at byte "]
                [..],
        ),
        ("error", &["line 1 of its standard error", "instead of \"distance -"]),
        ("status", &["it ends with exit status 1, the original ends with exit status 0"]),
        ("crash", &["fails: it ends with signal SIGSEGV", "this is a defect of reorder"]),
    ] {
        assert_found(directory, &apply(directory, &["-o", "new", "--check", what]), expected);
        assert_found(
            directory,
            &apply(directory, &["--in-place", "--check", "equal", "--check", what]),
            expected,
        );
    }
    let hangs = apply(directory, &["-o", "new", "--check", "hang", "--time-limit", "1"]);
    assert_found(directory, &hangs, &["fails: it does not end in time", "this is a defect of reorder"]);
}

// case: a result that does something else than its original
#[test]
fn what_differs_in_the_original_itself_is_not_compared() {
    let directory = workplace();
    let directory = directory.path();
    for (what, lines) in
        [("unstable", "2 lines differ between runs of the original alone"), ("growing", "checked: `growing`")]
    {
        let outcome = apply(directory, &["-o", "new", "--check", what]);
        assert!(outcome.success() && outcome.stdout_text().contains(lines), "{outcome}");
    }
    // The check passes if both end in the same way, even if they fail.
    let killed = apply(directory, &["-o", "new", "--check", "killed"]);
    assert!(killed.success() && killed.stdout_text().contains("a signal ends the original, too"), "{killed}");
    fs::remove_file(directory.join("new")).unwrap();
    for (what, expected) in [
        ("never", "is still running after 1 s"),
        ("much", "prints more than 64 MiB"),
        ("random", "check a run that always ends alike"),
    ] {
        // Two runs may end alike by chance; then a third differs.
        let mut outcomes =
            (0..30).map(|_| apply(directory, &["-o", "new", "--check", what, "--time-limit", "1"]));
        let refused = outcomes.find(|outcome| outcome.ending == Ending::Exited(2)).unwrap();
        assert!(refused.stderr_text().contains(expected), "{refused}");
    }
}

#[test]
fn a_signal_leaves_no_trial() {
    let directory = workplace();
    let directory = directory.path();
    let mut checking = reorder()
        .args(["apply", "program"])
        .args(RANDOM)
        .args(["-o", "new", "--check", "never", "--time-limit", "60", "--quiet"])
        .current_dir(directory)
        .spawn()
        .unwrap();
    let is_trying = || names(directory).iter().any(|name| name.starts_with(".reorder-check-"));
    while !is_trying() {
        assert!(checking.try_wait().unwrap().is_none(), "it ended before it tried anything");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(checking.id().cast_signed()), Signal::SIGTERM).unwrap();
    let status = checking.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "{status}");
    assert_eq!(names(directory), ["program", "program.c"]);
}

#[test]
fn input_is_the_same_for_all_and_empty_unless_given() {
    let directory = workplace();
    let directory = directory.path();
    fs::write(directory.join("text"), "some input").unwrap();
    let bytes = |words: &[&str]| {
        let outcome =
            apply(directory, &[&["-o", "new", "--check", "input", "--format", "json"][..], words].concat());
        let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        report["checks"][0]["stdout_bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes(&["--check-input", "text"]), "<some input>\n".len() as u64);
    assert_eq!(bytes(&[]), "<>\n".len() as u64);
    let refused = apply(directory, &["-o", "text", "--check", "input", "--check-input", "text"]);
    assert!(refused.stderr_text().contains("would replace the input of checked runs"), "{refused}");
}

#[test]
fn a_set_and_copies_are_checked_as_they_will_run() {
    let directory = workplace();
    let directory = directory.path();
    let set = apply(directory, &["--set", "set", "--check", "equal"]);
    assert!(set.success() && set.stdout_text().contains("checked: `equal`"), "{set}");
    assert_eq!(names(directory), ["program", "program.c", "set"]);
    fs::remove_dir_all(directory.join("set")).unwrap();
    assert_found(
        directory,
        &apply(directory, &["--set", "set", "--check", "distance"]),
        &["line 2 of its standard output"],
    );
    assert_found(
        directory,
        &apply(directory, &["--clone=all", "-o", "new", "--check", "distance"]),
        &["line 2"],
    );
    let in_place = apply(directory, &["--in-place", "--check", "equal"]);
    assert!(in_place.success(), "{in_place}");
}

// case: a result that does something else than its original
#[test]
fn optimize_always_checks() {
    let directory = workplace();
    let directory = directory.path();
    let optimize = |run: &str| {
        let words =
            ["optimize", "program", "-o", "new", "--run", run, "--measure-runs", "0", "--format", "json"];
        attempt(directory, &[&words[..], &RANDOM].concat())
    };
    for what in ["distance", "crash"] {
        assert_found(directory, &optimize(what), &[&format!("`{what}`: the moved program")]);
    }
    let outcome = optimize("equal");
    let report: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(report["runs"][0]["checked"]["status"], "exit status 3", "{outcome}");
}

#[test]
fn a_place_where_not_even_the_original_runs_is_told() {
    let directory = workplace();
    let directory = directory.path();
    let make = "echo 'int f(void) { return 4; }' > f.c && gcc -shared -fPIC f.c -o libf.so && \
                echo 'int f(void); int main(void) { return f(); }' > g.c && gcc g.c -o program -L. -lf -Wl,-rpath,'$ORIGIN' && mkdir far";
    shell(&format!("cd '{}' && {make}", directory.display()), LIMIT).unwrap();
    let beside = apply(directory, &["-o", "new", "--check", ""]);
    assert!(beside.success(), "{beside}");
    let far = apply(directory, &["-o", "far/new", "--check", ""]);
    let said = far.stderr_text();
    assert!(
        far.ending == Ending::Exited(2)
            && said.contains("/far")
            && said.contains("as a copy in")
            && said.contains("from its own directory"),
        "{far}"
    );
    assert!(names(&directory.join("far")).is_empty());
}

#[test]
fn what_is_no_program_of_this_machine_is_refused_beforehand() {
    let directory = workplace();
    let directory = directory.path();
    let foreign = if cfg!(target_arch = "x86_64") { "aarch64-linux-gnu-gcc" } else { "x86_64-linux-gnu-gcc" };
    let make = format!(
        "{foreign} -DDISTANCE=0 program.c -o foreign && gcc -DDISTANCE=0 -shared -fPIC program.c -o library.so && \
         clang$LLVM --target=arm64-apple-macos12 -c -o app.o -x c - <<< 'int f(int a) {{ return a; }} int g(int a) {{ return f(a); }}' && \
         ld64.lld$LLVM -arch arm64 -platform_version macos 12 12 -dylib app.o -o app"
    );
    shell(&format!("cd '{}' && {make}", directory.display()), LIMIT).unwrap();
    for (image, expected) in [
        ("foreign", "reorder checks what is for"),
        ("library.so", "--check runs a program, and this is a library"),
        ("app", "a Mach-O image, which this system cannot run"),
    ] {
        let outcome =
            attempt(directory, &[&["apply", image, "-o", "new", "--check", "equal"][..], &RANDOM].concat());
        assert!(outcome.ending == Ending::Exited(2) && outcome.stderr_text().contains(expected), "{outcome}");
    }
    let open = apply(directory, &["-o", "new", "--check", "'open"]);
    assert!(open.stderr_text().contains("a quotation mark or an escaped character is missing"), "{open}");
    assert!(!directory.join("new").exists());
    let help = succeed(reorder().args(["apply", "--help"]));
    assert!(help.contains("--check <ARGS>") && help.contains("--check-input <FILE>"), "{help}");
}
