//! Plants the breakpoints of one function's basic blocks when it is first executed.
//!
//! Other threads may be executing the function meanwhile, because jumps may lead into its middle: only breakpoints
//! change, and each begins where an instruction does.

use std::collections::BTreeMap;
use std::io;

use super::address_space::{AddressSpace, Hit};
use super::arm::{ArmedRange, holds_code, is_unmapped, restore};
use super::code::Place;
use super::image::TracedImage;
use super::memory::ProcessMemory;
use reorder_system::arch::BREAKPOINT;

/// Whether breakpoints could be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    Yes,
    /// The memory holds other code than the file.
    OtherCode,
}

impl AddressSpace {
    /// After a breakpoint of ours was hit: notes the blocks that control is sure to reach from there, and plants
    /// breakpoints at all others of the function, if that was not done before. Gives how many more blocks were executed
    /// for the first time; `None` in a function that counts as a whole.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn follow_blocks(&mut self, images: &mut [TracedImage], hit: Hit) -> io::Result<Option<u64>> {
        let Hit { address, image: index, place } = hit;
        let is_new = self.planted.insert((index, place.start));
        if is_new {
            images[index].code_of(place.start);
        }
        let Some(code) = images[index].known_code(place.start) else { return Ok(None) };
        let mut passed = Vec::new();
        let mut offset = place.offset;
        while let Some(next) = code.sure_next(offset) {
            let next = Place { start: place.start, offset: next };
            if !self.recording.borrow_mut().hit(index, next).of_place {
                break;
            }
            offset = next.offset;
            passed.push(next);
        }
        if is_new {
            self.plant_blocks(&mut images[index], index, place.start)?;
        } else {
            for passed in &passed {
                let distance = u64::from(passed.offset).wrapping_sub(u64::from(place.offset));
                let address = address.wrapping_add(distance);
                self.disarm(images, Hit { address, image: index, place: *passed })?;
            }
        }
        for place in std::iter::once(&place).chain(&passed) {
            self.learn_called(&mut images[index], index, *place)?;
        }
        Ok(Some(passed.len() as u64))
    }

    /// Plants breakpoints inside functions that ran before, in the parts of the image that are mapped: at blocks that did not run,
    /// and at watched calls and jumps.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn plant_rest(&mut self, image: &mut TracedImage, index: usize) -> io::Result<()> {
        let (starts, places) = self.recording.borrow().executed(index);
        let is_mapped = |start: &usize, image: &TracedImage| {
            let address = image.starts[*start].address;
            self.armed.iter().any(|armed| armed.image == index && armed.in_image().contains(&address))
        };
        let starts: Vec<usize> = starts.into_iter().filter(|start| is_mapped(start, image)).collect();
        for start in starts {
            if image.code_of(start).is_some() && self.planted.insert((index, start)) {
                self.plant_blocks(image, index, start)?;
            }
        }
        for place in places {
            if self.is_watched(image, index, place) {
                self.plant(image, index, place.start, &[place.offset])?;
            }
        }
        Ok(())
    }

    /// Plants breakpoints at all basic blocks of a function, and at those of other functions that its jumps lead to,
    /// unless they have been executed.
    fn plant_blocks(&mut self, image: &mut TracedImage, index: usize, start: usize) -> io::Result<()> {
        let Some(code) = image.known_code(start) else { return Ok(()) };
        let mut wanted = BTreeMap::from([(start, code.places().to_vec())]);
        for target in code.leaving().to_vec() {
            if let Some(inside) = image.entered_at(target).filter(|inside| inside.start != start) {
                wanted.entry(inside.start).or_insert_with(Vec::new).push(inside.offset);
            }
        }
        for (start, mut offsets) in wanted {
            let mut recording = self.recording.borrow_mut();
            offsets.retain(|offset| !recording.has_seen(index, Place { start, offset: *offset }));
            if self.plant(image, index, start, &offsets)? == Planted::OtherCode {
                recording.give_up(index, start);
            }
        }
        Ok(())
    }

    /// Plants breakpoints at these offsets from a function's start, ascending.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn plant(
        &self,
        image: &TracedImage,
        index: usize,
        start: usize,
        offsets: &[u32],
    ) -> io::Result<Planted> {
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Ok(Planted::Yes) };
        // The process goes on untraced, and a breakpoint would kill it.
        if self.disarmed {
            return Ok(Planted::OtherCode);
        }
        let at = |offset: u32| image.starts[start].address.plus(u64::from(offset));
        let range = at(*first)..at(*last).plus(BREAKPOINT.len() as u64);
        let holds = |armed: &&ArmedRange| {
            let held = armed.in_image();
            armed.image == index && held.start <= range.start && range.end <= held.end
        };
        let Some(armed) = self.armed.iter().find(holds) else { return Ok(Planted::OtherCode) };
        // A byte or two do not identify the code.
        if !holds_code(&self.memory, image, armed, range.start) {
            return Ok(Planted::OtherCode);
        }
        let expected = image.code(armed.segment, &range);
        let mut found = vec![0; expected.len()];
        match self.memory.read(armed.place(range.start), &mut found) {
            Err(error) if is_unmapped(&error) => return Ok(Planted::OtherCode),
            read => read?,
        }
        let mut code = found.clone();
        restore(&mut code, image, &range, expected, |_| true);
        if code != expected {
            return Ok(Planted::OtherCode);
        }
        code.copy_from_slice(&found);
        for offset in offsets {
            let place = (offset - first) as usize;
            code[place..place + BREAKPOINT.len()].copy_from_slice(&BREAKPOINT);
        }
        if code == found {
            return Ok(Planted::Yes);
        }
        match write(&self.memory, armed.place(range.start), &code, offsets) {
            Err(error) if is_unmapped(&error) => Ok(Planted::OtherCode),
            written => written.map(|()| Planted::Yes),
        }
    }
}

/// Writes `code`, which has breakpoints at `offsets` counted from the first of them.
fn write(memory: &ProcessMemory, address: u64, code: &[u8], offsets: &[u32]) -> io::Result<()> {
    // A breakpoint of one byte is there or not, however the bytes around it are written. A longer one must be one store.
    if BREAKPOINT.len() == 1 {
        return memory.write(address, code);
    }
    let first = offsets.first().copied().unwrap_or_default();
    offsets.iter().try_for_each(|offset| memory.write(address + u64::from(offset - first), &BREAKPOINT))
}
