//! Where breakpoints for basic blocks may be placed in an image's functions.
//!
//! A function is read when it is first executed. Guarantee: each place is the first byte of an instruction of a function
//! whose code is certain ([`reorder_image::basic_blocks`]) and that shares no byte with another function.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::image::TracedImage;
use reorder_base::address::Address;
use reorder_image::basic_blocks::{Outline, outline};
use reorder_image::code_digest::CodeDigest;
use reorder_image::elf::callbacks::Callbacks;
use reorder_system::arch;
use reorder_trace::{RecordedBlock, RecordedBlocks};

/// An instruction of an image that carries or carried a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// Which of the image's starts.
    pub(super) start: usize,
    /// Bytes from there.
    pub(super) offset: u32,
}

/// The functions that were read, by their start.
#[derive(Debug, Default)]
pub(super) struct CodeOfFunctions(BTreeMap<usize, Option<FunctionCode>>);

/// One function whose code is certain.
#[derive(Debug)]
pub(super) struct FunctionCode {
    outline: Outline,
    digest: CodeDigest,
    /// Ascending; the first is 0.
    places: Vec<u32>,
    /// Offsets of calls and jumps through pointers, ascending; of images of which functions can be learned.
    computed: Vec<u32>,
    /// Offsets of calls that pass functions to the C library, with the positions of these arguments, ascending; of such images.
    callbacks: Vec<(u32, Callbacks)>,
}

impl FunctionCode {
    /// Where breakpoints may be, from the function's start, ascending.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Where the calls and jumps lead outside of it that are in the block at `offset`, up to the next place.
    pub(super) fn called_by(&self, offset: u32) -> impl Iterator<Item = Address> + '_ {
        let Outline { called, called_at, .. } = &self.outline;
        let next = self.places.get(self.places.partition_point(|place| *place <= offset));
        let end = next.copied().unwrap_or(u32::MAX);
        let from = called_at.partition_point(|at| *at < offset);
        let to = called_at.partition_point(|at| *at < end);
        called.get(from..to).unwrap_or_default().iter().copied()
    }

    /// Whether a call or jump that is to be watched begins at `offset`.
    pub(super) fn is_watched(&self, offset: u32) -> bool {
        self.computed.binary_search(&offset).is_ok() || !self.callbacks_at(offset).is_empty()
    }

    /// The positions of the arguments with which the call at `offset` passes functions to the C library.
    pub(super) fn callbacks_at(&self, offset: u32) -> Callbacks {
        let found = self.callbacks.binary_search_by_key(&offset, |(offset, _)| *offset);
        found.map_or(&[], |position| self.callbacks[position].1)
    }

    /// Where its jumps lead outside of it.
    pub(super) fn leaving(&self) -> &[Address] {
        &self.outline.leaving
    }

    /// The place that control is sure to reach next from `offset`, another place, unless it is interrupted; none if that place
    /// is watched: the task must stop at it.
    pub(super) fn sure_next(&self, offset: u32) -> Option<u32> {
        let block = self.outline.block_around(offset)?;
        let next = self.places.get(self.places.partition_point(|place| *place <= offset));
        let (end, next) = match next {
            Some(next) if *next < block.end => (*next, Some(*next)),
            _ => (block.end, block.next),
        };
        let next = next.filter(|next| self.outline.runs_through(offset, end) && !self.is_watched(*next))?;
        self.places.binary_search(&next).is_ok().then_some(next)
    }

    /// The block that begins at each of these places, as far as the next place.
    pub(super) fn blocks(&self, executed: &[(u32, u64)]) -> Arc<RecordedBlocks> {
        let block = |&(offset, nanoseconds): &(u32, u64)| {
            let end = self.outline.block_around(offset).map_or(offset, |block| block.end);
            let next = self.places.get(self.places.partition_point(|place| *place <= offset));
            let end = next.map_or(end, |next| end.min(*next));
            RecordedBlock { offset, size: end.saturating_sub(offset), nanoseconds }
        };
        let blocks = executed.iter().map(block).filter(|block| block.size > 0);
        Arc::new(RecordedBlocks { digest: self.digest, blocks: blocks.collect() })
    }
}

impl TracedImage {
    /// The code of the function at start number `start`, if it is certain.
    pub(super) fn code_of(&mut self, start: usize) -> Option<&FunctionCode> {
        if !self.functions.0.contains_key(&start) {
            let found = self.read_function(start);
            self.functions.0.insert(start, found);
        }
        self.known_code(start)
    }

    /// The same, of a function that was read before.
    pub(super) fn known_code(&self, start: usize) -> Option<&FunctionCode> {
        self.functions.0.get(&start)?.as_ref()
    }

    fn read_function(&self, start: usize) -> Option<FunctionCode> {
        let function = Some(&self.starts[start]).filter(|function| function.is_apart)?;
        let range = function.address..function.address.plus(function.size);
        let outline = outline(&self.loaded, self.file(), range).ok()?;
        let fits = |place: &u32| self.can_break(start, *place, &outline);
        let mut places: Vec<u32> = outline.blocks.iter().map(|block| block.start).filter(fits).collect();
        let (mut computed, mut callbacks) = (Vec::new(), Vec::new());
        if let Some(unknown) = &self.unknown {
            computed.extend(outline.computed.iter().copied().filter(fits));
            let code = self.code_at(&(function.address..function.address.plus(function.size)))?;
            callbacks = unknown.callers.calls(code, function.address);
            callbacks.retain(|(offset, _)| fits(offset));
        }
        places.extend(computed.iter().chain(callbacks.iter().map(|(offset, _)| offset)));
        places.sort_unstable();
        places.dedup();
        let digest = CodeDigest::of(&outline);
        (places.first() == Some(&0)).then_some(FunctionCode { outline, digest, places, computed, callbacks })
    }

    /// Whether an instruction of a function can be replaced by a breakpoint.
    fn can_break(&self, start: usize, offset: u32, outline: &Outline) -> bool {
        let address = self.starts[start].address.plus(u64::from(offset));
        let is_certain = outline.begins_instruction(offset) && arch::is_aligned(address.0);
        // One that is a breakpoint already could not be distinguished from ours.
        is_certain && self.instruction_at(address).is_some_and(|code| !arch::is_breakpoint(code))
    }

    /// The place inside of a function that a jump of another one leads to; it is known from then on.
    pub(super) fn entered_at(&mut self, target: Address) -> Option<Place> {
        let start = self.starts.last_until(target)?;
        let offset = u32::try_from(target.distance_from(self.starts[start].address)).ok()?;
        let code = self.code_of(start)?;
        if let Err(position) = code.places.binary_search(&offset) {
            if offset == 0 || !self.can_break(start, offset, &self.known_code(start)?.outline) {
                return None;
            }
            let code = self.functions.0.get_mut(&start)?.as_mut()?;
            code.places.insert(position, offset);
        }
        Some(Place { start, offset })
    }

    /// What is at exactly `address`, if it may have carried a breakpoint.
    pub(super) fn place_at(&self, address: Address) -> Option<Place> {
        let start = self.starts.last_until(address)?;
        let offset = u32::try_from(address.distance_from(self.starts[start].address)).ok()?;
        let is_known =
            || self.known_code(start).is_some_and(|code| code.places.binary_search(&offset).is_ok());
        (offset == 0 || is_known()).then_some(Place { start, offset })
    }

    /// All addresses in `range` that may have carried a breakpoint, ascending.
    pub(super) fn places_in(&self, range: &Range<Address>) -> impl Iterator<Item = Address> {
        let first =
            self.starts.last_until(range.start).map_or(range.start, |first| self.starts[first].address);
        let range = range.clone();
        let end = range.end;
        let starts = self.starts.from(first).map(|number| (number, self.starts[number].address));
        let places = starts.take_while(move |(_, start)| *start < end).flat_map(|(number, start)| {
            let inside = self.known_code(number).map(|code| code.places.as_slice()).unwrap_or(&[0]);
            inside.iter().map(move |offset| start.plus(u64::from(*offset)))
        });
        let length = arch::BREAKPOINT.len() as u64;
        places.filter(move |place| *place >= range.start && place.plus(length) <= range.end)
    }
}
