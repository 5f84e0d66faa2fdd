//! The executable address ranges of an image and what an address refers to.

use std::ops::Range;

use crate::elf::file::{ElfFile, Linkage};
use crate::elf::functions::is_linker_stub_section;
use crate::elf::section::SectionIndex;
use reorder_base::address::{Address, FileOffset};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Distance from the lowest executable address. Four bytes, because an image has millions of address fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeOffset(pub u32);

/// One executable section whose functions are permuted among themselves.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    /// The section.
    pub section: SectionIndex,
    /// First address.
    pub start: Address,
    /// One past the last address.
    pub end: Address,
    /// What the section's start must be a multiple of (`sh_addralign`).
    pub alignment: u64,
}

/// What an address refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Code that may move.
    Arena,
    /// Linker stubs and other executable bytes that stay.
    FixedCode,
    /// A loaded section without code, its end included.
    Data,
    /// Mapped, but in no section: headers, padding between sections.
    Mapped,
    /// Nowhere in the image.
    Outside,
}

/// All executable ranges, with the whole image's extent.
#[derive(Clone, Debug)]
pub struct CodeSpace<'data> {
    /// Arenas by address.
    pub arenas: Vec<Arena>,
    /// Executable sections that stay, by address.
    pub fixed: Vec<Range<Address>>,
    /// The processor that runs it.
    pub processor: Processor,
    /// Absolute addresses may be stored anywhere without the loader knowing.
    pub is_fixed_address: bool,
    data: Vec<Range<Address>>,
    mapped: Vec<Range<Address>>,
    base: Address,
    bytes: &'data [u8],
    sources: Vec<(Range<Address>, FileOffset)>,
}

impl<'data> CodeSpace<'data> {
    /// Collects the executable sections.
    ///
    /// # Errors
    /// Refuses (R12) executable sections further apart than a 32-bit displacement spans.
    pub fn collect(file: &ElfFile<'data>) -> Result<Self, Refusal> {
        let mut arenas = Vec::new();
        let mut fixed = Vec::new();
        let mut data = Vec::new();
        let mut sources = Vec::new();
        for section in file.sections.iter().filter(|section| section.is_loaded() && section.size > 0) {
            let range = section.address..section.end();
            if !section.is_executable() || !section.has_bytes() {
                data.push(range);
                continue;
            }
            sources.push((range.clone(), section.offset));
            if !is_linker_stub_section(section.name) {
                let Range { start, end } = range;
                arenas.push(Arena { section: section.index, start, end, alignment: section.alignment });
            } else {
                fixed.push(range);
            }
        }
        arenas.sort_by_key(|arena| arena.start);
        fixed.sort_by_key(|range| range.start);
        data.sort_by_key(|range| (range.start, range.end));
        sources.sort_by_key(|(range, _)| range.start);
        let base = sources.first().map_or(Address(0), |(range, _)| range.start);
        let end = sources.last().map_or(Address(0), |(range, _)| range.end);
        if end.distance_from(base) > i32::MAX as u64 {
            return Err(Refusal::new(
                RefusalCode::OutOfReach,
                "executable sections lie more than 2 GiB apart",
                "link with the small code model",
            )
            .at(base));
        }
        let mapped = file
            .segments
            .iter()
            .filter(|segment| segment.is_load())
            .map(|segment| segment.address..segment.address.plus(segment.memory_size.max(segment.file_size)))
            .collect();
        let is_fixed_address = file.linkage == Linkage::FixedAddress;
        Ok(Self {
            processor: file.processor,
            arenas,
            fixed,
            is_fixed_address,
            data,
            mapped,
            base,
            bytes: file.bytes,
            sources,
        })
    }

    /// Position of an executable address.
    pub fn offset(&self, address: Address) -> CodeOffset {
        CodeOffset(address.distance_from(self.base) as u32)
    }

    /// The address at a position.
    pub fn address(&self, offset: CodeOffset) -> Address {
        self.base.plus(u64::from(offset.0))
    }

    /// Bytes from the lowest to the highest executable address.
    pub fn span(&self) -> usize {
        self.sources.last().map_or(0, |(range, _)| range.end.distance_from(self.base) as usize)
    }

    /// Code bytes of `range`, which must lie in one executable section.
    pub fn bytes(&self, range: Range<Address>) -> &'data [u8] {
        let start = self.file_offset(range.start).0 as usize;
        &self.bytes[start..start + range.end.distance_from(range.start) as usize]
    }

    /// Where an executable address, or the end of its section, lies in the file.
    pub fn file_offset(&self, address: Address) -> FileOffset {
        let after = self.sources.partition_point(|(range, _)| range.start <= address);
        let (range, offset) = &self.sources[after.saturating_sub(1)];
        offset.plus(address.distance_from(range.start))
    }

    /// The arena that contains `address`.
    pub fn arena_of(&self, address: Address) -> Option<&Arena> {
        let after = self.arenas.partition_point(|arena| arena.start <= address);
        self.arenas[..after].last().filter(|arena| address < arena.end)
    }

    /// Whether `value` is an address of code that may move, or the end of such a section. In a program at a fixed address the end
    /// is the place right after the last function, whatever starts there.
    pub(crate) fn may_be_code(&self, value: Address) -> bool {
        let before = || value.0.checked_sub(1).is_some_and(|before| self.arena_of(Address(before)).is_some());
        self.arena_of(value).is_some() || before()
    }

    /// Bytes from the first to the last address of the image.
    pub(crate) fn extent(&self) -> u64 {
        let start = self.mapped.iter().map(|range| range.start).min();
        let end = self.mapped.iter().map(|range| range.end).max();
        start.zip(end).map_or(0, |(start, end)| end.distance_from(start))
    }

    /// Whether a loaded section without code contains `address` or ends there. A thread-local template may share
    /// its first addresses with the section after it, hence a second look.
    fn is_data(&self, address: Address) -> bool {
        let after = self.data.partition_point(|range| range.start <= address);
        self.data[..after].iter().rev().take(3).any(|range| address <= range.end)
    }

    /// What `address` refers to.
    pub fn region(&self, address: Address) -> Region {
        if self.arena_of(address).is_some() {
            return Region::Arena;
        }
        let within = |ranges: &[Range<Address>]| {
            let after = ranges.partition_point(|range| range.start <= address);
            ranges[..after].last().is_some_and(|range| address < range.end)
        };
        if within(&self.fixed) {
            Region::FixedCode
        } else if self.is_data(address) {
            Region::Data
        } else if self.mapped.iter().any(|range| range.start <= address && address <= range.end) {
            Region::Mapped
        } else {
            Region::Outside
        }
    }
}
