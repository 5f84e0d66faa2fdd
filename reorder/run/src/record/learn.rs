//! Learns functions of an image that hardly describes its code, where control is seen to enter them.
//!
//! Calls and jumps through pointers lead to places that nothing in the image names as code. So the recorder stops at such an
//! instruction of a recorded function, lets the task execute it alone, and looks where the task is then: an instruction begins
//! there for sure. Functions that are given to the C library, whose code makes the calls, are learned when they are given. If no function is known there, one is learned, with a breakpoint at its start; what its code calls is learned
//! when it is first executed. An instruction is watched until it has led to nothing new so and so many times in a row, since each
//! time costs two stops.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::address_space::{AddressSpace, Hit};
use super::failure::Served;
use super::image::TracedImage;
use super::session::Session;
use super::starts::FunctionStart;
use reorder_base::address::Address;
use reorder_image::elf::callbacks::CallbackCallers;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::found_functions::extent;
use reorder_image::elf::functions::{ElfFunctions, is_linker_stub_section};
use reorder_system::arch;

/// How often in a row a call or jump may lead to known functions before it is left alone.
const MAX_KNOWN_TARGETS: u32 = 16;
/// More bytes than compilers give one function.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// Code of which no table says where functions are.
#[derive(Debug)]
pub(super) struct UnknownCode {
    /// Sections of code, ascending.
    sections: Vec<Range<Address>>,
    /// The known functions: ends by starts.
    known: BTreeMap<Address, Address>,
    /// What the image gives functions to.
    pub(super) callers: CallbackCallers,
}

impl UnknownCode {
    /// That of `file`; `None` if the image describes most of its code.
    pub(super) fn of(file: &ElfFile<'_>, functions: &ElfFunctions<'_>) -> Option<Self> {
        if functions.found.is_empty() {
            return None;
        }
        let code = file.sections.iter().filter(|section| {
            let is_code = section.is_loaded() && section.is_executable() && section.has_bytes();
            is_code && !is_linker_stub_section(section.name)
        });
        let mut known: BTreeMap<Address, Address> = BTreeMap::new();
        for (_, function) in functions.table.iter() {
            let end = known.entry(function.start).or_insert(function.end);
            *end = function.end.max(*end);
        }
        let callers = CallbackCallers::of(file, &functions.dynamic_symbols);
        Some(Self { sections: code.map(|section| section.address..section.end()).collect(), known, callers })
    }

    /// From `address` up to the next known function; `None` where a function is known, and outside of code.
    fn unknown_from(&self, address: Address) -> Option<Range<Address>> {
        let section = self.sections.iter().find(|section| section.contains(&address))?;
        let before = self.known.range(..=address).next_back();
        if before.is_some_and(|(_, end)| *end > address) {
            return None;
        }
        let next = self.known.range(address..).next().map_or(section.end, |(start, _)| *start);
        Some(address..next.min(section.end).min(address.plus(MAX_FUNCTION_BYTES)))
    }
}

impl TracedImage {
    /// Whether functions can be learned of it.
    pub(super) fn is_learned(&self) -> bool {
        self.unknown.is_some()
    }

    /// Control leads to `target`: gives the number of the function that is thereby learned, if none was known there.
    pub(super) fn learn(&mut self, target: Address) -> Option<usize> {
        let code = self.unknown.as_ref()?.unknown_from(target)?;
        let function = extent(self.code_at(&code)?, target)?;
        // One that begins with a breakpoint could not be distinguished from ours.
        self.instruction_at(target).filter(|code| !arch::is_breakpoint(*code))?;
        self.unknown.as_mut()?.known.insert(function.start, function.end);
        let size = function.end.distance_from(function.start);
        Some(self.starts.learn(FunctionStart { address: target, size, is_apart: true, name: None }))
    }
}

impl AddressSpace {
    /// Learns the functions that the code of the function at start number `start` calls or jumps to.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn learn_called(&self, image: &mut TracedImage, index: usize, start: usize) -> io::Result<()> {
        let Some(code) = image.known_code(start).filter(|_| image.is_learned()) else { return Ok(()) };
        for target in code.called().to_vec() {
            self.learn(image, index, target)?;
        }
        Ok(())
    }

    /// Control leads to `target`: learns the function there and plants a breakpoint at its start. Says whether it is new.
    fn learn(&self, image: &mut TracedImage, index: usize, target: Address) -> io::Result<bool> {
        let Some(start) = image.learn(target) else { return Ok(false) };
        self.plant(image, index, start, &[0])?;
        Ok(true)
    }

    /// Whether the instruction at `hit` is a call or jump that may lead to something unknown.
    pub(super) fn is_watched(&self, images: &[TracedImage], hit: Hit) -> bool {
        let Hit { image, place, .. } = hit;
        let code = images[image].known_code(place.start).filter(|_| images[image].is_learned());
        let led = self.known_targets.get(&(image, place)).copied().unwrap_or(0);
        code.is_some_and(|code| code.is_watched(place.offset)) && led < MAX_KNOWN_TARGETS
    }

    /// Before the watched instruction at `hit`: learns the functions among these `arguments`.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn learn_given(
        &mut self,
        images: &mut [TracedImage],
        hit: Hit,
        arguments: [u64; 6],
    ) -> io::Result<()> {
        let Hit { image: index, place, .. } = hit;
        let code = images[index].known_code(place.start);
        let given = code.map_or(&[][..], |code| code.callbacks_at(place.offset));
        for address in given.iter().filter_map(|number| arguments.get(*number)) {
            self.learn_at(images, hit, *address)?;
        }
        Ok(())
    }

    /// After the watched instruction at `hit`, the task is at `address`: learns what is there and watches the instruction again.
    fn learn_entered(&mut self, images: &mut [TracedImage], hit: Hit, address: u64) -> io::Result<()> {
        let Hit { image: index, place, .. } = hit;
        *self.known_targets.entry((index, place)).or_default() += 1;
        self.learn_at(images, hit, address)?;
        if self.known_targets[&(index, place)] < MAX_KNOWN_TARGETS {
            self.plant(&images[index], index, place.start, &[place.offset])?;
        }
        Ok(())
    }

    /// The instruction at `hit` leads to `address` in memory: learns what is there.
    fn learn_at(&mut self, images: &mut [TracedImage], hit: Hit, address: u64) -> io::Result<()> {
        let Hit { image: index, place, .. } = hit;
        let entered = self.armed.iter().find(|range| range.image == index && range.memory.contains(&address));
        let Some(target) = entered.map(|range| Address(address.wrapping_sub(range.bias))) else {
            return Ok(());
        };
        if self.learn(&mut images[index], index, target)? {
            self.known_targets.insert((index, place), 0);
        }
        Ok(())
    }
}

impl Session<'_> {
    /// Whether this SIGTRAP ends the step over a watched instruction; what it led to is learned.
    pub(super) fn stepped(&mut self, task: Pid) -> Served<bool> {
        let Some(hit) = self.steps.remove(&task) else { return Ok(false) };
        if ptrace::getsiginfo(task)?.si_code != libc::TRAP_TRACE {
            return Ok(false);
        }
        let address = arch::program_counter(&arch::registers(task)?);
        if let Some(space) = self.tasks.space(task).cloned() {
            space.borrow_mut().learn_entered(self.images, hit, address)?;
        }
        Ok(true)
    }
}
