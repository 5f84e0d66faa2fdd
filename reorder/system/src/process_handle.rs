//! A process that is told to end by another thread than the one that waits for it.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Names one process for good: a signal never reaches another one that was given its number later.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// The process with this number, which must not have been waited for yet.
    ///
    /// # Errors
    /// Where the system has no such handles (before Linux 5.3).
    pub fn of(process: Pid) -> io::Result<Self> {
        // SAFETY: the call takes two numbers and gives a new descriptor or an error.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
        let descriptor = libc::c_int::try_from(descriptor).ok().filter(|descriptor| *descriptor >= 0);
        let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the descriptor is new, so nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Sends a signal; a process that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        let no_information = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the call takes numbers and a null pointer, with which the kernel describes the signal itself. It fails only
        // when the process has ended, which is wanted.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal as i32, no_information, 0)
        };
    }
}
