//! One run of one program, watched from its first instruction to its last.
//!
//! The program's output is discarded and its input is empty, so that neither a terminal nor a pipe affects the
//! time. Watching needs ptrace; where that is forbidden the run still happens, and pages and counters stay unknown.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::counters::{Counted, Counters};
use super::page_cache::ProgramFile;
use super::process::RunFaults;
use super::tracee;
use super::unknown::Unknown;
use crate::loaded_libraries::SEARCH_PATH;
use crate::start_directory;
use crate::start_failure;
use crate::stop_rule::{StopRule, Stopper, Wish};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_system::child::{self, Watched};
use reorder_system::fault_samples::FaultSamples;
use reorder_system::interruption::Interruption;
use reorder_system::perf_event::SoftwareEvent;
use reorder_system::stops::{self, Report, Resume, Stop};
use reorder_system::tracee::send_signal;
use reorder_system::waiting::Group;

/// What a run is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Faults and time, undisturbed.
    Start,
    /// Text pages: which are in the page table at the end, and which faulted.
    Pages(Reach),
    /// Where in the whole process faults of this kind happen.
    Faults(SoftwareEvent),
}

/// How many pages a page fault in the text loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One page: without read-ahead and fault-around.
    OnePage,
    /// As the system is configured.
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
    /// Where the loader looks for libraries first.
    pub(super) search_path: Option<&'request OsStr>,
    pub(super) watch: Watch,
    /// Whether no page of the text may be in the page cache when the first instruction runs. Pages watched in a warm
    /// start leave the cache as it is.
    pub(super) cold: bool,
    /// A file for its standard input; empty unless given.
    pub(super) input: Option<&'request Path>,
    pub(super) stop: &'request StopRule,
    pub(super) time_limit: Duration,
}

/// What one run did. Pages are of the program's own text, by their place in its file.
#[derive(Debug)]
pub(super) struct Outcome {
    /// `exit status N` or `signal NAME`.
    pub(super) status: String,
    /// It died of a fault of its own.
    pub(super) is_fault: bool,
    /// From the request to run the program until its last instruction.
    pub(super) wall: Duration,
    /// Faults that read from the disk, of the program and the children it waited for.
    pub(super) major_faults: u64,
    /// Faults that did not.
    pub(super) minor_faults: u64,
    /// Bytes that the process had the kernel read from the disk, where the kernel counts them.
    pub(super) bytes_read: Option<u64>,
    /// The kernel's counters, where they may be used.
    pub(super) counted: Option<Counted>,
    /// Pages that the page table held at the end.
    pub(super) mapped_text: std::result::Result<BTreeSet<u64>, Unknown>,
    /// Pages that the page cache held then, before the system may take back what is no longer used. Only of a cold run.
    pub(super) cached_text: Option<BTreeSet<u64>>,
    /// The watched pages, where that was requested and possible.
    pub(super) watched: std::result::Result<WatchedPages, Unknown>,
    /// The faults of the whole process, where they were requested and could be seen.
    pub(super) faults: Option<RunFaults>,
}

/// The watched pages.
#[derive(Debug)]
pub(super) struct WatchedPages {
    /// Pages in the page table at the end; where faults reach one page, those that the program executed or read.
    pub(super) mapped: BTreeSet<u64>,
    /// Whether no text was in the page cache when the program began, so that the cache shows touched pages, too.
    pub(super) began_cold: bool,
    /// Pages with a fault, by the kernel's samples, where they are allowed.
    pub(super) faulted: Option<BTreeSet<u64>>,
}

/// Runs a program to its end.
pub(super) fn run(launch: &Launch<'_>) -> Result<Outcome> {
    let path = launch.program.path();
    // A name without a slash would be looked up in PATH, and a relative one from the program's directory.
    let mut command = Command::new(std::path::absolute(path).map_err(|error| Error::io(path, error))?);
    command.arg0(launch.name).args(launch.arguments);
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    command.envs(launch.search_path.map(|path| (SEARCH_PATH, path)));
    if let Some(directory) = launch.directory {
        command.current_dir(directory);
    }
    let failed = |error| Error::io(path, error);
    command.stdin(match launch.input {
        Some(input) => File::open(input).map_err(|error| Error::io(input, error))?.into(),
        None => Stdio::null(),
    });
    let outputs = match launch.stop.needs_output() {
        true => Some([tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?]),
        false => None,
    };
    let printed = |index: usize| match &outputs {
        Some(outputs) => outputs[index].try_clone().map(Stdio::from).map_err(failed),
        None => Ok(Stdio::null()),
    };
    command.stdout(printed(0)?).stderr(printed(1)?);
    child::own_session(&mut command, Watched::Traced);
    Interruption::check()?;
    if let Some(directory) = launch.directory {
        start_directory::check(directory)?;
    }
    let (child, started) =
        child::spawn(&mut command).map_err(|error| start_failure::explain(launch.program.path(), error))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let group = Group::of(pid, launch.stop.is_set());
    let (alive, ended) = mpsc::channel::<()>();
    let limit = launch.stop.extends(launch.time_limit);
    let outcome = std::thread::scope(|scope| {
        let watchdog = scope.spawn(|| guard(&group, launch.stop, outputs.as_ref(), ended, started, limit));
        let outcome = watch(launch, &group, pid, started);
        if outcome.is_err() {
            abandon(&group, pid);
        }
        drop(alive);
        // The watchdog only waits and kills; it cannot panic.
        if watchdog.join().unwrap_or(false) { Err(too_late(launch.time_limit)) } else { outcome }
    });
    Interruption::check()?;
    outcome.map_err(|error| error.in_file(launch.program.path()))
}

/// Kills the group at the time limit, or when this process is asked to end; whether the limit was reached.
fn guard(
    group: &Group,
    stop: &StopRule,
    outputs: Option<&[File; 2]>,
    ended: mpsc::Receiver<()>,
    started: Instant,
    limit: Duration,
) -> bool {
    let mut stopper = Stopper::new(stop);
    let pause = if stop.is_set() { LOOK_OFTEN } else { LOOK_EVERY };
    loop {
        let left = limit.saturating_sub(started.elapsed());
        match ended.recv_timeout(left.min(pause)) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => return false,
        }
        // An output that cannot be read has no text that the run could wait for: it reaches its limit.
        if let Ok(Wish::Ends(signal)) = stopper.look(outputs) {
            group.signal_leader(signal);
        }
        let is_late = started.elapsed() >= limit;
        if is_late || Interruption::came() {
            let had_ended = group.kill();
            return is_late && !had_ended;
        }
    }
}

/// How long an interruption may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same for what a run is asked to end by.
const LOOK_OFTEN: Duration = Duration::from_millis(5);

fn too_late(limit: Duration) -> Error {
    Error::usage(format!("still running after {} s and was stopped", limit.as_secs()))
        .with_hint(Hint::MoreTimeToMeasure)
}

/// Ends and reaps a process that could not be watched to its end, with all of its group.
fn abandon(group: &Group, pid: Pid) {
    if group.kill() {
        return;
    }
    loop {
        // It may be stopped; these calls fail only when it is gone already.
        let _ = resume(pid, 0);
        match group.wait() {
            Ok((Report::Ended(_), _)) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn watch(launch: &Launch<'_>, group: &Group, pid: Pid, started: Instant) -> Result<Outcome> {
    let mut watcher = Watcher {
        launch,
        pid,
        counters: None,
        started: Err(Unknown::NotTraced),
        end: None,
        mapped_text: Err(Unknown::NotTraced),
        cached_text: None,
        pages: Err(Unknown::NotTraced),
        samples: None,
        faults: None,
        bytes_read: None,
    };
    let mut loaded = false;
    loop {
        let (report, usage) = group.wait().map_err(system)?;
        match report {
            Report::Stopped(Stop::Signal(libc::SIGTRAP)) if !loaded => {
                loaded = true;
                // Unless its end is seen.
                watcher.mapped_text = Err(Unknown::Unreadable);
                watcher.pages = Err(Unknown::Unreadable);
                let options = ptrace::Options::PTRACE_O_TRACEEXIT
                    | ptrace::Options::PTRACE_O_TRACEEXEC
                    | ptrace::Options::PTRACE_O_EXITKILL;
                ptrace::setoptions(pid, options).map_err(system)?;
                watcher.begin()?;
                resume(pid, 0)?;
            }
            Report::Stopped(Stop::Event(event)) => {
                if event == libc::PTRACE_EVENT_EXIT {
                    watcher.finish()?;
                }
                resume(pid, 0)?;
            }
            Report::Stopped(Stop::Signal(signal)) => resume(pid, signal)?,
            Report::Stopped(_) => resume(pid, 0)?,
            Report::Ended(ending) => {
                // A run that could not be watched can be inspected at its end only.
                let cached_text = match watcher.cached_text.take() {
                    None if launch.cold => Some(launch.program.resident_text()?),
                    cached_text => cached_text,
                };
                return Ok(Outcome {
                    status: ending.to_string(),
                    is_fault: ending.is_fault(),
                    wall: watcher.end.unwrap_or_else(Instant::now).duration_since(started),
                    major_faults: u64::try_from(usage.ru_majflt).unwrap_or(0),
                    minor_faults: u64::try_from(usage.ru_minflt).unwrap_or(0),
                    bytes_read: watcher.bytes_read,
                    counted: watcher.counters.and_then(|counters| counters.read()),
                    mapped_text: watcher.mapped_text,
                    cached_text,
                    watched: watcher.pages,
                    faults: watcher.faults,
                });
            }
        }
    }
}

/// What is done when a watched process is about to run its first instruction, and after its last.
struct Watcher<'launch> {
    launch: &'launch Launch<'launch>,
    pid: Pid,
    counters: Option<Counters>,
    started: std::result::Result<Started, Unknown>,
    end: Option<Instant>,
    mapped_text: std::result::Result<BTreeSet<u64>, Unknown>,
    cached_text: Option<BTreeSet<u64>>,
    pages: std::result::Result<WatchedPages, Unknown>,
    samples: Option<FaultSamples>,
    faults: Option<RunFaults>,
    bytes_read: Option<u64>,
}

/// A run whose pages are watched.
struct Started {
    began_cold: bool,
    samples: Option<FaultSamples>,
    /// Address in the process minus the place in the file, and addresses of the text.
    text: Vec<(u64, Range<u64>)>,
}

impl Watcher<'_> {
    fn begin(&mut self) -> Result<()> {
        let program = self.launch.program.path();
        match self.launch.watch {
            Watch::Start => self.counters = Counters::open(self.pid),
            Watch::Faults(event) => self.samples = FaultSamples::open(self.pid, event),
            Watch::Pages(reach) => {
                let mappings = tracee::mappings(self.pid, program).unwrap_or_default();
                let text = mappings.iter().filter(|mapping| mapping.is_executable);
                let text: Vec<_> =
                    text.map(|text| (text.start.wrapping_sub(text.offset), text.start..text.end)).collect();
                let is_ready = match reach {
                    Reach::OnePage => self.map_page_by_page()?,
                    Reach::AsUsual if text.is_empty() => Err(Unknown::NoMapping),
                    Reach::AsUsual => Ok(()),
                };
                self.started = match is_ready {
                    Ok(()) => {
                        // The system itself has read the file's beginning and the read-ahead window after it.
                        let began_cold = self.launch.cold && self.launch.program.drop_unmapped_text()?;
                        Ok(Started {
                            began_cold,
                            samples: FaultSamples::open(self.pid, SoftwareEvent::PageFaults),
                            text,
                        })
                    }
                    Err(unknown) => Err(unknown),
                };
            }
        }
        Ok(())
    }

    fn map_page_by_page(&self) -> Result<std::result::Result<(), Unknown>> {
        let mut held = Vec::new();
        let mapped = tracee::map_page_by_page(self.pid, self.launch.program.path(), &mut held);
        for signal in held {
            // Fails only when the process is gone.
            let _ = send_signal(self.pid, signal);
        }
        mapped
    }

    fn finish(&mut self) -> Result<()> {
        self.end = Some(Instant::now());
        self.bytes_read = tracee::bytes_read(self.pid);
        let program = self.launch.program;
        self.mapped_text = tracee::mapped_text(self.pid, program.path());
        if self.launch.cold {
            let mut cached = program.resident_text()?;
            // What is in the page table is in the page cache; the system may have taken it back between these two looks.
            let mapped_still = tracee::mapped_text(self.pid, program.path()).unwrap_or_default();
            let mapped = self.mapped_text.iter().flatten();
            cached.extend(mapped.filter(|page| !mapped_still.contains(page)));
            self.cached_text = Some(cached);
        }
        self.pages = self.watched_pages();
        if let Watch::Faults(_) = self.launch.watch {
            self.faults = RunFaults::of(self.pid, self.samples.as_ref());
        }
        Ok(())
    }

    fn watched_pages(&self) -> std::result::Result<WatchedPages, Unknown> {
        let started = self.started.as_ref().map_err(Unknown::clone)?;
        let mapped = self.mapped_text.as_ref().map_err(Unknown::clone)?;
        let faulted = started.samples.as_ref().and_then(|samples| samples.pages_of(self.pid));
        let place_of = |address: u64| {
            let (bias, _) = started.text.iter().find(|(_, range)| range.contains(&address))?;
            Some(address.wrapping_sub(*bias))
        };
        Ok(WatchedPages {
            mapped: mapped.clone(),
            began_cold: started.began_cold,
            faulted: faulted.map(|faulted| faulted.into_iter().filter_map(place_of).collect()),
        })
    }
}

/// Lets the program go on, with `signal` delivered unless it is zero.
fn resume(pid: Pid, signal: i32) -> Result<()> {
    stops::resume(pid, Resume::Freely, signal).map_err(system)
}

fn system(error: impl Into<io::Error>) -> Error {
    let mut wrapped = Error::usage("");
    wrapped.kind = reorder_base::error::ErrorKind::Io(error.into());
    "the running program cannot be watched".clone_into(&mut wrapped.message);
    wrapped
}
