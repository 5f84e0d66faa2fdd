//! Where the file's bytes are in memory, without a hold on the file itself.

use std::ops::Range;

use crate::elf::file::{ElfFile, Linkage};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// The loaded parts of an image.
#[derive(Clone, Debug)]
pub struct LoadedBytes {
    /// The processor that runs its code.
    pub processor: Processor,
    /// Of an image at a fixed address: its addresses, which its code may hold as numbers.
    pub(super) fixed: Option<Range<Address>>,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
struct Segment {
    address: Address,
    /// Position in the file.
    offset: u64,
    /// Bytes in the file.
    size: u64,
    is_executable: bool,
}

impl LoadedBytes {
    /// Those of `file`.
    pub fn new(file: &ElfFile<'_>) -> Self {
        let loaded = || file.segments.iter().filter(|segment| segment.is_load());
        let start = loaded().map(|segment| segment.address).min();
        let end = loaded().map(|segment| segment.address.plus(segment.memory_size)).max();
        let segments = loaded().map(|segment| Segment {
            address: segment.address,
            offset: segment.offset.0,
            size: segment.file_size,
            is_executable: segment.is_executable(),
        });
        let is_fixed = file.linkage == Linkage::FixedAddress;
        Self {
            processor: file.processor,
            fixed: start.zip(end).filter(|_| is_fixed).map(|(start, end)| start..end),
            segments: segments.collect(),
        }
    }

    /// The bytes of `file` that are loaded at `address`, if all of them are in the file.
    pub(super) fn at<'data>(&self, file: &'data [u8], address: Address, length: u64) -> Option<&'data [u8]> {
        self.segments.iter().find_map(|segment| {
            let distance = address.0.checked_sub(segment.address.0)?;
            if distance.checked_add(length)? > segment.size {
                return None;
            }
            let first = usize::try_from(segment.offset.checked_add(distance)?).ok()?;
            file.get(first..first.checked_add(usize::try_from(length).ok()?)?)
        })
    }

    /// Whether `address` is in an executable segment.
    pub(super) fn is_code(&self, address: Address) -> bool {
        self.segments.iter().any(|segment| {
            let distance = address.0.checked_sub(segment.address.0);
            segment.is_executable && distance.is_some_and(|distance| distance < segment.size)
        })
    }

    /// Whether a number may be an address of the image.
    pub(super) fn may_be_address(&self, number: u64) -> bool {
        self.fixed.as_ref().is_some_and(|range| range.contains(&Address(number)))
    }
}

#[cfg(test)]
impl LoadedBytes {
    /// An executable segment of all bytes of a file.
    pub(super) fn of_one_segment(address: Address, size: u64, processor: Processor, is_fixed: bool) -> Self {
        let segment = Segment { address, offset: 0, size, is_executable: true };
        Self { processor, fixed: is_fixed.then(|| address..address.plus(size)), segments: vec![segment] }
    }
}
