//! Children that are watched to their end.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::ptrace;

/// How a child is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// By ptrace, where that is allowed: it stops at its first instruction.
    Traced,
    /// By how it ends: a crash is told by its signal and leaves no core file.
    ByItsEnd,
}

/// Starts `command`; gives also the time at which the attempt that succeeded began.
///
/// A file that this process has just written is busy while another of its threads forks: the child holds the descriptor until
/// it executes its own program. So a busy file is tried again, for at most a second.
///
/// # Errors
/// Those of [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<(Child, Instant)> {
    const MAX_BUSY: Duration = Duration::from_secs(1);
    let first = Instant::now();
    loop {
        let started = Instant::now();
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && first.elapsed() < MAX_BUSY => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result.map(|child| (child, started)),
        }
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_is_busy_for_a_moment_is_started() {
        let scratch = tempfile::tempdir().unwrap();
        let program = scratch.path().join("true");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o755).open(&program).unwrap();
        file.write_all(&std::fs::read("/bin/true").unwrap()).unwrap();
        assert_eq!(Command::new(&program).spawn().unwrap_err().kind(), io::ErrorKind::ExecutableFileBusy);
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(file);
        });
        let (mut child, _) = spawn(&mut Command::new(&program)).unwrap();
        assert!(child.wait().unwrap().success());
        closing.join().unwrap();
    }
}
