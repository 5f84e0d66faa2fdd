//! Children that are watched to their end.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::ptrace;

/// How a child is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// By ptrace, where that is allowed: it stops at its first instruction.
    Traced,
    /// By how it ends: a crash is told by its signal and leaves no core file.
    ByItsEnd,
}

/// Makes the child of `command` the leader of a session of its own. That is a process group without a terminal that could
/// stop it, so what the program leaves running can be ended with it.
pub fn own_session(command: &mut Command, watched: Watched) {
    // SAFETY: between fork and exec only system calls are made, which allocate nothing and take no lock.
    unsafe {
        command.pre_exec(move || {
            // A fresh child leads no group, so this does not fail.
            let _ = nix::unistd::setsid();
            match watched {
                // Where ptrace is forbidden the run goes on unwatched.
                Watched::Traced => drop(ptrace::traceme()),
                Watched::ByItsEnd => {
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                }
            }
            Ok(())
        });
    }
}
