//! A task's signals as the system reports them: proc_pid_status(5).

use std::fs;

use nix::unistd::Pid;

use reorder_base::numbers::hexadecimal;

/// The state of SIGTRAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalStatus {
    /// The process of the task.
    pub(super) process: Pid,
    /// The process has a handler.
    pub(super) is_caught: bool,
    /// The task blocks it.
    pub(super) is_blocked: bool,
    pub(super) is_ignored: bool,
    /// The task will be stopped by it before it executes anything; one that is blocked waits on.
    pub(super) is_due: bool,
}

impl SignalStatus {
    /// `None` for a task that is gone.
    pub(super) fn of(task: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{task}/status")).ok()?)
    }

    /// Whether the process of `task` has a handler of `signal`, whichever that is.
    pub(super) fn catches(task: Pid, signal: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{task}/status"));
        status.is_ok_and(|status| holds(&status, "SigCgt:", signal))
    }

    fn parse(status: &str) -> Option<Self> {
        let holds_trap = |key: &str| holds(status, key, libc::SIGTRAP);
        Some(Self {
            process: Pid::from_raw(value(status, "Tgid:")?.parse().ok()?),
            is_caught: holds_trap("SigCgt:"),
            is_blocked: holds_trap("SigBlk:"),
            is_ignored: holds_trap("SigIgn:"),
            is_due: holds_trap("SigPnd:") && !holds_trap("SigBlk:"),
        })
    }
}

fn value<'status>(status: &'status str, key: &str) -> Option<&'status str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// Sets are in hexadecimal digits, signal 1 in the lowest bit.
fn holds(status: &str, key: &str, signal: i32) -> bool {
    let set = value(status, key).and_then(|digits| hexadecimal(digits.as_bytes()));
    let bit = u32::try_from(signal - 1).ok().and_then(|position| 1_u64.checked_shl(position));
    set.zip(bit).is_some_and(|(set, bit)| set & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_by_their_names() {
        let status = "Name:\tSigCgt:\nTgid:\t42\nPid:\t43\nSigPnd:\t0000000000000010\nShdPnd:\t0000000000000000\n\
                      SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\nSigCgt:\t0000000180000010\n";
        let expected = SignalStatus {
            process: Pid::from_raw(42),
            is_caught: true,
            is_blocked: false,
            is_ignored: false,
            is_due: true,
        };
        assert_eq!(SignalStatus::parse(status), Some(expected));
        assert_eq!(SignalStatus::parse(""), None);
        assert!(holds(status, "SigCgt:", libc::SIGTRAP) && holds(status, "SigCgt:", 32));
        assert!(!holds(status, "SigCgt:", libc::SIGUSR1) && !holds(status, "SigCgt:", 0));
    }
}
