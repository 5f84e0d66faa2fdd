//! Waiting for a process that nobody else reaps.
//!
//! A process is looked at before it is reaped: until then its number and that of its process group belong to nobody else.

use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What a process came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peeked {
    /// It stopped; for a signal, unless it was an event such as its end.
    Stopped(Option<Signal>),
    /// It ended and is not reaped.
    Ended,
}

/// Waits until the process stops, or has ended.
pub(super) fn peek(pid: Pid) -> nix::Result<Peeked> {
    if has_ended(pid)? {
        return Ok(Peeked::Ended);
    }
    // Only this thread reaps it, and the change that was seen is still there.
    match waitpid(pid, Some(WaitPidFlag::WNOHANG))? {
        WaitStatus::Stopped(_, signal) => Ok(Peeked::Stopped(Some(signal))),
        _ => Ok(Peeked::Stopped(None)),
    }
}

/// Waits until the process's state changes, and leaves the change to be waited for; whether it has ended.
fn has_ended(pid: Pid) -> nix::Result<bool> {
    loop {
        // SAFETY: `siginfo_t` is plain integers, for which zero is a value.
        let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
        // SAFETY: the pointer is to a live local value of the type that the call fills in.
        let waited =
            unsafe { libc::waitid(libc::P_PID, pid.as_raw().cast_unsigned(), &raw mut information, options) };
        match Errno::result(waited) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return Ok(
                    [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&information.si_code)
                );
            }
        }
    }
}

/// A started process that leads a group, until it is reaped.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// Whether the leader's number may belong to somebody else.
    is_reaped: Mutex<bool>,
}

impl Group {
    pub(super) fn of(leader: Pid) -> Self {
        Self { leader, is_reaped: Mutex::new(false) }
    }

    /// Ends all of it, unless the leader has been reaped; whether that was so.
    pub(super) fn kill(&self) -> bool {
        let is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails only where all have ended.
        let _ = (!*is_reaped).then(|| killpg(self.leader, Signal::SIGKILL));
        *is_reaped
    }

    /// The leader's next change of state, with the resources it has used.
    pub(super) fn wait(&self) -> nix::Result<(WaitStatus, libc::rusage)> {
        has_ended(self.leader)?;
        let mut is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = 0;
        // SAFETY: `rusage` is plain integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live local values of the types that the call fills in.
        let waited =
            unsafe { libc::wait4(self.leader.as_raw(), &raw mut status, libc::__WALL, &raw mut usage) };
        Errno::result(waited)?;
        // Not what was seen before: a stop may have become the end meanwhile.
        *is_reaped = libc::WIFEXITED(status) || libc::WIFSIGNALED(status);
        Ok((WaitStatus::from_raw(self.leader, status)?, usage))
    }
}
