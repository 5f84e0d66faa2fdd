//! What the system tells of a task's signals: proc_pid_status(5).

use std::fs;

use nix::unistd::Pid;

/// How it is with SIGTRAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalStatus {
    /// The process of the task.
    pub(super) process: Pid,
    /// The process has a handler.
    pub(super) is_caught: bool,
    pub(super) is_ignored: bool,
    /// The task will be stopped by it before it executes anything; one that is blocked waits on.
    pub(super) is_due: bool,
}

impl SignalStatus {
    /// Nothing of a task that is gone.
    pub(super) fn of(task: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{task}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        // Sets in hexadecimal digits, signal 1 in the lowest bit.
        let holds_trap = |key: &str| {
            let set = value(key).and_then(|digits| u64::from_str_radix(digits, 16).ok());
            set.is_some_and(|set| set & 1 << (libc::SIGTRAP - 1) != 0)
        };
        Some(Self {
            process: Pid::from_raw(value("Tgid:")?.parse().ok()?),
            is_caught: holds_trap("SigCgt:"),
            is_ignored: holds_trap("SigIgn:"),
            is_due: holds_trap("SigPnd:") && !holds_trap("SigBlk:"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_by_their_names() {
        let status = "Name:\tSigCgt:\nTgid:\t42\nPid:\t43\nSigPnd:\t0000000000000010\nShdPnd:\t0000000000000000\n\
                      SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\nSigCgt:\t0000000180000010\n";
        let expected =
            SignalStatus { process: Pid::from_raw(42), is_caught: true, is_ignored: false, is_due: true };
        assert_eq!(SignalStatus::parse(status), Some(expected));
        assert_eq!(SignalStatus::parse(""), None);
    }
}
