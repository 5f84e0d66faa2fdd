//! Watching and stopping long work.

use std::sync::atomic::{AtomicBool, Ordering};

/// What the caller wants to hear and to stop. The default hears nothing and never stops.
#[derive(Clone, Copy, Default)]
pub struct Control<'caller> {
    /// Set it, from any thread, to get the best result so far soon. What that is depends on when it was set: results
    /// are reproducible only if it never is.
    pub cancelled: Option<&'caller AtomicBool>,
    /// Called from any thread.
    pub progress: Option<&'caller (dyn Fn(Progress) + Sync)>,
}

/// A step that was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Steps of the phase that are done.
    pub done: u64,
    /// Steps of the phase in all.
    pub total: u64,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Several strategies order the functions of the traces.
    Candidates,
    /// The best of them is improved.
    Search,
    /// Orders of all other functions are compared.
    Validation,
}

impl Control<'_> {
    /// Whether to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
    }

    pub(crate) fn report(&self, phase: Phase, done: u64, total: u64) {
        if let Some(progress) = self.progress {
            progress(Progress { phase, done, total });
        }
    }
}
