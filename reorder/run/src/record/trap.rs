//! A task has stopped with SIGTRAP: our breakpoint is removed; all other cases are left to the program.

use std::rc::Rc;
use std::time::Instant;

use nix::unistd::Pid;

use super::address_space::{AddressSpace, Hit};
use super::failure::Served;
use super::session::Session;
use super::system_calls;
use reorder_system::arch;

/// The source of the SIGTRAP that stopped a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trap {
    /// Our breakpoint; a pending SIGTRAP of the program stays pending.
    Ours,
    /// Ours, at a watched call or jump: the task is to be resumed by one step.
    Watched(Hit),
    /// The program's.
    Own,
}

impl Trap {
    /// How the task is resumed.
    pub(super) fn signal(self) -> i32 {
        match self {
            Self::Ours | Self::Watched(_) => 0,
            Self::Own => libc::SIGTRAP,
        }
    }
}

impl Session<'_> {
    /// Removes the breakpoint that `task` has hit, if it is ours.
    pub(super) fn trap(&mut self, task: Pid) -> Served<Trap> {
        let arrived = Instant::now();
        let (address, is_after_another) = match arch::breakpoint_hit(task)? {
            Some(address) => (address, false),
            // The system keeps one SIGTRAP at a time: a blocked one of the program also stands for ours.
            None => (arch::possible_hit(task)?, true),
        };
        let is_hit = |space: &AddressSpace| {
            let is_executed = || arch::IS_PAST_BREAKPOINT || self.own_traps.is_taken_away(task);
            !is_after_another || space.has_breakpoint(address) && is_executed()
        };
        let hit = self.tasks.space(task).and_then(|shared| {
            let space = shared.borrow();
            let hit = is_hit(&space).then(|| space.hit_at(task, self.images, address))??;
            Some((Rc::clone(shared), hit))
        });
        let Some((space, hit)) = hit else { return Ok(Trap::Own) };
        let mut space = space.borrow_mut();
        let first = space.recording.borrow_mut().hit(hit.image, hit.place);
        space.disarm(self.images, hit)?;
        arch::go_on_at(task, address)?;
        if is_after_another {
            system_calls::let_trap_wait(task)?;
        }
        space.restore_own_trap(task, &mut self.own_traps)?;
        let mut blocks = 0;
        if self.records_blocks
            && !self.releasing
            && let Some(passed) = space.follow_blocks(self.images, hit)?
        {
            blocks = passed + u64::from(first.of_place);
        }
        if first.of_place {
            self.statistics.first_execution(first.of_function, blocks, arrived.elapsed());
        }
        if !self.records_blocks
            || self.releasing
            || !space.is_watched(&self.images[hit.image], hit.image, hit.place)
        {
            return Ok(Trap::Ours);
        }
        space.learn_passed(self.images, hit, arch::arguments(&arch::registers(task)?))?;
        Ok(if Self::may_step(task) { Trap::Watched(hit) } else { Trap::Ours })
    }
}
