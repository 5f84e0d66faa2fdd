//! Why a stop could not be served, and which of these cases are no failures of the recording.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use reorder_base::error::{Error, ErrorKind, Result};

/// The result of serving a stop.
pub(super) type Served<T = ()> = std::result::Result<T, Failure>;

/// Why a stop was not served.
#[derive(Debug)]
pub(super) enum Failure {
    /// The task was killed meanwhile.
    Gone,
    /// Recording cannot go on.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            _ => Self::Other(wait_failed(error)),
        }
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// The error for a refused request of tracing.
pub(super) fn wait_failed(error: io::Error) -> Error {
    let mut failure = Error::io(Path::new("/proc"), error);
    failure.message = "tracing failed".to_owned();
    failure.file = None;
    failure
}

/// A task that was killed in the middle of being served is no failure: its end is reported next.
pub(super) fn unless_killed(task: Pid, served: Served) -> Result<()> {
    match served {
        Ok(()) | Err(Failure::Gone) => Ok(()),
        Err(Failure::Other(_)) if is_gone(task) => Ok(()),
        Err(Failure::Other(error)) => Err(error),
    }
}

/// Whether a task that had stopped was killed meanwhile.
fn is_gone(task: Pid) -> bool {
    ptrace::getevent(task) == Err(Errno::ESRCH)
}

/// Whether the system says that a process does not exist any more.
pub(super) fn names_no_process(error: &Error) -> bool {
    matches!(system_error(error), Some(libc::ESRCH | libc::ENOENT))
}

/// Whether the system says that this user may not look at a process.
pub(super) fn forbids(error: &Error) -> bool {
    matches!(system_error(error), Some(libc::EACCES | libc::EPERM))
}

fn system_error(error: &Error) -> Option<i32> {
    let ErrorKind::Io(source) = &error.kind else { return None };
    source.raw_os_error()
}
