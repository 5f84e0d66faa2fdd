//! Why traced tasks stop, and how they go on, for all that traces.
//!
//! `nix` knows signals 1 to 31 only, but programs stop and continue with real-time signals too (thread
//! cancellation uses them), so waiting and continuing go to the system with plain numbers.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::{fmt, io};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// What a wait reported about one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It ended.
    Ended(Ending),
    /// It stopped and waits to be resumed.
    Stopped(Stop),
}

impl Report {
    /// What a status of `waitpid` says.
    pub fn of(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Ended(Ending::Exited(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Self::Ended(Ending::Killed(libc::WTERMSIG(status)));
        }
        Self::Stopped(Stop::of(status >> 8))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// On its own, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ending {
    /// How a child ended that was waited for.
    pub fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, signal) => Self::Killed(signal.unwrap_or_default()),
        }
    }

    /// Whether it died of a fault of its own, such as an access to memory that is not there.
    pub fn is_fault(self) -> bool {
        const FAULTS: [i32; 6] =
            [libc::SIGSEGV, libc::SIGILL, libc::SIGBUS, libc::SIGTRAP, libc::SIGFPE, libc::SIGABRT];
        matches!(self, Self::Killed(signal) if FAULTS.contains(&signal))
    }

    /// What a shell reports: the exit status, or 128 and the signal's number.
    pub fn shell_status(self) -> u8 {
        match self {
            Self::Exited(status) => status as u8,
            Self::Killed(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(status) => write!(formatter, "exit status {status}"),
            Self::Killed(number) => match Signal::try_from(number) {
                Ok(signal) => write!(formatter, "signal {signal}"),
                Err(_) => write!(formatter, "signal {number}"),
            },
        }
    }
}

/// Why a traced task stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At one of the `PTRACE_EVENT_*` that were asked for.
    Event(i32),
    /// Entering or leaving a system call.
    SystemCall,
    /// A stopping signal has stopped the whole process, and it is to stay so.
    Group,
    /// It was attached or interrupted, or its group stop ended.
    Attached,
    /// This signal is about to be delivered.
    Signal(i32),
}

/// Set in the stop signal of system calls by `PTRACE_O_TRACESYSGOOD`.
const SYSTEM_CALL_BIT: i32 = 0x80;

impl Stop {
    /// What `waitid` gives as the status of a stop: the signal, and the event above it.
    pub fn of(status: i32) -> Self {
        let signal = status & 0xff;
        match status >> 8 {
            0 if signal == libc::SIGTRAP | SYSTEM_CALL_BIT => Self::SystemCall,
            0 => Self::Signal(signal),
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Self::Attached,
            libc::PTRACE_EVENT_STOP => Self::Group,
            event => Self::Event(event),
        }
    }
}

/// Waits for any child or tracee of the calling thread, and of no other thread; `None` when none is left.
pub fn wait() -> io::Result<Option<(Pid, Report)>> {
    match wait_for_any(0) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        waited => waited.map(Some),
    }
}

/// Like [`wait`], but returns `None` when there is no report yet.
pub fn poll() -> io::Result<Option<(Pid, Report)>> {
    let (task, report) = wait_for_any(libc::WNOHANG)?;
    Ok((task.as_raw() != 0).then_some((task, report)))
}

fn wait_for_any(options: i32) -> io::Result<(Pid, Report)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live integer of the type that the call writes.
        let task = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD | options) };
        if task >= 0 {
            return Ok((Pid::from_raw(task), Report::of(status)));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// How a stopped task goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until the next event.
    Freely,
    /// Until the next event or system call.
    ToSystemCall,
    /// By one instruction; with a signal, to the first one of its handler.
    OneStep,
    /// Stays stopped, but notices the end of its group stop.
    Listening,
    /// Forever: its tracing ends.
    Untraced,
}

/// Lets a stopped `task` go on, with `signal` delivered unless it is zero.
///
/// A task that was killed meanwhile is no error: the next wait reports its end.
pub fn resume(task: Pid, how: Resume, signal: i32) -> io::Result<()> {
    let request = match how {
        Resume::Freely => libc::PTRACE_CONT,
        Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        Resume::OneStep => libc::PTRACE_SINGLESTEP,
        Resume::Listening => libc::PTRACE_LISTEN,
        Resume::Untraced => libc::PTRACE_DETACH,
    };
    // SAFETY: these requests read no memory of the caller: the address is ignored and the data is the signal's number.
    let result = unsafe {
        libc::ptrace(request, task.as_raw(), std::ptr::null_mut::<libc::c_void>(), libc::c_long::from(signal))
    };
    match result {
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}
