//! The followed threads and processes, and which of them share which memory.
//!
//! The system reports a newborn task twice: its own first stop, and its parent's, and only the latter tells whether the
//! two share their memory. Either may come first, and the parent's never comes when the parent is killed between the two.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::address_space::AddressSpace;

/// Shared ownership of an address space.
pub(super) type SharedSpace = Rc<RefCell<AddressSpace>>;

/// A thread or process that is followed.
#[derive(Debug)]
struct Task {
    /// `None` before the first `exec`, for newborn tasks that wait, and for programs that may not be inspected.
    space: Option<SharedSpace>,
    birth: Birth,
}

/// Whether a task's parent has reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Birth {
    /// It has.
    Told,
    /// Not yet: the task has stopped before its first instruction, at this time, and waits.
    Waits(Instant),
    /// It has not, and the task runs with what its own memory shows.
    Adopted,
    /// As before, and the task has executed a program since: a report of its parent is of no use any more.
    Outdated,
}

/// How long a newborn task waits for its parent, which needs some microseconds unless it was killed. Adopting one
/// whose parent is only slow does no harm.
const PATIENCE: Duration = Duration::from_millis(100);

/// All followed tasks.
#[derive(Debug)]
pub(super) struct Tasks(BTreeMap<Pid, Task>);

impl Tasks {
    /// The launched program, before its `exec`.
    pub(super) fn of(root: Pid) -> Self {
        Self(BTreeMap::from([(root, Task { space: None, birth: Birth::Told })]))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Pid> {
        self.0.keys().copied()
    }

    pub(super) fn space(&self, task: Pid) -> Option<&SharedSpace> {
        self.0.get(&task)?.space.as_ref()
    }

    /// The task has ended, or is not followed any more; gives its memory.
    pub(super) fn remove(&mut self, task: Pid) -> Option<SharedSpace> {
        self.0.remove(&task)?.space
    }

    /// A task has stopped at its beginning, or for another task's reason; whether it must wait for its parent to report
    /// its memory.
    pub(super) fn must_wait(&mut self, task: Pid) -> bool {
        let newborn = || Task { space: None, birth: Birth::Waits(Instant::now()) };
        matches!(self.0.entry(task).or_insert_with(newborn).birth, Birth::Waits(_))
    }

    /// Whether some task waits for its parent.
    pub(super) fn someone_waits(&self) -> bool {
        self.0.values().any(|task| matches!(task.birth, Birth::Waits(_)))
    }

    /// A task that has waited for so long that its parent must be gone.
    pub(super) fn orphan(&self) -> Option<Pid> {
        let is_orphan =
            |task: &Task| matches!(task.birth, Birth::Waits(since) if since.elapsed() >= PATIENCE);
        self.0.iter().find(|(_, task)| is_orphan(task)).map(|(id, _)| *id)
    }

    /// An orphan gets the memory that was found out without its parent.
    pub(super) fn adopt(&mut self, orphan: Pid, space: Option<SharedSpace>) {
        self.0.insert(orphan, Task { space, birth: Birth::Adopted });
    }

    /// The parent of `child` reports it; whether the child waits for that.
    pub(super) fn tell(&mut self, child: Pid, space: Option<SharedSpace>) -> bool {
        let former = self.0.get(&child).map(|task| task.birth);
        if former == Some(Birth::Outdated) {
            return false;
        }
        self.0.insert(child, Task { space, birth: Birth::Told });
        matches!(former, Some(Birth::Waits(_)))
    }

    /// `task` has executed a program, and its memory is not known yet. The thread that executes takes over the
    /// process's number, and its own number, `former`, is gone.
    pub(super) fn executed(&mut self, task: Pid, former: Pid) {
        let before = [former, task].map(|id| self.0.remove(&id).map(|task| task.birth));
        let is_told = before.iter().flatten().all(|birth| *birth == Birth::Told);
        let birth = if is_told { Birth::Told } else { Birth::Outdated };
        self.0.insert(task, Task { space: None, birth });
    }

    /// `task` has new memory.
    pub(super) fn give(&mut self, task: Pid, space: SharedSpace) {
        if let Some(task) = self.0.get_mut(&task) {
            task.space = Some(space);
        }
    }
}
