//! One address space with breakpoints, shared by all threads and `vfork` children that run in it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use nix::unistd::Pid;

use super::arm::{ArmedRange, arm, disarm, holds_code, is_unmapped, ranges};
use super::code::Place;
use super::failure::Served;
use super::image::TracedImage;
use super::memory::{self, Mapping, ProcessMemory, ProgramMark};
use super::own_traps::OwnTraps;
use super::recording::Recording;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_system::arch::BREAKPOINT;

/// Memory, the breakpoints in it, and the record that its hits belong to.
#[derive(Debug)]
pub(super) struct AddressSpace {
    pub(super) memory: ProcessMemory,
    pub(super) armed: Vec<ArmedRange>,
    /// Functions whose basic blocks have breakpoints too, by image and start.
    pub(super) planted: BTreeSet<(usize, usize)>,
    pub(super) disarmed: bool,
    /// Libraries to be traced that are not mapped yet; positions among the session's images.
    pub(super) missing: Vec<usize>,
    /// Shared with forked processes.
    pub(super) recording: Rc<RefCell<Recording>>,
}

/// A breakpoint of ours that was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Where in memory.
    pub(super) address: u64,
    /// Which image.
    pub(super) image: usize,
    /// Where in that image.
    pub(super) place: Place,
}

impl AddressSpace {
    /// The space that `task` has now, without breakpoints; `recording` returns the record of the family with
    /// a given mark.
    pub(super) fn new(
        task: Pid,
        missing: Vec<usize>,
        recording: impl FnOnce(Option<ProgramMark>) -> Rc<RefCell<Recording>>,
    ) -> Result<Self> {
        let memory = open(task)?;
        let recording = recording(memory.program_mark(task));
        Ok(Self { memory, armed: Vec::new(), planted: BTreeSet::new(), disarmed: false, missing, recording })
    }

    /// The copy that the forked process `child` has: the breakpoints were copied with the memory.
    pub(super) fn forked(&self, child: Pid) -> Result<Self> {
        Ok(Self {
            memory: open(child)?,
            armed: self.armed.clone(),
            planted: self.planted.clone(),
            disarmed: false,
            missing: self.missing.clone(),
            recording: Rc::clone(&self.recording),
        })
    }

    /// Plants the breakpoints of `image` in `mapping`, except those of functions that ran before, in an earlier pass or in another
    /// process of the family; returns how many bytes of code that affected.
    pub(super) fn arm(&mut self, index: usize, image: &TracedImage, mapping: &Mapping) -> Result<u64> {
        let armed = ranges(image, index, mapping);
        let recording = self.recording.borrow();
        for range in &armed {
            arm(&self.memory, image, range, |start| !recording.has_executed(index, start))?;
        }
        drop(recording);
        Ok(self.add(index, image, armed))
    }

    /// As [`Self::arm`] where `mapping` was copied together with its breakpoints.
    pub(super) fn inherit(&mut self, index: usize, image: &TracedImage, mapping: &Mapping) {
        self.add(index, image, ranges(image, index, mapping));
    }

    fn add(&mut self, index: usize, image: &TracedImage, armed: Vec<ArmedRange>) -> u64 {
        if armed.is_empty() {
            return 0;
        }
        // What was mapped there before is gone.
        self.armed.retain(|old| {
            let is_over =
                |new: &ArmedRange| new.memory.start < old.memory.end && old.memory.start < new.memory.end;
            !armed.iter().any(is_over)
        });
        self.planted.retain(|(image, _)| *image != index);
        self.missing.retain(|missing| *missing != index);
        self.recording.borrow_mut().add_image(index, image);
        let bytes = armed.iter().map(|range| range.memory.end - range.memory.start).sum();
        self.armed.extend(armed);
        bytes
    }

    /// The place at `address`, where `task` has hit a breakpoint, if it is ours.
    ///
    /// It is not where a library was closed and other code has taken its place.
    pub(super) fn hit_at(&self, task: Pid, images: &[TracedImage], address: u64) -> Option<Hit> {
        let range = self.armed.iter().find(|range| range.memory.contains(&address))?;
        let image = &images[range.image];
        let start = Address(address.wrapping_sub(range.bias));
        let place = image.place_at(start)?;
        let is_there = holds_code(&self.memory, image, range, start)
            || contain(&mapped_ranges(task, image, range), address);
        is_there.then_some(Hit { address, image: range.image, place })
    }

    /// Whether there is a breakpoint at `address`.
    pub(super) fn has_breakpoint(&self, address: u64) -> bool {
        let mut code = BREAKPOINT.map(|_| 0);
        self.memory.read(address, &mut code).is_ok() && code == BREAKPOINT
    }

    /// Restores the original bytes under a breakpoint.
    ///
    /// Doing so twice is harmless, and needed: a child forked by one thread while another one's hit was being
    /// served has a copy of the breakpoint that its parent has no more.
    pub(super) fn disarm(&self, images: &[TracedImage], hit: Hit) -> io::Result<()> {
        let image = &images[hit.image];
        let address = image.starts[hit.place.start].address.plus(u64::from(hit.place.offset));
        let Some(original) = image.instruction_at(address) else { return Ok(()) };
        match self.memory.write(hit.address, &original) {
            // Another thread has just closed the library.
            Err(error) if is_unmapped(&error) => Ok(()),
            written => written,
        }
    }

    /// Restores all of them, once, for the process of `task`, which is to go on untraced.
    ///
    /// Breakpoints that were hit before and are reported later are still recognised.
    pub(super) fn disarm_all(&mut self, task: Pid, images: &[TracedImage]) -> io::Result<()> {
        if !std::mem::replace(&mut self.disarmed, true) {
            for range in &self.armed {
                let image = &images[range.image];
                let mapped = OnceCell::new();
                let is_mapped =
                    |address| contain(mapped.get_or_init(|| mapped_ranges(task, image, range)), address);
                disarm(&self.memory, image, range, is_mapped)?;
            }
        }
        Ok(())
    }

    /// After a hit of `task`: see [`OwnTraps::restore`].
    pub(super) fn restore_own_trap(&self, task: Pid, own_traps: &mut OwnTraps) -> Served {
        own_traps.restore(task, &self.memory)
    }

    /// At a system call of `task`: see [`OwnTraps::system_call`].
    pub(super) fn note_system_call(&self, task: Pid, own_traps: &mut OwnTraps) -> Served {
        Ok(own_traps.system_call(task, &self.memory)?)
    }

    /// The eight bytes at `address`.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        self.memory.word(address)
    }
}

fn contain(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

/// Where `task` still maps `image` as it did when `armed` was.
fn mapped_ranges(task: Pid, image: &TracedImage, armed: &ArmedRange) -> Vec<Range<u64>> {
    // A process without memory, or that may not be inspected, has no known mappings.
    let mappings = memory::present_mappings(task).unwrap_or_default();
    let of_image = mappings.iter().filter(|mapping| {
        let overlaps = mapping.start < armed.memory.end
            && armed.memory.start < mapping.start.saturating_add(mapping.length);
        overlaps && image.is_file(&mapping.path, &memory::seen_by(task, &mapping.path))
    });
    let ranges = of_image.flat_map(|mapping| ranges(image, armed.image, mapping));
    ranges.filter(|range| range.bias == armed.bias).map(|range| range.memory).collect()
}

fn open(task: Pid) -> Result<ProcessMemory> {
    ProcessMemory::open(task).map_err(|error| {
        Error::io(Path::new(&format!("/proc/{task}/mem")), error).with_hint(
            "recording needs /proc and the right to trace the program; run it as the program's user",
        )
    })
}
