//! Ctrl-C and other requests to end, while copies of programs exist next to them.
//!
//! While a [`Interruption`] lives, such signals are only noted: runs end early with an error, so that their temporary
//! files are removed, and then the signal takes its effect. Started programs do not inherit this.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

use reorder_base::error::{Error, Result};

const SIGNALS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// The signal that came, 0 for none: a handler has no other place to leave it.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// How many measurements run in this process, and what signals did before the first of them.
static HOLDERS: Mutex<Holders> = Mutex::new(Holders { count: 0, former: Vec::new() });

struct Holders {
    count: usize,
    former: Vec<(Signal, SigAction)>,
}

/// Notes signals until it is dropped.
#[derive(Debug)]
pub struct Interruption(());

impl Interruption {
    /// Begins to note signals; those that are ignored (`nohup`) stay so. Where the system refuses, they end the process.
    pub fn note() -> Self {
        extern "C" fn remember(signal: libc::c_int) {
            RECEIVED.store(signal, Ordering::Relaxed);
        }
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        holders.count += 1;
        if holders.count > 1 {
            return Self(());
        }
        let action = SigAction::new(SigHandler::Handler(remember), SaFlags::SA_RESTART, SigSet::empty());
        for signal in SIGNALS {
            // SAFETY: the handler only stores into an atomic, which is safe in any context.
            let Ok(former) = (unsafe { sigaction(signal, &action) }) else { continue };
            if matches!(former.handler(), SigHandler::SigIgn) {
                // SAFETY: this restores the action that was in force.
                let _ = unsafe { sigaction(signal, &former) };
            } else {
                holders.former.push((signal, former));
            }
        }
        Self(())
    }

    /// Whether a signal came since.
    pub fn came() -> bool {
        RECEIVED.load(Ordering::Relaxed) != 0
    }

    /// # Errors
    /// When a signal came.
    pub fn check() -> Result<()> {
        match Self::came() {
            false => Ok(()),
            true => Err(Error::usage("interrupted by a signal")),
        }
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        holders.count -= 1;
        if holders.count > 0 {
            return;
        }
        for (signal, former) in holders.former.drain(..) {
            // SAFETY: this restores the action that was in force.
            let _ = unsafe { sigaction(signal, &former) };
        }
        if let Ok(signal) = Signal::try_from(RECEIVED.swap(0, Ordering::Relaxed)) {
            // Can only fail for signals that do not exist.
            let _ = raise(signal);
        }
    }
}
