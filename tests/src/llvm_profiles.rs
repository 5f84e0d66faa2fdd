//! Instrumented programs, built and run in a scratch directory, and what LLVM's own tools read from their profiles.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reorder_base::tool_versions::llvm;

use crate::process::{self, Outcome};

/// One compilation or run.
const LIMIT: Duration = Duration::from_secs(300);

/// A scratch directory in which tools run.
pub struct Workbench {
    directory: tempfile::TempDir,
}

impl Workbench {
    /// An empty one.
    ///
    /// # Panics
    /// No scratch directory can be made.
    #[must_use]
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a scratch directory") }
    }

    /// The path of `name` in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts a file into it.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Copies a program's source from `tests/profiles/source`.
    ///
    /// # Panics
    /// There is no such source.
    pub fn source(&self, name: &str) {
        let source = crate::profiles::sample("source").join(name);
        fs::copy(&source, self.path(name)).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    }

    /// Runs a tool and gives its output; words of `arguments` are separated by spaces.
    ///
    /// # Panics
    /// The tool is missing or fails.
    pub fn run(&self, tool: &str, arguments: &str) -> String {
        let outcome = self.attempt(tool, arguments);
        assert!(outcome.success(), "{tool} {arguments}: {outcome}");
        outcome.stdout_text()
    }

    /// Runs a tool that may fail.
    ///
    /// # Panics
    /// The tool is missing.
    pub fn attempt(&self, tool: &str, arguments: &str) -> Outcome {
        let mut command = Command::new(tool);
        self.finish(&mut command, arguments)
    }

    /// Runs the program called `program` of this directory, which writes its profile to `profile`.
    ///
    /// # Panics
    /// It fails.
    pub fn profile(&self, program: &str, arguments: &str, profile: &str) {
        let mut command = Command::new(self.path(program));
        command.env("LLVM_PROFILE_FILE", profile);
        let outcome = self.finish(&mut command, arguments);
        assert!(outcome.success(), "{program} {arguments}: {outcome}");
    }

    fn finish(&self, command: &mut Command, arguments: &str) -> Outcome {
        command.current_dir(self.directory.path()).args(arguments.split_ascii_whitespace());
        let program = command.get_program().to_string_lossy().into_owned();
        process::run(command, LIMIT).unwrap_or_else(|error| panic!("{program} is missing: {error}"))
    }

    /// The traces that `llvm-profdata` shows of a raw or indexed profile, a list of names each.
    ///
    /// # Panics
    /// The tool is missing or fails.
    #[must_use]
    pub fn official_traces(&self, profile: &str) -> Vec<Vec<String>> {
        let shown = self.run(&llvm("llvm-profdata"), &format!("show --temporal-profile-traces {profile}"));
        let mut traces = Vec::new();
        for line in shown.lines() {
            if line.starts_with("  Temporal Profile Trace ") {
                traces.push(Vec::new());
            } else if let (Some(name), Some(trace)) = (line.strip_prefix("    "), traces.last_mut()) {
                trace.push(name.to_owned());
            }
        }
        traces
    }

    /// Addresses and names of the symbols of an image.
    ///
    /// # Panics
    /// `nm` is missing or fails.
    #[must_use]
    pub fn symbols(&self, image: &str) -> Vec<(u64, String)> {
        let listed = self.run(&llvm("llvm-nm"), &format!("--defined-only {image}"));
        let symbol = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((address, words.nth(1)?.to_owned()))
        };
        listed.lines().filter_map(symbol).collect()
    }
}

impl Default for Workbench {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether `path` was made and is not empty.
#[must_use]
pub fn is_written(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

/// A translation unit of `functions` global and as many local functions, `part` in all their names, and functions
/// that all translation units have in common. `run_part` calls some of them, in an order that depends on its seed.
#[must_use]
pub fn many_functions(part: u32, functions: u32) -> String {
    let mut text = String::from(
        "extern volatile int sink;\n\
         template <int N> __attribute__((noinline)) void common(int x) { sink += x * N; }\n\
         template <int N> inline void small(int x) { if (x % 7 == N) common<N + 10>(x); }\n",
    );
    for number in 0..functions {
        let common = number % 10;
        let _ = writeln!(
            text,
            "__attribute__((noinline)) static void local_{part}_{number}(int x) \
             {{ sink += x; if (x & 2) common<{common}>(x); small<{common}>(x); }}\n\
             __attribute__((noinline)) void global_{part}_{number}(int x) \
             {{ for (int i = 0; i < x % 3; i++) sink++; if (x & 1) local_{part}_{number}(x); }}"
        );
    }
    let _ = writeln!(text, "void (*const table_{part}[])(int) = {{");
    for number in 0..functions {
        let _ = writeln!(text, "  global_{part}_{number},");
    }
    let _ = write!(
        text,
        "}};\n\
         void run_part_{part}(int seed) {{\n  \
           for (int i = 0; i < {functions}; i++) {{\n    \
             int number = (seed * 31 + i * 17) % {functions};\n    \
             if ((number * seed + number / 3) % 4) table_{part}[number](number / 2 + seed);\n  \
           }}\n\
         }}\n"
    );
    text
}
