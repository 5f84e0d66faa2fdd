//! One run of one program from beginning to end, with all that it prints.
//!
//! Output goes to files, so that a grandchild which keeps a descriptor open cannot hold the caller. Guarantee: what the
//! program leaves running in its session's group is ended with it, and no reused process number is killed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::start_failure;
use crate::stop_rule::{StopRule, Stopper, Wish};
use reorder_base::error::{Error, Result};
use reorder_system::child::{self, Watched};
use reorder_system::interruption::Interruption;
use reorder_system::stops::Ending;

/// What to run and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'run> {
    pub(super) program: &'run Path,
    /// The name that it gets as its first word.
    pub(super) name: &'run OsStr,
    pub(super) arguments: &'run [OsString],
    pub(super) input: Option<&'run Path>,
    /// In addition to the variables of this process.
    pub(super) environment: &'run [(OsString, OsString)],
    pub(super) stop: &'run StopRule,
    pub(super) time_limit: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// On its own or by a signal.
    Ended(Ending),
    /// It was still running at the time limit.
    TooLate,
    /// It had printed more than [`MAX_OUTPUT_BYTES`].
    TooMuch,
}

/// The end of a sentence about the program.
impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(ending) => write!(formatter, "ends with {ending}"),
            Self::TooLate => formatter.write_str("does not end in time"),
            Self::TooMuch => write!(formatter, "prints more than {} MiB", MAX_OUTPUT_BYTES >> 20),
        }
    }
}

/// What a caller can observe of a run.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) end: End,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) took: Duration,
    /// Whether it was asked to end; otherwise it ended by itself.
    pub(super) was_asked: bool,
}

/// Standard output or error of a program that prints more is no longer compared: it may never end.
pub(super) const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// Runs a program to its end.
///
/// # Errors
/// What cannot be started, and an interruption of this process.
pub(super) fn run(launch: &Launch<'_>) -> Result<Observed> {
    let system = |error: io::Error| Error::io(launch.program, error);
    let mut outputs = [tempfile::tempfile().map_err(system)?, tempfile::tempfile().map_err(system)?];
    // A name without a slash would be looked up in PATH.
    let mut command = Command::new(std::path::absolute(launch.program).map_err(system)?);
    command.arg0(launch.name).args(launch.arguments);
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(match launch.input {
        Some(input) => File::open(input).map_err(|error| Error::io(input, error))?.into(),
        None => Stdio::null(),
    });
    let [stdout, stderr] = &outputs;
    command.stdout(stdout.try_clone().map_err(system)?).stderr(stderr.try_clone().map_err(system)?);
    child::own_session(&mut command, Watched::ByItsEnd);
    Interruption::check()?;
    let (mut child, started) =
        child::spawn(&mut command).map_err(|error| start_failure::explain(launch.program, error))?;
    let mut stopper = Stopper::new(launch.stop);
    let end = watch(&child, &outputs, launch, &mut stopper);
    let took = started.elapsed();
    // The leader is not reaped yet, so the group's number is still its own. Fails only where all have ended.
    let _ = killpg(id_of(&child), Signal::SIGKILL);
    let status = child.wait().map_err(system)?;
    Interruption::check()?;
    let end = match end.map_err(system)? {
        Some(end) => end,
        // What a short run printed after the last look at its outputs.
        None if prints_too_much(&outputs).map_err(system)? => End::TooMuch,
        None => End::Ended(Ending::of(status)),
    };
    let [stdout, stderr] = outputs.each_mut().map(contents);
    let was_asked = stopper.has_asked();
    Ok(Observed { end, stdout: stdout.map_err(system)?, stderr: stderr.map_err(system)?, took, was_asked })
}

/// Waits until the child has ended on its own, or returns why it must be ended.
fn watch(
    child: &Child,
    outputs: &[File; 2],
    launch: &Launch<'_>,
    stopper: &mut Stopper<'_>,
) -> io::Result<Option<End>> {
    let started = Instant::now();
    let limit = launch.stop.extends(launch.time_limit);
    // Most runs end within milliseconds; later looks may be rarer.
    let mut pause = Duration::from_micros(500);
    loop {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(id_of(child)), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if Interruption::came() {
            return Ok(None);
        }
        if let Wish::Ends(signal) = stopper.look(Some(outputs))? {
            // It is not reaped yet, so the number is its own.
            let _ = kill(id_of(child), signal);
        }
        if started.elapsed() > limit {
            return Ok(Some(End::TooLate));
        }
        if prints_too_much(outputs)? {
            return Ok(Some(End::TooMuch));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn prints_too_much(outputs: &[File; 2]) -> io::Result<bool> {
    for output in outputs {
        if output.metadata()?.len() > MAX_OUTPUT_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}

fn id_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
