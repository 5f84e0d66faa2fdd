//! A task has stopped with SIGTRAP: a breakpoint of ours is taken away, all else is the program's own.

use std::rc::Rc;
use std::time::Instant;

use nix::unistd::Pid;

use super::address_space::AddressSpace;
use super::failure::Served;
use super::session::Session;
use super::system_calls;
use reorder_system::arch;

/// Whose SIGTRAP has stopped a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trap {
    /// Of a breakpoint of ours; a SIGTRAP of the program that is pending stays pending.
    Ours,
    /// The program's.
    Own,
}

impl Trap {
    /// What the task goes on with.
    pub(super) fn signal(self) -> i32 {
        match self {
            Self::Ours => 0,
            Self::Own => libc::SIGTRAP,
        }
    }
}

impl Session<'_> {
    /// Takes away the breakpoint that `task` has hit, if it was one of ours.
    pub(super) fn trap(&mut self, task: Pid) -> Served<Trap> {
        let arrived = Instant::now();
        let (address, is_behind_another) = match arch::breakpoint_hit(task)? {
            Some(address) => (address, false),
            // The system keeps one SIGTRAP at a time: where the program's own waits, blocked, it stands for ours, too.
            None => (arch::possible_hit(task)?, true),
        };
        let is_hit = |space: &AddressSpace| {
            let is_executed = || arch::IS_PAST_BREAKPOINT || self.own_traps.is_taken_away(task);
            !is_behind_another || space.has_breakpoint(address) && is_executed()
        };
        let hit = self.tasks.space(task).and_then(|shared| {
            let space = shared.borrow();
            let hit = is_hit(&space).then(|| space.hit_at(task, self.images, address))??;
            Some((Rc::clone(shared), hit))
        });
        let Some((space, hit)) = hit else { return Ok(Trap::Own) };
        let space = space.borrow();
        let is_first = space.recording.borrow_mut().hit(hit.image, hit.start);
        space.disarm(self.images, hit)?;
        arch::go_on_at(task, address)?;
        if is_behind_another {
            system_calls::let_trap_wait(task)?;
        }
        space.restore_own_trap(task, &mut self.own_traps)?;
        if is_first {
            self.statistics.first_execution(arrived.elapsed());
        }
        Ok(Trap::Ours)
    }
}
