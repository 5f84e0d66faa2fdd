//! SIGTRAP as the program itself uses it: with its own handler, or ignored.
//!
//! The system forces the signal of a breakpoint on the task (`force_sig_info_to_task` in Linux). Where SIGTRAP is blocked,
//! as it is in its own handler, or ignored, that takes the action away and unblocks it, before the tracer hears of it. So
//! the address of a handler is learned when the program's first SIGTRAP is delivered to it, and the action is restored
//! after each breakpoint that removed it. From then on the system calls of that process are inspected, to know when it
//! changes its action, and which of its tasks block the signal: another task's breakpoint may have removed the action, and
//! only the task that blocked the signal must block it again. C libraries block all signals while they make a thread.
//!
//! A handler that is lost before its first signal, SIGTRAP that the program itself begins to ignore, and blocking alone
//! show in system calls only. Where they are to be kept, all calls are inspected, from the beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::failure::Served;
use super::memory::ProcessMemory;
use super::signal_status::SignalStatus;
use super::system_calls;
use reorder_system::arch;

/// The actions of the processes that use SIGTRAP, by process: the address of the handler, or [`IGNORED`].
#[derive(Debug, Default)]
pub(super) struct OwnTraps {
    known: BTreeMap<Pid, u64>,
    /// Whether all processes are known, from their beginning.
    is_complete: bool,
    /// The tasks of these processes that block the signal; of a complete account, all that do.
    blocking: BTreeSet<Pid>,
    /// Tasks that are about to execute the first instruction of a handler, with the signal.
    entering: BTreeMap<Pid, i32>,
}

/// `SIG_DFL` and `SIG_IGN`.
const DEFAULT: u64 = 0;
const IGNORED: u64 = 1;

/// The effect of a signal of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The signal does not concern SIGTRAP.
    Plain,
    /// The task enters a handler that may block SIGTRAP, or whose address is unknown: resume it by one step, which leads
    /// there.
    IntoHandler,
}

impl OwnTraps {
    /// An account that is complete if system calls are inspected from the beginning.
    pub(super) fn new(is_complete: bool) -> Self {
        Self { is_complete, ..Self::default() }
    }

    /// `task` has executed a program: its handlers are gone, what it ignored or blocked is as before.
    pub(super) fn executed(&mut self, task: Pid) -> nix::Result<()> {
        self.known.remove(&task);
        if SignalStatus::of(task).is_some_and(|status| status.is_ignored) {
            self.known.insert(task, IGNORED);
        } else if self.is_complete {
            self.known.insert(task, DEFAULT);
        }
        self.note_mask(task)
    }

    /// A stopped task goes on.
    pub(super) fn note_mask(&mut self, task: Pid) -> nix::Result<()> {
        if self.watches(task) {
            match system_calls::blocks_trap(task)? {
                true => self.blocking.insert(task),
                false => self.blocking.remove(&task),
            };
        }
        Ok(())
    }

    /// A process has made another, which inherits its actions.
    pub(super) fn forked(&mut self, parent: Pid, child: Pid) {
        if self.known.is_empty() {
            return;
        }
        if self.blocking.contains(&parent) {
            self.blocking.insert(child);
        }
        if let (Some(parent), Some(child)) = (process_of(parent), process_of(child))
            && let Some(&action) = self.known.get(&parent)
        {
            self.known.insert(child, action);
        }
    }

    /// `task` has ended, and a later one may have its number.
    pub(super) fn ended(&mut self, task: Pid) {
        self.known.remove(&task);
        self.blocking.remove(&task);
        self.entering.remove(&task);
    }

    /// Whether system calls of `task` may change what is known.
    pub(super) fn watches(&self, task: Pid) -> bool {
        self.is_complete || !self.known.is_empty() && self.is_known(task)
    }

    fn is_known(&self, task: Pid) -> bool {
        process_of(task).is_some_and(|process| self.known.contains_key(&process))
    }

    /// A `signal` of the program is about to be delivered to `task`.
    pub(super) fn deliver(&mut self, task: Pid, signal: i32) -> Delivery {
        let matters = signal == libc::SIGTRAP || self.watches(task);
        if !matters || !SignalStatus::catches(task, signal) {
            return Delivery::Plain;
        }
        self.entering.insert(task, signal);
        Delivery::IntoHandler
    }

    /// Whether this SIGTRAP ends the step into a handler; the account then holds the handler's address.
    pub(super) fn entered(&mut self, task: Pid) -> nix::Result<bool> {
        // As set by `ptrace_notify`; the signal of a breakpoint has another code.
        let Some(signal) = self.entering.remove(&task) else { return Ok(false) };
        if ptrace::getsiginfo(task)?.si_code != libc::SIGTRAP {
            return Ok(false);
        }
        if let Some(process) = process_of(task).filter(|_| signal == libc::SIGTRAP) {
            let handler = arch::program_counter(&arch::registers(task)?);
            if self.known.insert(process, handler).is_none() {
                self.note_masks_of(process);
            }
        }
        self.note_mask(task)?;
        Ok(true)
    }

    /// Adds the tasks of a process that has just become known: they run, so the signals that they block now are those they
    /// blocked a moment ago.
    fn note_masks_of(&mut self, process: Pid) {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let tasks = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
        let is_blocking = |task: &Pid| SignalStatus::of(*task).is_some_and(|status| status.is_blocked);
        self.blocking.extend(tasks.filter(is_blocking));
    }

    /// Whether a breakpoint has just removed the action of `task` for SIGTRAP.
    pub(super) fn is_taken_away(&self, task: Pid) -> bool {
        if self.known.is_empty() {
            return false;
        }
        let Some(status) = SignalStatus::of(task) else { return false };
        match self.known.get(&status.process) {
            None | Some(&DEFAULT) => self.blocking.contains(&task),
            Some(&IGNORED) => !status.is_ignored,
            Some(_) => !status.is_caught,
        }
    }

    /// Our breakpoint has stopped `task`: the action that it removed is restored.
    pub(super) fn restore(&mut self, task: Pid, memory: &ProcessMemory) -> Served {
        if self.is_taken_away(task) {
            let process = process_of(task).unwrap_or(task);
            let handler = self.known.get(&process).copied().unwrap_or(DEFAULT);
            if handler != DEFAULT && !system_calls::set_trap_handler(task, memory, handler)? {
                // The system itself has: it was for one signal.
                self.known.insert(process, DEFAULT);
            }
        }
        // The action may have been restored already for another task that hit a breakpoint at the same time.
        if self.blocking.contains(&task) {
            system_calls::block_trap(task)?;
        }
        Ok(())
    }

    /// `task` stopped at a system call: takes note if it is about to change its action.
    pub(super) fn system_call(&mut self, task: Pid, memory: &ProcessMemory) -> nix::Result<()> {
        self.note_mask(task)?;
        let Some(process) = process_of(task).filter(|process| self.known.contains_key(process)) else {
            return Ok(());
        };
        if let Some(place) = system_calls::changed_trap_action(task)?
            && let Some(handler) = memory.word(place)
        {
            self.known.insert(process, handler);
        }
        Ok(())
    }
}

fn process_of(task: Pid) -> Option<Pid> {
    SignalStatus::of(task).map(|status| status.process)
}
