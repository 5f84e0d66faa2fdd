//! One run of one program, watched from its first instruction to its last.
//!
//! The program's output goes nowhere and its input is empty, so that neither a terminal nor a pipe takes part in the
//! time. Watching needs ptrace; where that is forbidden the run still happens, and pages and counters stay unknown.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use super::counters::{Counted, Counters};
use super::fault_samples::FaultSamples;
use super::page_cache::ProgramFile;
use super::tracee;
use crate::error::{Error, Result};

/// What a run is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Faults and time, undisturbed.
    Start,
    /// Text pages: which are in the page table at the end, and which faulted.
    Pages(Reach),
}

/// How far a page fault in the text reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One page: nothing is read ahead or mapped around.
    OnePage,
    /// As far as the system has it.
    AsUsual,
}

/// What to run and how.
#[derive(Debug)]
pub(super) struct Launch<'request> {
    pub(super) program: &'request ProgramFile,
    pub(super) name: &'request OsStr,
    pub(super) arguments: &'request [OsString],
    pub(super) directory: Option<&'request Path>,
    pub(super) environment: &'request [(OsString, OsString)],
    pub(super) watch: Watch,
    /// Whether nothing of the text may be in the page cache when the first instruction runs. Pages watched in a warm
    /// start leave the cache as it is.
    pub(super) cold: bool,
    pub(super) time_limit: Duration,
}

/// What one run did. Pages are of the program's own text, by their place in its file.
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
    /// The kernel's counters, where they may be used.
    pub(super) counted: Option<Counted>,
    /// Pages that the page table held at the end.
    pub(super) mapped_text: Option<BTreeSet<u64>>,
    /// What watching pages told, where that was asked for and possible.
    pub(super) watched: Option<WatchedPages>,
}

/// What watching pages told.
#[derive(Debug)]
pub(super) struct WatchedPages {
    /// Pages in the page table at the end; where faults reach one page, those that the program executed or read.
    pub(super) mapped: BTreeSet<u64>,
    /// Whether no text was in the page cache when the program began, so that the cache tells, too.
    pub(super) began_cold: bool,
    /// Pages with a fault, by the kernel's own account, where it may be asked.
    pub(super) faulted: Option<BTreeSet<u64>>,
}

/// Runs a program to its end.
pub(super) fn run(launch: &Launch<'_>) -> Result<Outcome> {
    let path = launch.program.path();
    // A name without a slash would be looked up elsewhere, and a relative one from the program's directory.
    let mut command = Command::new(std::path::absolute(path).map_err(|error| Error::io(path, error))?);
    command.arg0(launch.name).args(launch.arguments);
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = launch.directory {
        command.current_dir(directory);
    }
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
    let mut watcher =
        Watcher { launch, pid, counters: None, started: None, end: None, mapped_text: None, pages: None };
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
                watcher.begin()?;
                resume(pid, None)?;
            }
            WaitStatus::PtraceEvent(_, _, event) => {
                if event == libc::PTRACE_EVENT_EXIT {
                    watcher.finish();
                }
                resume(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => resume(pid, Some(signal))?,
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                return Ok(Outcome {
                    status: describe(status),
                    wall: watcher.end.unwrap_or_else(Instant::now).duration_since(started),
                    major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
                    minor_faults: u64::try_from(usage.ru_minflt).unwrap_or(0),
                    counted: watcher.counters.and_then(|counters| counters.read()),
                    mapped_text: watcher.mapped_text,
                    watched: watcher.pages,
                });
            }
            _ => resume(pid, None)?,
        }
    }
}

/// What is done when a watched process is about to run its first instruction, and after its last.
struct Watcher<'launch> {
    launch: &'launch Launch<'launch>,
    pid: Pid,
    counters: Option<Counters>,
    started: Option<Started>,
    end: Option<Instant>,
    mapped_text: Option<BTreeSet<u64>>,
    pages: Option<WatchedPages>,
}

/// A run whose pages are watched.
struct Started {
    began_cold: bool,
    samples: Option<FaultSamples>,
    /// Address in the process less the place in the file, and addresses of the text.
    text: Vec<(u64, Range<u64>)>,
}

impl Watcher<'_> {
    fn begin(&mut self) -> Result<()> {
        let program = self.launch.program.path();
        match self.launch.watch {
            Watch::Start => self.counters = Counters::open(self.pid),
            Watch::Pages(reach) => {
                let mappings = tracee::mappings(self.pid, program).unwrap_or_default();
                let text = mappings.iter().filter(|mapping| mapping.is_executable);
                let text: Vec<_> =
                    text.map(|text| (text.start.wrapping_sub(text.offset), text.start..text.end)).collect();
                let is_ready = match reach {
                    Reach::OnePage => tracee::map_page_by_page(self.pid, program)?,
                    Reach::AsUsual => !text.is_empty(),
                };
                if is_ready {
                    // The system itself has read the file's beginning, and as much behind it as the disk is told to.
                    let began_cold = self.launch.cold && self.launch.program.drop_unmapped_text()?;
                    self.started = Some(Started { began_cold, samples: FaultSamples::open(self.pid), text });
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.end = Some(Instant::now());
        self.mapped_text = tracee::mapped_text(self.pid, self.launch.program.path());
        if let (Some(started), Some(mapped)) = (&self.started, &self.mapped_text) {
            let faulted = started.samples.as_ref().and_then(|samples| samples.pages_of(self.pid));
            let place_of = |address: u64| {
                let (bias, _) = started.text.iter().find(|(_, range)| range.contains(&address))?;
                Some(address.wrapping_sub(*bias))
            };
            self.pages = Some(WatchedPages {
                mapped: mapped.clone(),
                began_cold: started.began_cold,
                faulted: faulted.map(|faulted| faulted.into_iter().filter_map(place_of).collect()),
            });
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
