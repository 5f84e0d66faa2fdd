//! The command as users run it: streams, exit statuses, formats, and the whole pipeline.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn reorder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reorder"));
    command.env_remove("NO_COLOR");
    command
}

fn run(arguments: &[&str]) -> Output {
    reorder().args(arguments).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// 240 functions of about 200 bytes; the program calls each 24th, so that its startup touches many pages.
fn build_program(directory: &Path) -> PathBuf {
    let mut source = String::from("#include <stdio.h>\nvolatile int sink;\n");
    for number in 0..240 {
        let body: String = (0..12).map(|line| format!("sink = sink * {number} + {line};")).collect();
        source.push_str(&format!("__attribute__((noinline)) void f{number}(void) {{ {body} }}\n"));
    }
    source.push_str("int main(int count, char **arguments) {\n");
    for number in (0..240).step_by(24) {
        source.push_str(&format!("f{number}();\n"));
    }
    source.push_str("printf(\"%d %s\\n\", sink, count > 1 ? arguments[1] : \"\"); return 3; }\n");
    let (input, program) = (directory.join("program.c"), directory.join("program"));
    fs::write(&input, source).expect("writable");
    let status = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&input).status();
    assert!(status.expect("a C compiler is installed").success());
    program
}

/// Next to the test programs, on a disk: a file system in memory has no cold starts.
fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("writable")
}

#[test]
fn optimize_keeps_behaviour_and_saves_pages() {
    let directory = directory();
    let program = build_program(directory.path());
    let output = directory.path().join("fast");
    let command = reorder()
        .args(["optimize", "--format", "json", "--measure-runs", "3", "--run", "'one word'", "--run", ""])
        .args([program.as_os_str(), "-o".as_ref(), output.as_os_str()])
        .output()
        .expect("the command runs");
    assert_eq!(command.status.code(), Some(0), "{}", text(&command.stderr));

    let report: Value = serde_json::from_slice(&command.stdout).expect("stdout is one JSON object");
    assert_eq!((&report["schema"], &report["command"]), (&"reorder/1".into(), &"optimize".into()));
    let pages = |key: &str| report["total"][key].as_u64().expect("a number");
    assert!(pages("new_faults") < pages("old_faults"), "{report:#}");
    assert!(pages("new_faults") >= pages("lower_bound_faults"), "{report:#}");
    for run in report["runs"].as_array().expect("a list") {
        let figures = run["measured"]["figures"].as_array().expect("a list");
        let touched = figures.iter().find(|figure| figure["kind"] == "text_pages_touched");
        let touched = touched.expect("ptrace is permitted");
        let median = |side: &str| touched[side]["median"].as_f64().expect("a number");
        assert!(median("new") < median("old"), "{report:#}");
        assert_eq!(run["measured"]["status"], "exit status 3");
    }

    let old = Command::new(&program).arg("x").output().expect("it runs");
    let new = Command::new(&output).arg("x").output().expect("it runs");
    assert_eq!((old.status, old.stdout), (new.status, new.stdout));
    let size = |path: &Path| fs::metadata(path).expect("it exists").len();
    assert_eq!(size(&program), size(&output));
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["fast", "program", "program.c"], "nothing else stays");
}

#[test]
fn a_run_that_cannot_be_repeated_is_refused() {
    let directory = directory();
    let source = directory.path().join("counter.c");
    // Exits with 0 while its file is short, as it is while it is recorded and checked, and later with 1.
    let code = r#"#include <stdio.h>
int main(int count, char **arguments) {
    FILE *file = fopen(arguments[1], "a");
    fputc('x', file);
    return ftell(file) > 12;
}"#;
    fs::write(&source, code).expect("writable");
    let program = directory.path().join("counter");
    let built = Command::new("cc").arg("-o").arg(&program).arg(&source).status();
    assert!(built.expect("a C compiler is installed").success());
    let state = directory.path().join("state");
    let output = directory.path().join("fast");
    let command = reorder()
        .args(["optimize", "--run", &state.display().to_string()])
        .args([program.as_os_str(), "-o".as_ref(), output.as_os_str()])
        .output()
        .expect("the command runs");
    assert_eq!(command.status.code(), Some(1), "{}", text(&command.stderr));
    assert!(text(&command.stderr).contains("nothing was written"), "{}", text(&command.stderr));
    assert!(!output.exists());
}

#[test]
fn the_command_itself_can_be_moved() {
    let command = reorder().args(["inspect", env!("CARGO_BIN_EXE_reorder")]).output().expect("it runs");
    assert!(text(&command.stdout).contains("can be moved"), "{}", text(&command.stdout));
}

#[test]
fn mistakes_have_status_2_and_a_hint() {
    let mistakes: [&[&str]; 4] = [
        &["measure", "/etc/passwd", "/bin/true"],
        &["optimize", "/etc/passwd", "-o", "/dev/null", "--run", ""],
        &["optimize", "/bin/true", "-o", "/tmp/x", "--run", "'open"],
        &["measure", "/bin/true", "/nonexistent"],
    ];
    for mistake in mistakes {
        let output = run(mistake);
        assert_eq!(output.status.code(), Some(2), "{mistake:?}");
        assert!(output.stdout.is_empty(), "{mistake:?} wrote to stdout");
        assert!(text(&output.stderr).contains("error: "), "{mistake:?}: {}", text(&output.stderr));
    }
    assert!(text(&run(mistakes[0]).stderr).contains("hint: "));
    for usage in [&["frobnicate"][..], &["measure"], &["--threads", "x", "doctor"], &[]] {
        assert_eq!(run(usage).status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn colours_are_asked_for_or_absent() {
    let stderr = |flags: &[&str], no_color: bool| {
        let mut command = reorder();
        command.args(flags).args(["measure", "/nonexistent", "/nonexistent"]);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        text(&command.output().expect("the command runs").stderr)
    };
    assert!(!stderr(&[], false).contains('\x1b'), "stderr is no terminal here");
    assert!(stderr(&["--color", "always"], false).contains('\x1b'));
    assert!(stderr(&["--color", "always"], true).contains('\x1b'), "the flag wins over the environment");
    assert!(!stderr(&["--color", "never"], false).contains('\x1b'));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = reorder()
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("readable");
    assert_eq!((child.wait().expect("ours").code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn help_shows_examples_first_and_quiet_is_quiet() {
    for command in ["optimize", "record", "measure", "doctor", "man"] {
        let help = text(&run(&[command, "--help"]).stdout);
        assert!(help.starts_with("Examples:"), "{command}: {help}");
        assert!(help.contains(&format!("reorder {command}")), "{command}: {help}");
    }
    let quiet = run(&["--quiet", "measure", "--runs", "1", "--warm", "/bin/true", "/bin/true"]);
    assert_eq!((quiet.status.code(), text(&quiet.stderr).as_str()), (Some(0), ""));
    assert!(!quiet.stdout.is_empty());
}

#[test]
fn timings_tell_how_long_each_phase_took() {
    let directory = directory();
    let program = build_program(directory.path());
    let output = directory.path().join("output");
    let arguments = ["--strategy", "random", "--seed", "1", "--timings", "-o"];
    let outcome =
        reorder().arg("apply").arg(&program).args(arguments).arg(&output).output().expect("it runs");
    let told = text(&outcome.stderr);
    let has_duration =
        |phase: &str| told.lines().any(|line| line.contains(phase) && line.contains("time.busy="));
    assert!(["analyse", "relocate", "verify"].into_iter().all(has_duration), "{told}");
}

#[test]
fn options_of_mach_o_images_are_refused_for_others() {
    let directory = directory();
    let program = build_program(directory.path());
    let program = program.to_str().expect("UTF-8");
    let random = ["--strategy", "random", "-o", "/dev/null"];
    let call = |command: &str, options: &[&str]| {
        let output = run(&[&[command, program], options].concat());
        assert_eq!(output.status.code(), Some(2), "{command} {options:?}");
        text(&output.stderr)
    };
    for message in [
        call("inspect", &["--arch", "foo"]),
        call("order", &[&["--arch", "arm64"], &random[..]].concat()),
        call("apply", &[&["--arch", "arm64"], &random[..]].concat()),
        call("simulate", &["--arch", "arm64", "-t", "none"]),
    ] {
        assert!(message.contains("leave out --arch"), "{message}");
    }
    for flag in [&["--most-pinned", "5"] as &[&str], &["--allow-swift-pins"]] {
        let message = call("apply", &[flag, &random[..]].concat());
        assert!(message.contains(&format!("{} applies only to Mach-O files", flag[0])), "{message}");
    }
}
