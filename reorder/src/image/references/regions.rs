//! Which part of the image an address lies in, as far as references care.
//!
//! Takes the section headers; gives [`Regions`]. Unlike the analysis of what may move, nothing is refused.

use std::ops::Range;

use crate::address::Address;
use crate::image::elf::file::{ElfFile, Linkage};
use crate::image::elf::section::Section;
use crate::image::functions::is_linker_stub_section;

/// What the bytes of a section are.
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

/// The loaded sections by address.
pub(super) struct Regions {
    ranges: Vec<(Range<Address>, Region)>,
    /// From the first to the last address of any of them.
    pub(super) image: Range<Address>,
    /// The image runs where it was linked, so that code and data hold addresses that no relocation names.
    pub(super) is_fixed: bool,
}

impl Regions {
    pub(super) fn new(file: &ElfFile<'_>) -> Self {
        let mut ranges: Vec<(Range<Address>, Region)> = file
            .sections
            .iter()
            .filter(|section| section.is_loaded() && section.size > 0)
            .filter_map(|section| Some((section.address..section.end(), region_of(section)?)))
            .collect();
        ranges.sort_by_key(|(range, _)| (range.start, range.end));
        let start = ranges.first().map_or(Address(0), |(range, _)| range.start);
        let end = ranges.last().map_or(Address(0), |(range, _)| range.end);
        Self { ranges, image: start..end, is_fixed: file.linkage == Linkage::FixedAddress }
    }

    /// The region of the section that contains `address`, and the section's range.
    pub(super) fn find(&self, address: Address) -> Option<(&Range<Address>, Region)> {
        let after = self.ranges.partition_point(|(range, _)| range.start <= address);
        let (range, region) = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.end).then_some((range, *region))
    }

    /// Whether `address` lies in data.
    pub(super) fn is_data(&self, address: Address) -> bool {
        matches!(self.find(address), Some((_, Region::Data)))
    }
}

/// None for what only the loader and the unwinder read, and for templates of thread-local storage, whose contents no
/// address refers to.
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
