//! Small programs in C whose functions `step_…` are recorded.

#![expect(clippy::unwrap_used, reason = "a helper that cannot build or start its program is a failed test")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reorder_run::record::{RecordOutcome, RecordRequest, record};
use tempfile::TempDir;

/// A compiled program in a directory of its own.
pub struct Program {
    /// Removed with this.
    pub directory: TempDir,
    /// The program.
    pub path: PathBuf,
}

/// Without optimisation, every call in the source is a call in the program.
const FLAGS: [&str; 2] = ["-O0", "-w"];

/// A C function that waits until its process is no longer traced, regardless of the system's load.
pub const UNTIL_LET_GO: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    void until_let_go(void) {
        for (;; usleep(1000)) {
            char text[4096] = "";
            int file = open("/proc/self/status", O_RDONLY);
            read(file, text, sizeof text - 1);
            close(file);
            if (atoi(strstr(text, "TracerPid:") + 10) == 0) return;
        }
    }
"#;

/// Compiles `source` into a program.
///
/// # Panics
/// When that fails: no test is possible without it.
pub fn compile(source: &str, flags: &[&str]) -> Program {
    let directory = tempfile::tempdir().unwrap();
    let path = build(directory.path(), "program", source, flags);
    Program { directory, path }
}

/// Compiles `source` into `directory`/`name`.
///
/// # Panics
/// When that fails: no test is possible without it.
pub fn build(directory: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source_path = directory.join(format!("{name}.c"));
    let path = directory.join(name);
    fs::write(&source_path, source).unwrap();
    let compiled =
        Command::new("gcc").args(FLAGS).arg(&source_path).arg("-o").arg(&path).args(flags).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    path
}

/// One recording of `program`, its output discarded.
pub fn request(program: &Path, arguments: &[&str]) -> RecordRequest {
    RecordRequest {
        program: program.into(),
        arguments: arguments.iter().map(OsString::from).collect(),
        runs: 1,
        first_run: 1,
        discard_output: true,
        ..RecordRequest::default()
    }
}

/// Records it.
///
/// # Panics
/// When that fails: no test is possible without it.
pub fn recorded(program: &Program, arguments: &[&str]) -> RecordOutcome {
    record(&request(&program.path, arguments)).unwrap()
}

/// The names that start with `step_` or are `main`, in order, of one trace.
pub fn steps(outcome: &RecordOutcome, trace: usize) -> Vec<String> {
    let events = &outcome.traces[trace].trace.events;
    let names = events.iter().filter_map(|event| event.symbol());
    let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
    names.filter(|name| name == "main" || name.starts_with("step_")).collect()
}
