//! Runs the real linker.
//!
//! It never outlives this process, so that killing the wrapper kills the link, and gets everything except the output as if
//! it had been called directly.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::sys::signal::Signal;
use reorder_base::error::{Error, Result};

use super::response_files::shortened;

/// What a linker said and how it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) status: ExitStatus,
    stdout: File,
    stderr: File,
}

impl Outcome {
    /// What it wrote to its standard output.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn stdout(&mut self) -> Result<Vec<u8>> {
        contents(&mut self.stdout).map_err(|error| Error::io(Path::new("output of the linker"), error))
    }

    /// What it wrote to its standard error.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn stderr(&mut self) -> Result<Vec<u8>> {
        contents(&mut self.stderr).map_err(|error| Error::io(Path::new("messages of the linker"), error))
    }

    /// The first line of what it wrote to its standard error.
    #[must_use]
    pub(crate) fn first_message(&mut self) -> String {
        let said = self.stderr().unwrap_or_default();
        String::from_utf8_lossy(&said).lines().next().unwrap_or("no message").to_owned()
    }

    /// Says what the linker said, corrected by `spelled`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn repeat(&mut self, spelled: impl Fn(&[u8]) -> Vec<u8>) -> std::io::Result<()> {
        let said = contents(&mut self.stdout)?;
        std::io::stdout().lock().write_all(&spelled(&said))?;
        let said = contents(&mut self.stderr)?;
        std::io::stderr().lock().write_all(&spelled(&said))
    }
}

fn contents(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs `linker` with `arguments`, keeping what it says. Files take its output: a full pipe would stop it.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run_quietly(mut linker: Command, arguments: Vec<OsString>) -> Result<Outcome> {
    let program = PathBuf::from(linker.get_program());
    let scratch = || tempfile::tempfile().map_err(|error| Error::io(&std::env::temp_dir(), error));
    let (stdout, stderr) = (scratch()?, scratch()?);
    let copy = |file: &File| file.try_clone().map_err(|error| Error::io(&program, error));
    let (arguments, _file) = shortened(arguments)?;
    tie_to_this_process(&mut linker, Signal::SIGKILL);
    let status = linker
        .args(arguments)
        .stdout(copy(&stdout)?)
        .stderr(copy(&stderr)?)
        .status()
        .map_err(|error| Error::io(&program, error))?;
    Ok(Outcome { status, stdout, stderr })
}

/// Runs `linker` with `arguments`; what it says is seen at once.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run_visibly(mut linker: Command, arguments: Vec<OsString>) -> Result<ExitStatus> {
    let program = PathBuf::from(linker.get_program());
    let (arguments, _file) = shortened(arguments)?;
    tie_to_this_process(&mut linker, Signal::SIGKILL);
    linker.args(arguments).status().map_err(|error| Error::io(&program, error))
}

/// Becomes `linker`: it replaces this process and its memory.
///
/// # Errors
/// When it cannot be started; otherwise this does not return.
pub(crate) fn become_linker(mut linker: Command, arguments: &[OsString]) -> Error {
    let program = PathBuf::from(linker.get_program());
    Error::io(&program, linker.args(arguments).exec())
}

/// The exit status as a shell sees it.
#[must_use]
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Lets `command` end with `signal` when this process ends, as far as the system has means for that.
pub(crate) fn tie_to_this_process(command: &mut Command, signal: Signal) {
    #[cfg(not(target_os = "linux"))]
    let _ = (command, signal);
    #[cfg(target_os = "linux")]
    {
        let parent = nix::unistd::getpid();
        let tie = move || {
            nix::sys::prctl::set_pdeathsig(signal)?;
            // Had the parent died before the call above, no signal would be sent.
            if nix::unistd::getppid() == parent { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
        };
        // SAFETY: between fork and exec only system calls run (prctl, getppid); none allocates or takes a lock.
        unsafe { command.pre_exec(tie) };
    }
}
