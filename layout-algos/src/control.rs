//! Watching and stopping long work.

use std::sync::atomic::{AtomicBool, Ordering};

/// Progress reports and cancellation. The default has no reports and never stops.
#[derive(Clone, Copy, Default)]
pub struct Control<'caller> {
    /// Set it, from any thread, to get the best result so far soon. The result depends on when it was set: results
    /// are reproducible only if it is never set.
    pub cancelled: Option<&'caller AtomicBool>,
    /// Called from any thread.
    pub progress: Option<&'caller (dyn Fn(Progress) + Sync)>,
}

/// A step that was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Steps of the phase that are done.
    pub done: u64,
    /// Steps of the phase in all.
    pub total: u64,
}

/// A phase of the work.
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
