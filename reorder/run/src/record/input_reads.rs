//! Notices a program that reads its standard input where that is empty: it would do other work with an input.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

use super::RecordRequest;
use reorder_system::arch;

/// Programs read their input early, and each watched system call costs two stops.
const MAX_WATCHED_CALLS: u32 = 40_000;

/// Looks for the first read from the standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputReads {
    /// So many stops at system calls are still looked at.
    Watched(u32),
    NotWatched,
    Empty,
}

impl InputReads {
    /// Only an input that is empty because none was given is watched.
    pub(super) fn of(request: &RecordRequest) -> Self {
        match request.discard_output && request.watches_input && request.input.is_none() {
            true => Self::Watched(MAX_WATCHED_CALLS),
            false => Self::NotWatched,
        }
    }

    pub(super) fn is_watching(self) -> bool {
        matches!(self, Self::Watched(_))
    }

    pub(super) fn were_empty(self) -> bool {
        self == Self::Empty
    }

    /// `task` is stopped at a system call.
    pub(super) fn note_system_call(&mut self, task: Pid) -> nix::Result<()> {
        let Self::Watched(left) = *self else { return Ok(()) };
        *self = match left.checked_sub(1) {
            Some(left) => Self::Watched(left),
            None => Self::NotWatched,
        };
        if arch::descriptor_of_read(task)? == Some(libc::STDIN_FILENO) && has_no_input(task) {
            *self = Self::Empty;
        }
        Ok(())
    }
}

/// Whether standard input is still what it was: programs also open files in its place.
fn has_no_input(task: Pid) -> bool {
    fs::read_link(format!("/proc/{task}/fd/0")).is_ok_and(|path| path == Path::new("/dev/null"))
}
