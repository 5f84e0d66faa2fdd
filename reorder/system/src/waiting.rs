//! Waiting for a process that only this process reaps.
//!
//! A process is inspected before it is reaped: until then its number and that of its process group are not reused.

use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::stops::{Report, Stop};

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeked {
    /// It stopped, for what is given.
    Stopped(Stop),
    /// It ended and is not reaped.
    Ended,
}

/// Waits until the process stops, or has ended.
pub fn peek(pid: Pid) -> nix::Result<Peeked> {
    while !has_ended(pid)? {
        match wait_id(pid, libc::WSTOPPED | libc::WNOHANG) {
            // SAFETY: the call has filled it in, with zeros where there was no event.
            Ok(change) if unsafe { change.si_pid() } != 0 => {
                // SAFETY: as before.
                return Ok(Peeked::Stopped(Stop::of(unsafe { change.si_status() })));
            }
            // It was killed after it had stopped.
            Ok(_) | Err(Errno::ECHILD) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Peeked::Ended)
}

/// Waits until the process's state changes, and leaves the change to be waited for; whether it has ended.
fn has_ended(pid: Pid) -> nix::Result<bool> {
    let change = wait_id(pid, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)?;
    Ok([libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&change.si_code))
}

fn wait_id(pid: Pid, options: libc::c_int) -> nix::Result<libc::siginfo_t> {
    loop {
        // SAFETY: `siginfo_t` is plain integers, for which zero is a value.
        let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = options | libc::__WALL;
        // SAFETY: the pointer is to a live local value of the type that the call fills in.
        let waited =
            unsafe { libc::waitid(libc::P_PID, pid.as_raw().cast_unsigned(), &raw mut information, options) };
        match Errno::result(waited) {
            Err(Errno::EINTR) => {}
            result => return result.map(|_| information),
        }
    }
}

/// A started process that leads a group, until it is reaped.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
    /// Whether the leader's number may belong to another process.
    is_reaped: Mutex<bool>,
    /// Whether the others end with the leader.
    ends_together: bool,
}

impl Group {
    /// The group of a child that leads one; with `ends_together` the others are killed when it has ended.
    #[must_use]
    pub fn of(leader: Pid, ends_together: bool) -> Self {
        Self { leader, is_reaped: Mutex::new(false), ends_together }
    }

    /// Ends all of it, unless the leader has been reaped; whether that was so.
    pub fn kill(&self) -> bool {
        let is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails only where all have ended.
        let _ = (!*is_reaped).then(|| killpg(self.leader, Signal::SIGKILL));
        *is_reaped
    }

    /// Sends a signal to the leader alone, unless it has been reaped.
    pub fn signal_leader(&self, signal: Signal) {
        let is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails only where it has ended.
        let _ = (!*is_reaped).then(|| kill(self.leader, signal));
    }

    /// The leader's next change of state, with the resources it has used.
    pub fn wait(&self) -> nix::Result<(Report, libc::rusage)> {
        let has_ended = has_ended(self.leader)?;
        let mut is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if has_ended && self.ends_together {
            // Fails only where all have ended.
            let _ = killpg(self.leader, Signal::SIGKILL);
        }
        let mut status = 0;
        // SAFETY: `rusage` is plain integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live local values of the types that the call fills in.
        let waited =
            unsafe { libc::wait4(self.leader.as_raw(), &raw mut status, libc::__WALL, &raw mut usage) };
        Errno::result(waited)?;
        // Not what was seen before: a stop may have become the end meanwhile.
        let report = Report::of(status);
        *is_reaped = matches!(report, Report::Ended(_));
        Ok((report, usage))
    }
}
