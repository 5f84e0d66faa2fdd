//! Ctrl-C belongs to the recorded program.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Lets this process outlive interrupts from the terminal, which reach the program as well: the program decides what
/// they mean, and its trace is written in any case.
///
/// A handler is used instead of ignoring, because programs started later inherit what is ignored, but not handlers.
///
/// # Errors
/// When the system refuses.
pub fn leave_interrupts_to_program() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler does nothing, so it is safe in any context.
        let former = unsafe { sigaction(signal, &action) }?;
        if matches!(former.handler(), SigHandler::SigIgn) {
            // What the caller chose to ignore (`nohup`, background jobs) stays ignored, here and in the program.
            // SAFETY: this restores the action that was in force.
            unsafe { sigaction(signal, &former) }?;
        }
    }
    Ok(())
}
