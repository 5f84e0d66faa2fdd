//! Ends the process with a message when a mapped file is truncated while it is read.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The message. A signal handler cannot look up which file was truncated.
const MESSAGE: &[u8] = b"error: an input file was truncated, or a part of it could not be read\n\
hint: run the command again when no other process writes its input\n";

/// The exit status of every command that could not run.
const STATUS: i32 = 2;

/// Set by the first thread that accesses a lost page.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_signal: i32) {
    if IS_ENDING.swap(true, Ordering::Relaxed) {
        // Another thread writes the message and ends the process.
        loop {
            // SAFETY: may be called in a handler of a signal (POSIX, "Signal Concepts") and touches no memory.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: both calls may be made in a handler of a signal (POSIX, "Signal Concepts"); the pointer and the length are
    // those of a constant.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(STATUS);
    }
}

/// Makes the process end with a message, instead of by `SIGBUS`, when pages of a mapped file are gone. For programs, not for
/// libraries: the handler applies to the whole process. Programs that it executes get the default handler again.
pub fn explain_lost_pages() {
    let action = SigAction::new(SigHandler::Handler(end), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only calls what a handler may call, and does not return. Rust's own handler, which reports a stack
    // overflow, is replaced for this signal; on Linux a stack overflow raises SIGSEGV.
    let _without_the_handler_sigbus_ends_the_process = unsafe { sigaction(Signal::SIGBUS, &action) };
}
