//! The kernel's software counters of one run: the program and every process that it starts.
//!
//! They include what `wait4` does not report: children that were not waited for, time on a processor and context
//! switches.

use std::os::fd::OwnedFd;

use nix::unistd::Pid;

use reorder_system::perf_event::{Scope, SoftwareEvent, count, open_counter};

/// Counters of a process that has not run yet.
#[derive(Debug)]
pub(super) struct Counters {
    page_faults: OwnedFd,
    major_faults: OwnedFd,
    minor_faults: OwnedFd,
    task_clock: OwnedFd,
    /// Absent where only user mode may be watched: tasks are switched in the kernel.
    context_switches: Option<OwnedFd>,
}

/// Their final values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) page_faults: f64,
    pub(super) major_faults: f64,
    pub(super) minor_faults: f64,
    pub(super) processor_milliseconds: f64,
    pub(super) context_switches: Option<f64>,
}

impl Counters {
    /// Starts to count; `None` where the system forbids it.
    pub(super) fn open(pid: Pid) -> Option<Self> {
        [Scope::Everything, Scope::UserMode].into_iter().find_map(|scope| {
            let open = |event| open_counter(event, pid, scope).ok();
            Some(Self {
                page_faults: open(SoftwareEvent::PageFaults)?,
                major_faults: open(SoftwareEvent::MajorFaults)?,
                minor_faults: open(SoftwareEvent::MinorFaults)?,
                task_clock: open(SoftwareEvent::TaskClock)?,
                context_switches: open(SoftwareEvent::ContextSwitches).filter(|_| scope == Scope::Everything),
            })
        })
    }

    /// The counts; `None` when they cannot be read.
    pub(super) fn read(&self) -> Option<Counted> {
        let value = |counter| count(counter).ok().map(|value| value as f64);
        Some(Counted {
            page_faults: value(&self.page_faults)?,
            major_faults: value(&self.major_faults)?,
            minor_faults: value(&self.minor_faults)?,
            // The clock counts nanoseconds.
            processor_milliseconds: value(&self.task_clock)? / 1e6,
            context_switches: self.context_switches.as_ref().and_then(value),
        })
    }
}
