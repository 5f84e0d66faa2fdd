//! Runs one program with a time limit.
//!
//! Takes a [`Command`]; gives its output and how it ended. The output goes through files instead of pipes, so
//! that a grandchild that keeps a descriptor open cannot block the caller.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use reorder_base::tool_versions::variables;

use crate::early_readers::early_reader;

/// Larger outputs are not compared: the program is out of control.
const OUTPUT_LIMIT: u64 = 64 << 20;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It was still running at the time limit and was killed.
    TimedOut,
}

/// Everything a caller can observe of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// Whether the program exited with status 0.
    pub fn success(&self) -> bool {
        self.ending == Ending::Exited(0)
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// Copies a program to a path from which it can be executed.
///
/// A separate process writes it: a child that another thread forks while this process has the copy open would keep it open
/// until it executes its own program, and the kernel does not execute a file that is open for writing (`ETXTBSY`).
///
/// # Errors
/// The copy fails.
pub fn copy_executable(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg(from).arg(to).status()?;
    let failed = || io::Error::other(format!("cp {} {}: {status}", from.display(), to.display()));
    status.success().then_some(()).ok_or_else(failed)
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{:?}", self.ending)?;
        for (name, text) in [("stdout", self.stdout_text()), ("stderr", self.stderr_text())] {
            for line in text.lines() {
                writeln!(formatter, "  {name}: {line}")?;
            }
        }
        Ok(())
    }
}

/// Runs `command` without standard input and waits for at most `limit`.
///
/// # Errors
/// The program cannot be started or its output cannot be read.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<Outcome> {
    run_on(command, Stdio::null(), limit)
}

/// Runs `command` on `input` and waits for at most `limit`. Its environment has the versions of tools: `clang$LLVM`.
///
/// The program gets a process group of its own; what is left of the group is killed when the program has ended.
///
/// # Errors
/// The program cannot be started or its output cannot be read.
pub fn run_on(command: &mut Command, input: Stdio, limit: Duration) -> io::Result<Outcome> {
    let mut stdout = tempfile::tempfile()?;
    let mut stderr = tempfile::tempfile()?;
    command
        .envs(variables())
        .stdin(input)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .process_group(0);
    let mut child = reorder_system::child::spawn(command).map(|(child, _)| child)?;
    let status = wait(&mut child, limit)?;
    kill_group(&child);
    let ending = match status {
        None => {
            child.wait()?;
            Ending::TimedOut
        }
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exited(code),
            (None, signal) => Ending::Signalled(signal.unwrap_or(0)),
        },
    };
    Ok(Outcome { ending, stdout: contents(&mut stdout)?, stderr: contents(&mut stderr)? })
}

/// Runs a command that has to succeed, such as a compiler or a tool to compare with; gives its standard output.
///
/// # Panics
/// When it cannot be started or does not exit with 0, with all it printed.
pub fn succeed(command: &mut Command) -> String {
    /// More than any of them takes on a busy system.
    const LIMIT: Duration = Duration::from_secs(600);
    let outcome =
        run(command, LIMIT).unwrap_or_else(|error| panic!("{command:?}: {error}; see scripts/install-tools"));
    assert!(outcome.success(), "{command:?}\n{outcome}");
    outcome.stdout_text()
}

/// Runs `line` by the shell; gives its standard output.
///
/// # Errors
/// A sentence with the line and its output when it does not exit with 0; lines that fail only on some runs.
pub fn shell(line: &str, limit: Duration) -> Result<String, String> {
    if let Some(reader) = early_reader(line) {
        return Err(format!(
            "{line}\n`{reader}` ends before its pipe is empty: write `grep … > /dev/null` or `sed -n 1p`"
        ));
    }
    let outcome = run(Command::new("bash").args(["-o", "pipefail", "-c", line]), limit)
        .map_err(|error| format!("bash: {error}"))?;
    if outcome.success() { Ok(outcome.stdout_text()) } else { Err(format!("{line}\n{outcome}")) }
}

/// The exit status, or `None` when `limit` passed first.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let elapsed = start.elapsed();
        if elapsed > limit {
            return Ok(None);
        }
        // Most programs end within milliseconds. A pause is at most a tenth of the time that has passed, or 0.2 ms.
        thread::sleep((elapsed / 10).clamp(Duration::from_micros(200), Duration::from_millis(20)));
    }
}

fn kill_group(child: &Child) {
    if let Ok(id) = i32::try_from(child.id()) {
        // An empty group is the normal case: the program ended and left no process.
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
    }
}

fn contents(file: &mut fs::File) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}
