//! Starts the program as a tracee, stopped before its first instruction.
//!
//! The child waits on a pipe until it is seized, then executes the program, so the program sees no signal and no stop
//! that an untraced program would not see.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::RecordRequest;
use crate::processor;
use crate::{runnable, start_directory, start_failure};
use reorder_base::error::{Error, Result};
use reorder_base::hint::{RecordedUse, RunPurpose};
use reorder_system::process_handle::ProcessHandle;
use reorder_system::waiting_child::{Prepared, WaitingChild, fork_waiting};

/// A program on its way to its first instruction.
#[derive(Debug)]
pub(super) struct Launched {
    /// Its process; the first stop to wait for is a `PTRACE_EVENT_EXEC`.
    pub(super) process: Pid,
    path: PathBuf,
    failure: File,
    /// What it prints, where that is not discarded or printed at once.
    outputs: Option<[File; 2]>,
}

impl Launched {
    /// The files that it prints into.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(super) fn outputs(&self) -> Result<Option<[File; 2]>> {
        let Some([stdout, stderr]) = &self.outputs else { return Ok(None) };
        let both = stdout.try_clone().and_then(|stdout| Ok([stdout, stderr.try_clone()?]));
        both.map(Some).map_err(|error| Error::io(&self.path, error))
    }

    /// For a guard, where `request` needs one.
    ///
    /// # Errors
    /// Systems without handles of processes.
    pub(super) fn handle(&self, request: &RecordRequest) -> Result<Option<ProcessHandle>> {
        if !request.stop.is_set() && request.time_limit.is_none() {
            return Ok(None);
        }
        ProcessHandle::of(self.process).map(Some).map_err(|error| Error::io(&self.path, error))
    }

    /// Why the process ended before it executed the program.
    pub(super) fn failure(mut self) -> Error {
        let mut number = [0; 4];
        match self.failure.read_exact(&mut number) {
            Ok(()) => {
                let error = std::io::Error::from_raw_os_error(i32::from_le_bytes(number));
                start_failure::explain(&self.path, error)
            }
            Err(_) => Error::usage("ended before it could be started").in_file(&self.path),
        }
    }
}

/// Starts the program of `request` traced.
///
/// # Errors
/// Programs that do not exist or cannot be executed, and systems that forbid tracing.
pub(super) fn launch(request: &RecordRequest) -> Result<Launched> {
    let path = find_program(&request.program)?;
    // The child changes its directory before it executes the program.
    let path = match &request.directory {
        Some(_) => std::path::absolute(&path).map_err(|error| Error::io(&path, error))?,
        None => path,
    };
    runnable::check(&path, RecordedUse::Apply)?;
    processor::check_program(&path, RunPurpose::Record)?;
    refuse_privileged(&path)?;
    if let Some(directory) = &request.directory {
        start_directory::check(directory)?;
    }
    let outputs = match request.stop.needs_output() {
        true => Some(temporary_files().map_err(|error| Error::io(&path, error))?),
        false => None,
    };
    let prepared = prepare(&path, request, outputs.as_ref())?;
    start(&prepared, path, outputs)
}

fn temporary_files() -> std::io::Result<[File; 2]> {
    Ok([tempfile::tempfile()?, tempfile::tempfile()?])
}

fn prepare(path: &Path, request: &RecordRequest, outputs: Option<&[File; 2]>) -> Result<Prepared> {
    let text = |word: &OsStr| {
        CString::new(word.as_bytes()).map_err(|_| Error::usage(format!("{word:?} holds a zero byte")))
    };
    let null = Path::new("/dev/null");
    let open_null =
        || File::options().read(true).write(true).open(null).map_err(|error| Error::io(null, error));
    let discarded = || request.discard_output.then(open_null).transpose();
    let input = match &request.input {
        Some(input) => Some(File::open(input).map_err(|error| Error::io(input, error))?),
        None => discarded()?,
    };
    let printed = |index: usize| match outputs {
        Some(outputs) => outputs[index].try_clone().map(Some).map_err(|error| Error::io(path, error)),
        None => discarded(),
    };
    let arguments = std::iter::once(&request.program).chain(&request.arguments);
    Ok(Prepared {
        path: text(path.as_os_str())?,
        arguments: arguments.map(|word| text(word)).collect::<Result<_>>()?,
        directory: request.directory.as_ref().map(|directory| text(directory.as_os_str())).transpose()?,
        environment: environment(&request.environment, &text)?,
        streams: [input, printed(0)?, printed(1)?],
        own_session: request.discard_output,
    })
}

/// The variables of this process with `changes`; `None` when there are no changes.
fn environment(
    changes: &[(OsString, OsString)],
    text: &impl Fn(&OsStr) -> Result<CString>,
) -> Result<Option<Vec<CString>>> {
    if changes.is_empty() {
        return Ok(None);
    }
    let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    variables.extend(changes.iter().cloned());
    let joined = variables.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        text(&name)
    });
    joined.collect::<Result<_>>().map(Some)
}

fn start(prepared: &Prepared, path: PathBuf, outputs: Option<[File; 2]>) -> Result<Launched> {
    let WaitingChild { process, failure, go_ahead } =
        fork_waiting(prepared).map_err(|error| Error::io(&path, error))?;
    let options = Options::PTRACE_O_EXITKILL
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK;
    if let Err(error) = ptrace::seize(process, options) {
        // It must not stay, neither alive nor as a zombie; both calls can only fail if it is gone.
        let _ = kill(process, Signal::SIGKILL);
        let _ = waitpid(process, None);
        return Err(forbidden(&path, error));
    }
    (&go_ahead).write_all(&[1]).map_err(|error| Error::io(&path, error))?;
    Ok(Launched { process, path, failure, outputs })
}

fn forbidden(path: &Path, error: Errno) -> Error {
    let hint = if error == Errno::EPERM {
        "tracing is forbidden here: in a container, start it with --cap-add=SYS_PTRACE; if \
         /proc/sys/kernel/yama/ptrace_scope is 3, set it to 1; another debugger or a sandbox forbids it, too"
    } else {
        "the system does not support tracing (a sandbox such as gVisor, or an emulator)"
    };
    let mut failure = Error::io(path, error.into());
    failure.message = "cannot be traced".to_owned();
    failure.with_hint(hint)
}

/// The file that `program` names, looked up as a shell does.
///
/// # Errors
/// There is none.
pub fn find_program(program: &OsStr) -> Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let search_path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&search_path)
        .map(|directory| directory.join(program))
        .find(|candidate| {
            fs::metadata(candidate)
                .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| {
            Error::usage(format!("no program called {} in PATH", program.display()))
                .with_hint(format!("give its path, such as ./{}", program.display()))
        })
}

/// Programs that gain privileges lose them when traced by an ordinary user, and would then behave differently.
fn refuse_privileged(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let sets_identity = metadata.permissions().mode() & 0o6000 != 0;
    if sets_identity && !nix::unistd::geteuid().is_root() {
        return Err(Error::usage("a setuid or setgid program runs without its privileges when it is traced")
            .in_file(path)
            .with_hint("record it as root, or record a copy without the setuid bit"));
    }
    Ok(())
}
