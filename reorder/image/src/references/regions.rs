//! Which part of the image an address lies in, as far as references care.
//!
//! Takes the section headers; gives [`Regions`]. Unlike the analysis of what may move, nothing is refused.

use std::ops::Range;

use crate::elf::file::{ElfFile, Linkage};
use crate::elf::functions::is_linker_stub_section;
use crate::elf::section::Section;
use reorder_base::address::Address;

/// The kind of a section's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// Functions.
    Code,
    /// Jumps through slots, written by the linker.
    Stubs,
    /// Words that the loader fills with the addresses of symbols.
    Slots,
    /// Everything else that a program reads or writes.
    Data,
}

/// One loaded section.
struct Part<'data> {
    range: Range<Address>,
    region: Region,
    /// Its contents; empty if it has none in the file.
    bytes: &'data [u8],
}

/// The loaded sections by address.
pub(super) struct Regions<'data> {
    parts: Vec<Part<'data>>,
    /// From the first to the last address of all of them.
    pub(super) image: Range<Address>,
    /// The image runs at the address it was linked at, so that code and data hold addresses that no relocation names.
    pub(super) is_fixed: bool,
}

impl<'data> Regions<'data> {
    pub(super) fn new(file: &ElfFile<'data>) -> Self {
        let mut parts: Vec<Part<'data>> = file
            .sections
            .iter()
            .filter(|section| section.is_loaded() && section.size > 0)
            .filter_map(|section| {
                let range = section.address..section.end();
                Some(Part { range, region: region_of(section)?, bytes: file.section_bytes(section) })
            })
            .collect();
        parts.sort_by_key(|part| (part.range.start, part.range.end));
        let start = parts.first().map_or(Address(0), |part| part.range.start);
        let end = parts.last().map_or(Address(0), |part| part.range.end);
        Self { parts, image: start..end, is_fixed: file.linkage == Linkage::FixedAddress }
    }

    fn part(&self, address: Address) -> Option<&Part<'data>> {
        let after = self.parts.partition_point(|part| part.range.start <= address);
        self.parts.get(after.checked_sub(1)?).filter(|part| address < part.range.end)
    }

    /// The region of the section that contains `address`.
    pub(super) fn find(&self, address: Address) -> Option<Region> {
        self.part(address).map(|part| part.region)
    }

    /// The end of the section that contains `address`.
    pub(super) fn end_of_section(&self, address: Address) -> Option<Address> {
        self.part(address).map(|part| part.range.end)
    }

    /// The file's bytes from `start` to `end`, or to the end of the section that contains `start`.
    pub(super) fn bytes(&self, start: Address, end: Address) -> &'data [u8] {
        let Some(part) = self.part(start) else { return &[] };
        let first = start.distance_from(part.range.start) as usize;
        let last = end.min(part.range.end).distance_from(part.range.start) as usize;
        part.bytes.get(first..last).unwrap_or(&[])
    }

    /// Whether `address` lies in data.
    pub(super) fn is_data(&self, address: Address) -> bool {
        self.find(address) == Some(Region::Data)
    }
}

/// `None` for sections that only the loader and the unwinder read, and for templates of thread-local storage, whose
/// contents no address refers to.
fn region_of(section: &Section<'_>) -> Option<Region> {
    if section.is_thread_local() {
        return None;
    }
    if section.is_executable() {
        let is_stub = is_linker_stub_section(section.name);
        return Some(if is_stub { Region::Stubs } else { Region::Code });
    }
    match section.name {
        b".got" | b".got.plt" => return Some(Region::Slots),
        b".eh_frame" | b".eh_frame_hdr" | b".gcc_except_table" | b".tm_clone_table" => return None,
        _ => {}
    }
    let kinds = [
        object::elf::SHT_PROGBITS.0,
        object::elf::SHT_NOBITS.0,
        object::elf::SHT_INIT_ARRAY.0,
        object::elf::SHT_FINI_ARRAY.0,
        object::elf::SHT_PREINIT_ARRAY.0,
    ];
    kinds.contains(&section.kind).then_some(Region::Data)
}
