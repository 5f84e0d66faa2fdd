//! Processes that outlive the recorded program go on untraced, without breakpoints.

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::failure::Served;
use super::session::{Session, is_birth};
use super::signal_status::SignalStatus;
use reorder_system::stops::{self, Resume, Stop};

impl Session<'_> {
    /// Makes all that is left stop, to be let go.
    pub(super) fn begin_release(&mut self) {
        self.releasing = true;
        for task in self.tasks.ids() {
            if self.ends_descendants {
                // Not waited for yet, so the number is its own.
                let _ = kill(task, Signal::SIGKILL);
                continue;
            }
            // It may have ended already, which will be reported.
            let _ = ptrace::interrupt(task);
        }
    }

    /// Lets a stopped task go on untraced.
    pub(super) fn release(&mut self, task: Pid, stop: Stop) -> Served {
        let signal = match stop {
            Stop::Signal(libc::SIGTRAP) if self.stepped(task)? => 0,
            Stop::Signal(libc::SIGTRAP) => self.trap(task)?.signal(),
            Stop::Signal(signal) => signal,
            Stop::Attached if self.tasks.must_wait(task) => return Ok(()),
            Stop::Event(libc::PTRACE_EVENT_EXEC) => {
                // New memory, without breakpoints.
                self.tasks.remove(task);
                0
            }
            Stop::Event(event) if is_birth(event) => {
                if let Some(child) = self.made_child(task, event)? {
                    self.let_go(child, 0)?;
                }
                0
            }
            _ => 0,
        };
        self.let_go(task, signal)
    }

    pub(super) fn let_go(&mut self, task: Pid, signal: i32) -> Served {
        if self.ends_descendants {
            // It is stopped; its end is reported next.
            let _ = kill(task, Signal::SIGKILL);
            return Ok(());
        }
        // A breakpoint may have been hit already and not be reported yet: an interrupt is reported first. Untraced, that
        // signal would kill the task; it comes before the task executes anything.
        let status = SignalStatus::of(task);
        if status.is_some_and(|status| status.is_due) {
            return Ok(stops::resume(task, Resume::Freely, signal)?);
        }
        let process = status.map_or(task, |status| status.process);
        self.left_running.insert(process);
        if let Some(space) = self.tasks.remove(task) {
            space.borrow().recording.borrow_mut().leaves(process);
            space.borrow_mut().disarm_all(task, self.images)?;
        }
        Ok(stops::resume(task, Resume::Untraced, signal)?)
    }
}
