//! What a new user reads: words that fit what was found, in lines that fit the terminal, and one status for one cause.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use end_to_end::process::{self, Ending, Outcome, succeed};
use end_to_end::workspace::{build, reorder, root};
use reorder_base::tool_versions::llvm_library;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// Names longer than a terminal is wide.
const SOURCE: &str = r#"
namespace a_namespace_with_a_long_name { namespace another_one_of_the_same_kind {
template <typename First, typename Second> struct Container {
  __attribute__((noinline)) static int member_function_of_a_template(First first, Second second) { return first * 3 + (long)second; }
}; } }
using namespace a_namespace_with_a_long_name::another_one_of_the_same_kind;
int main(int count, char **) {
  return Container<long, Container<int, char> *>::member_function_of_a_template(count, nullptr) == 0 ? 1
       : Container<int, long>::member_function_of_a_template(count, 7) == 0;
}
"#;

fn attempt(directory: &Path, arguments: &[&str]) -> Outcome {
    process::run(reorder().args(arguments).current_dir(directory), LIMIT).unwrap()
}

/// A directory with `program` and its `traces`.
fn recorded() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("program.cc"), SOURCE).unwrap();
    let mut compile = Command::new("g++");
    succeed(
        compile.args(["-O1", "-fPIE", "-pie", "-o", "program", "program.cc"]).current_dir(directory.path()),
    );
    let recorded = attempt(directory.path(), &["record", "-o", "traces", "--", "./program"]);
    assert!(directory.path().join("traces").is_dir(), "{recorded}");
    directory
}

/// What the command prints on a terminal of so many columns.
fn on_terminal(directory: &Path, columns: usize, arguments: &str) -> String {
    let program = PathBuf::from(reorder().get_program());
    let line = format!("stty cols {columns} rows 50; exec '{}' {arguments}", program.display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(directory);
    script.env_remove("COLUMNS");
    process::run(&mut script, LIMIT).unwrap().stdout_text().replace('\r', "")
}

#[test]
fn lines_fit_the_terminal_and_are_whole_elsewhere() {
    let directory = recorded();
    let directory = directory.path();
    for command in [
        "--quiet apply program -t traces -o program.fast",
        "--quiet gate program -t traces --update-baseline",
        "--quiet gate program -t traces --all",
        "inspect program --all",
        "simulate program program.fast -t traces",
        "report program program.fast -t traces -o report.html",
        "explain program main -t traces",
        "explain program mian -t traces",
        "simulate program.fast -t traces",
        "--quiet measure program program.fast --runs 3",
        "traces stats traces",
        "traces show traces",
        "verify program program.fast",
        "doctor program --show-config",
        "help apply",
    ] {
        for columns in [80, 100] {
            let text = on_terminal(directory, columns, command);
            assert!(text.len() > 40, "{command}: {text}");
            assert!(!text.contains("page f…"), "titles of figures are whole: {text}");
            let wide = text.lines().filter(|line| shown_width(line) > columns);
            // A sentence that is indented is not broken: it may hold a command to copy.
            let wide: Vec<&str> = wide
                .filter(|line| !line.starts_with("  ") || line.trim().contains("  "))
                .filter(|line| !line.contains("hint:"))
                .collect();
            assert!(wide.is_empty(), "{command} on {columns} columns:\n{}\n\n{text}", wide.join("\n"));
        }
    }
    let long = "a_namespace_with_a_long_name::another_one_of_the_same_kind::Container<int, long>";
    let whole = attempt(directory, &["traces", "show", "traces"]);
    assert!(whole.stdout_text().contains(long), "{whole}");
}

/// Characters without those that set colours.
fn shown_width(line: &str) -> usize {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().map_or(0, |part| part.chars().count());
    let after = |part: &str| part.split_once('m').map_or(0, |(_, shown)| shown.chars().count());
    first + parts.map(after).sum::<usize>()
}

#[test]
fn no_bar_of_the_whole_width_flashes() {
    let directory = recorded();
    let text = on_terminal(directory.path(), 80, "gate program -t traces --update-baseline 2>&1");
    assert!(!text.contains("0/0"), "{text}");
    assert!(!text.contains("████") && !text.contains("░░░░"), "{text}");
}

#[test]
fn a_refusal_is_told_alike_by_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // Much code without unwind entries and symbols.
    fs::write(
        directory.join("bare.s"),
        ".globl _start\n_start:\n.rept 9000\ninc %eax\n.endr\nmov $60, %eax\nxor %edi, %edi\nsyscall\n",
    )
    .unwrap();
    let mut compile = Command::new("gcc");
    succeed(compile.args(["-nostdlib", "-static-pie", "-s", "-o", "bare", "bare.s"]).current_dir(directory));
    let inspected = attempt(directory, &["inspect", "bare"]);
    let applied = attempt(directory, &["apply", "bare", "--strategy", "random", "-o", "moved"]);
    let doctor = attempt(directory, &["doctor", "bare"]);
    for (told, text) in [
        (&inspected, inspected.stdout_text()),
        (&applied, applied.stderr_text()),
        (&doctor, doctor.stdout_text()),
    ] {
        assert!(text.contains("R5") && text.contains("--clone"), "{told}");
    }
    assert_eq!((inspected.ending, applied.ending), (Ending::Exited(2), Ending::Exited(2)));
    assert_eq!(doctor.ending, Ending::Exited(1), "a failed check is a finding: {doctor}");
}

#[test]
fn other_texts_are_no_traces() {
    let directory = tempfile::tempdir().unwrap();
    let shown = attempt(directory.path(), &["traces", "show", "/etc/passwd"]);
    assert_eq!(shown.ending, Ending::Exited(2), "{shown}");
    assert!(shown.stderr_text().contains("neither a symbol nor an address"), "{shown}");
}

#[test]
fn a_library_is_not_made_executable() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("one.c"), "int one(void) { return 1; }\n").unwrap();
    let mut compile = Command::new("gcc");
    succeed(compile.args(["-shared", "-fPIC", "-o", "libone.so", "one.c"]).current_dir(directory));
    fs::set_permissions(directory.join("libone.so"), fs::Permissions::from_mode(0o644)).unwrap();
    let told = attempt(directory, &["record", "-o", "traces", "--", "./libone.so"]);
    assert_eq!(told.ending, Ending::Exited(2), "{told}");
    let text = told.stderr_text();
    assert!(
        text.contains("a library") && text.contains("--image ./libone.so") && !text.contains("chmod"),
        "{text}"
    );
}

#[test]
fn without_proc_that_is_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let program = PathBuf::from(reorder().get_program());
    let hidden = |arguments: &str| {
        let line = format!("mount -t tmpfs none /proc && exec '{}' {arguments}", program.display());
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &line]).current_dir(directory.path());
        process::run(&mut command, LIMIT).unwrap()
    };
    let told = hidden("record -o traces -- /bin/true");
    assert!(told.stderr_text().contains("mount -t proc proc /proc"), "{told}");
    let told = hidden("doctor");
    assert_eq!(told.ending, Ending::Exited(1), "{told}");
    assert!(told.stdout_text().contains("failed read /proc"), "{told}");
}

#[test]
fn memory_that_ends_is_told() {
    // 129 000 functions, on a system that gives half a gigabyte of addresses.
    let library = format!("/usr/lib/{}-linux-gnu/{}", std::env::consts::ARCH, llvm_library());
    let directory = tempfile::tempdir().unwrap();
    let program = PathBuf::from(reorder().get_program());
    let line = format!("ulimit -v 524288; exec '{}' --threads 2 inspect {library}", program.display());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(directory.path());
    let told = process::run(&mut command, LIMIT).unwrap();
    assert_eq!(told.ending, Ending::Exited(2), "{told}");
    let text = told.stderr_text();
    assert!(text.contains("no more memory") && text.contains("hint:"), "{text}");
    assert!(!text.contains("backtrace") && !text.contains("panicked"), "{text}");
}

#[test]
fn the_wrapper_names_its_own_help() {
    let wrapper = build("reorder-linker-plugin", &["--bin", "reorder-ld"]).join("reorder-ld");
    let told = process::run(Command::new(&wrapper).arg("--help"), LIMIT).unwrap();
    assert!(told.stderr_text().contains("reorder-ld --reorder-help"), "{told}");
    assert!(told.stdout_text().contains("supported targets"), "the linker still answers: {told}");
    let own = process::run(Command::new(&wrapper).arg("--reorder-help"), LIMIT).unwrap();
    assert!(own.stdout_text().contains("--reorder-traces"), "{own}");
}

/// People install what a release build makes.
#[test]
fn a_release_has_no_debug_information() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let release = manifest.split("[profile.release]").nth(1).unwrap().split("\n[").next().unwrap();
    // The standard library brings some of its own.
    for line in ["debug = false", "strip = \"debuginfo\""] {
        assert!(release.contains(line), "{line}: {release}");
    }
}

/// `1 function`, never `1 functions`.
#[test]
fn one_is_singular_in_all_reports() {
    let nouns = "runs functions scenarios traces figures bytes pages faults events images recordings checks files fragments \
                 differences executions lines libraries";
    for entry in fs::read_dir(root().join("tests/reports/snapshots")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(3) {
            let is_whole = !pair[0].bytes().all(|byte| byte.is_ascii_digit());
            let noun = pair[2].trim_matches(|character: char| !character.is_alphanumeric());
            let is_plural = nouns.split_whitespace().any(|plural| plural == noun);
            assert!(!(is_whole && pair[1] == "1" && is_plural), "{}: {}", path.display(), pair.join(" "));
        }
    }
}
