//! One run of one program, watched from its first instruction to its last.
//!
//! The program's output goes nowhere and its input is empty, so that neither a terminal nor a pipe takes part in the
//! time. Watching needs ptrace; where that is forbidden the run still happens and only the mapped pages stay unknown.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use super::page_cache::ProgramFile;
use super::tracee;
use crate::error::{Error, Result};

/// What a run is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Faults and time, undisturbed.
    Start,
    /// Text pages touched; this maps all text first, so faults and time mean nothing.
    TouchedPages,
}

/// What to run and how.
#[derive(Debug)]
pub(super) struct Launch<'request> {
    pub(super) program: &'request ProgramFile,
    pub(super) name: &'request OsStr,
    pub(super) arguments: &'request [OsString],
    pub(super) watch: Watch,
    pub(super) time_limit: Duration,
}

/// What one run did.
#[derive(Debug)]
pub(super) struct Outcome {
    /// `exit status N` or `signal NAME`.
    pub(super) status: String,
    /// From the request to start until the program's last instruction.
    pub(super) wall: Duration,
    /// Faults that read from the disk, of the program and the children it waited for.
    pub(super) major_faults: u64,
    /// Faults that did not.
    pub(super) minor_faults: u64,
    /// Pages of the program's text that its page table held at the end.
    pub(super) mapped_text_pages: Option<u64>,
    /// Pages of the program's text that were executed or read, when watched for and possible.
    pub(super) touched_text_pages: Option<u64>,
}

/// Runs a program to its end.
pub(super) fn run(launch: &Launch<'_>) -> Result<Outcome> {
    let mut command = Command::new(launch.program.path());
    command.arg0(launch.name).args(launch.arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only the ptrace system call is made, which allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            // Where ptrace is forbidden the run goes on unwatched.
            let _ = ptrace::traceme();
            Ok(())
        });
    }
    let started = Instant::now();
    let child = command.spawn().map_err(|error| Error::io(launch.program.path(), error))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let (alive, ended) = mpsc::channel::<()>();
    let limit = launch.time_limit;
    let outcome = std::thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let late = ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                // The process may have ended this instant; it is not reaped before it was waited for below.
                let _ = kill(pid, Signal::SIGKILL);
            }
            late
        });
        let outcome = watch(launch, pid, started);
        if outcome.is_err() {
            abandon(pid);
        }
        drop(alive);
        // The watchdog only waits and kills; it cannot panic.
        if watchdog.join().unwrap_or(false) { Err(too_late(limit)) } else { outcome }
    });
    outcome.map_err(|error| error.in_file(launch.program.path()))
}

fn too_late(limit: Duration) -> Error {
    Error::usage(format!("still running after {} s and was stopped", limit.as_secs())).with_hint(
        "measure a run that ends by itself, such as --version, or give a longer --time-limit SECONDS",
    )
}

/// Ends and reaps a process that could not be watched to its end.
fn abandon(pid: Pid) {
    // Both fail only when it is gone already.
    let _ = kill(pid, Signal::SIGKILL);
    let _ = wait(pid);
}

fn watch(launch: &Launch<'_>, pid: Pid, started: Instant) -> Result<Outcome> {
    let mut text_pages = None;
    let mut accesses_forgotten = false;
    let mut end = None;
    let mut loaded = false;
    loop {
        let (status, usage) = wait(pid)?;
        match status {
            WaitStatus::Stopped(_, Signal::SIGTRAP) if !loaded => {
                loaded = true;
                let options = ptrace::Options::PTRACE_O_TRACEEXIT
                    | ptrace::Options::PTRACE_O_TRACEEXEC
                    | ptrace::Options::PTRACE_O_EXITKILL;
                ptrace::setoptions(pid, options).map_err(system)?;
                if launch.watch == Watch::TouchedPages {
                    accesses_forgotten = tracee::forget_accesses(pid, launch.program.path())?;
                }
                resume(pid, None)?;
            }
            WaitStatus::PtraceEvent(_, _, event) => {
                if event == libc::PTRACE_EVENT_EXIT {
                    end = Some(Instant::now());
                    text_pages = tracee::text_pages(pid, launch.program.path());
                }
                resume(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => resume(pid, Some(signal))?,
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                return Ok(Outcome {
                    status: describe(status),
                    wall: end.unwrap_or_else(Instant::now).duration_since(started),
                    major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
                    minor_faults: u64::try_from(usage.ru_minflt).unwrap_or(0),
                    mapped_text_pages: text_pages.map(|pages| pages.mapped),
                    touched_text_pages: text_pages.filter(|_| accesses_forgotten).map(|pages| pages.accessed),
                });
            }
            _ => resume(pid, None)?,
        }
    }
}

/// Lets the program go on; one that was killed meanwhile is reported by the next wait.
fn resume(pid: Pid, signal: Option<Signal>) -> Result<()> {
    match ptrace::cont(pid, signal) {
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
        Err(error) => Err(system(error)),
    }
}

/// The next change of the process's state, with the resources it has used.
fn wait(pid: Pid) -> Result<(WaitStatus, libc::rusage)> {
    loop {
        let mut status = 0;
        // SAFETY: `rusage` is plain integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live local values of the types that the call fills in.
        let waited = unsafe { libc::wait4(pid.as_raw(), &mut status, 0, &mut usage) };
        match nix::Error::result(waited) {
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(system(error)),
            Ok(_) => return Ok((WaitStatus::from_raw(pid, status).map_err(system)?, usage)),
        }
    }
}

fn system(error: nix::Error) -> Error {
    let mut wrapped = Error::usage("");
    wrapped.kind = crate::error::ErrorKind::Io(error.into());
    "the running program cannot be watched".clone_into(&mut wrapped.message);
    wrapped
}

fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exit status {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("signal {signal}"),
        other => format!("{other:?}"),
    }
}
