//! A small repository whose startup is watched by `reorder gate`: a C program of a few functions over several pages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{self, Ending, Outcome};
use crate::workspace;

/// Far more than any command here takes.
const LIMIT: Duration = Duration::from_secs(300);

/// A function that startup executes from now on.
pub const NEW_FUNCTION: &str = "load_plugins";

/// A copy of the project below `tests/gate/project`, in a git repository of its own.
pub struct GateProject {
    directory: TempDir,
}

impl GateProject {
    /// The project in its first state, committed.
    ///
    /// # Panics
    /// When it cannot be made: no test is possible without it.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let project = Self { directory };
        let source = workspace::root().join("tests/gate/project");
        project.run(&format!("cp -r '{}/.' . && git init -q -b main .", source.display()));
        project.commit("A program");
        project
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The contents of a file.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes a file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), contents).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Runs shell commands that must succeed, with the command under test on the PATH.
    ///
    /// # Panics
    /// When they fail.
    pub fn run(&self, lines: &str) -> String {
        let outcome = self.script(lines, &[]);
        assert!(outcome.success(), "{lines}\n{outcome}");
        outcome.stdout_text()
    }

    /// Runs shell commands as a CI runner does: they end at the first failure.
    ///
    /// # Panics
    /// When no shell can be started.
    pub fn script(&self, lines: &str, environment: &[(&str, &str)]) -> Outcome {
        run_in(self.path(), lines, environment)
    }

    /// `reorder gate` with these arguments.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn gate(&self, words: &[&str]) -> Outcome {
        let mut command = workspace::reorder();
        command.current_dir(self.path()).arg("gate").args(words).env_remove("GITHUB_STEP_SUMMARY");
        process::run(&mut command, LIMIT).expect("reorder runs")
    }

    /// Commits everything.
    pub fn commit(&self, title: &str) {
        self.run(&format!(
            "git add -A && git -c user.name=Test -c user.email=test@example.org commit -q -m '{title}'"
        ));
    }

    /// Builds the program and records both scenarios afresh.
    pub fn build_and_record(&self) {
        self.run("make -s && reorder record --quiet");
    }

    /// Makes startup execute one more function, [`NEW_FUNCTION`].
    pub fn add_to_startup(&self) {
        let source = self.read("program.c");
        let definition = format!("FUNCTION {NEW_FUNCTION}(int n) {{ FILL(6000); return n + 7; }}");
        let source = source
            .replace("/* more functions */", &definition)
            .replace("/* more of startup */", &format!("n = {NEW_FUNCTION}(n);"));
        self.write("program.c", source);
    }
}

impl Default for GateProject {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs lines of shell in `directory` as the runners of GitHub do, the command under test on the PATH.
///
/// # Panics
/// When no shell can be started.
pub fn run_in(directory: &Path, lines: &str, environment: &[(&str, &str)]) -> Outcome {
    let binaries = workspace::reorder_path().parent().expect("a program lies in a directory");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", lines]).current_dir(directory);
    command.env("PATH", path).env_remove("GITHUB_STEP_SUMMARY").envs(environment.iter().copied());
    process::run(&mut command, LIMIT).expect("bash runs")
}

/// The exit status.
pub fn status(outcome: &Outcome) -> i32 {
    match outcome.ending {
        Ending::Exited(status) => status,
        Ending::Signalled(_) | Ending::TimedOut => -1,
    }
}
