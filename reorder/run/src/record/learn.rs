//! Learns functions of an image that describes little of its code, where control is seen to enter them.
//!
//! Calls and jumps through pointers lead to places that nothing in the image names as code. The recorder stops a task at such an
//! instruction, lets it execute that instruction alone, and looks where the task is then: an instruction certainly begins there.
//! If no known function holds it, a function is learned, and its start gets a breakpoint. Functions passed to the C library are
//! learned when they are passed, because the library makes the calls. What a learned function calls is learned when the block
//! with the call is first executed. Each execution of a watched instruction costs two stops, so it is left alone after
//! `MAX_KNOWN_TARGETS` of them in a row, in this pass and earlier ones, led to nothing new.

use std::io;

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::address_space::{AddressSpace, Hit};
use super::code::Place;
use super::failure::Served;
use super::image::TracedImage;
use super::session::Session;
use super::signal_status::SignalStatus;
use super::starts::FunctionStart;
use reorder_base::address::Address;
use reorder_image::elf::found_functions::extent;
use reorder_system::arch;

/// How often in a row a watched instruction may lead to known functions.
const MAX_KNOWN_TARGETS: u32 = 16;

impl TracedImage {
    /// Control leads to `target`: gives the number of the learned function that begins there, if there is one now, and whether
    /// it is new.
    fn learn(&mut self, target: Address) -> Option<(usize, bool)> {
        if let Some(number) = self.starts.learned_at(target) {
            return Some((number, false));
        }
        let unknown = self.unknown.as_ref()?;
        let code = unknown.unknown_from(target)?;
        let mut budget = unknown.budget();
        let function = self.code_at(&code).and_then(|bytes| extent(bytes, target, &mut budget));
        // One that begins with a breakpoint could not be distinguished from ours.
        let is_free = self.instruction_at(target).is_some_and(|code| !arch::is_breakpoint(code));
        let range = self.unknown.as_mut()?.settle(target, budget, function.filter(|_| is_free))?;
        let size = range.end.distance_from(range.start);
        Some((self.starts.learn(FunctionStart { address: target, size, is_apart: true, name: None }), true))
    }
}

impl AddressSpace {
    /// Learns the functions that the block at `place` calls or jumps to.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn learn_called(&self, image: &mut TracedImage, index: usize, place: Place) -> io::Result<()> {
        if image.unknown.is_none() {
            return Ok(());
        }
        let called: Vec<Address> = image
            .known_code(place.start)
            .map(|code| code.called_by(place.offset).collect())
            .unwrap_or_default();
        for target in called {
            self.learn(image, index, target)?;
        }
        Ok(())
    }

    /// Control leads to `target`: learns the function there and plants a breakpoint at its start, unless it was executed. Says
    /// whether it is new.
    fn learn(&self, image: &mut TracedImage, index: usize, target: Address) -> io::Result<bool> {
        let Some((start, is_new)) = image.learn(target) else { return Ok(false) };
        // It may have been learned in another process.
        if !self.recording.borrow().has_seen(index, Place { start, offset: 0 }) {
            self.plant(image, index, start, &[0])?;
        }
        Ok(is_new)
    }

    /// Whether the instruction at `place` of image `index` is to be executed alone.
    pub(super) fn is_watched(&self, image: &TracedImage, index: usize, place: Place) -> bool {
        let led = self.recording.borrow().known_targets.get(&(index, place)).copied().unwrap_or(0);
        let code = image.known_code(place.start);
        code.is_some_and(|code| code.is_watched(place.offset)) && led < MAX_KNOWN_TARGETS
    }

    /// Before the watched instruction at `hit`: learns the functions among these `arguments`.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn learn_passed(
        &mut self,
        images: &mut [TracedImage],
        hit: Hit,
        arguments: [u64; 6],
    ) -> io::Result<()> {
        let code = images[hit.image].known_code(hit.place.start);
        let passed = code.map_or(&[][..], |code| code.callbacks_at(hit.place.offset));
        for address in passed.iter().filter_map(|number| arguments.get(*number)) {
            self.learn_at(images, hit, *address)?;
        }
        Ok(())
    }

    /// After the watched instruction at `hit`, the task is at `address`: learns what is there and watches the instruction again.
    fn learn_entered(&mut self, images: &mut [TracedImage], hit: Hit, address: u64) -> io::Result<()> {
        *self.recording.borrow_mut().known_targets.entry((hit.image, hit.place)).or_default() += 1;
        self.learn_at(images, hit, address)?;
        self.watch(images, hit)
    }

    /// Stops tasks again at the instruction at `hit`, if it is to be watched.
    fn watch(&self, images: &[TracedImage], hit: Hit) -> io::Result<()> {
        let image = &images[hit.image];
        if self.is_watched(image, hit.image, hit.place) {
            self.plant(image, hit.image, hit.place.start, &[hit.place.offset])?;
        }
        Ok(())
    }

    /// Control enters `address`, or will: learns the function there, if it lies in the image of `hit`.
    fn learn_at(&mut self, images: &mut [TracedImage], hit: Hit, address: u64) -> io::Result<()> {
        let Hit { image: index, place, .. } = hit;
        let entered = self.armed.iter().find(|range| range.image == index && range.memory.contains(&address));
        let Some(target) = entered.map(|range| Address(address.wrapping_sub(range.bias))) else {
            return Ok(());
        };
        if self.learn(&mut images[index], index, target)? {
            self.recording.borrow_mut().known_targets.insert((index, place), 0);
        }
        Ok(())
    }
}

impl Session<'_> {
    /// Whether `task`, which has hit a watched instruction, may execute it alone. The signal that ends the step would take SIGTRAP's
    /// action away where it is blocked or ignored; a handler stays.
    pub(super) fn may_step(task: Pid) -> bool {
        SignalStatus::of(task).is_some_and(|status| !status.is_blocked && !status.is_ignored)
    }

    /// Whether this SIGTRAP ends the step over a watched instruction; what it led to is learned.
    pub(super) fn stepped(&mut self, task: Pid) -> Served<bool> {
        let Some(hit) = self.steps.remove(&task) else { return Ok(false) };
        if ptrace::getsiginfo(task)?.si_code != libc::TRAP_TRACE {
            return Ok(false);
        }
        if self.releasing {
            return Ok(true);
        }
        let address = arch::program_counter(&arch::registers(task)?);
        if let Some(space) = self.tasks.space(task).cloned() {
            space.borrow_mut().learn_entered(self.images, hit, address)?;
        }
        Ok(true)
    }

    /// A signal of the program stopped `task`. If that was before a watched instruction, the task will reach it again.
    pub(super) fn interrupt_step(&mut self, task: Pid) -> Served {
        let Some(hit) = self.steps.remove(&task) else { return Ok(()) };
        let is_before = arch::program_counter(&arch::registers(task)?) == hit.address;
        if let Some(space) = self.tasks.space(task).filter(|_| is_before && !self.releasing) {
            space.borrow().watch(self.images, hit)?;
        }
        Ok(())
    }
}
