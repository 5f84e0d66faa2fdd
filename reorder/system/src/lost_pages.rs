//! What happens when a mapped file becomes shorter under its reader.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// What is said then; nothing can be looked up in a handler of a signal, so not even which file it was.
const WORDS: &[u8] = b"error: a file became shorter, or could not be read, while it was read\n\
hint: run the command again when nothing else writes its input\n";

/// As every command that could not run.
const STATUS: i32 = 2;

/// Some thread has met a page that is gone.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_signal: i32) {
    if IS_ENDING.swap(true, Ordering::Relaxed) {
        // Another thread speaks, and ends this one with the process.
        loop {
            // SAFETY: may be called in a handler of a signal (POSIX, "Signal Concepts") and touches no memory.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: both calls may be made in a handler of a signal (POSIX, "Signal Concepts"); the pointer and the length are
    // those of a constant.
    unsafe {
        libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len());
        libc::_exit(STATUS);
    }
}

/// Ends the process with a sentence, instead of by `SIGBUS`, when pages of a mapped file are gone. For programs, not for
/// libraries: the handler is the process's. Programs that this one starts get the default again.
pub fn explain_lost_pages() {
    let action = SigAction::new(SigHandler::Handler(end), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only calls what a handler may call, and does not return. The run-time's own handler, which tells an
    // overflow of the stack, is lost for this signal; on Linux overflows come as another one.
    let _without_it_the_process_ends_with_less_to_say = unsafe { sigaction(Signal::SIGBUS, &action) };
}
