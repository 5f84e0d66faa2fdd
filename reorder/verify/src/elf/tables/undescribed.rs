//! Places in the middle of functions to which code outside of all functions may jump. What registers hold there is unknown.
//!
//! Where instructions of that code begin is unknown, so each of its bytes is tried as the start of a branch.

use super::super::dispatch::Entry;
use super::super::gaps::complement;
use crate::bytes::{displacement_at, range};
use crate::elf::view::{ElfView, SectionView};
use crate::moves::AddressMoves;
use crate::processor::Processor;
use reorder_base::address::Address;

/// Stands for a function that is not known: regions that have such a part are not analysed.
const UNKNOWN_FUNCTION: u32 = u32::MAX;

/// Such entries, in the order of the places that jump.
pub(super) fn undescribed_entries(image: &ElfView<'_>, functions: &AddressMoves) -> Vec<Entry> {
    let mut entries = Vec::new();
    if image.processor != Processor::X86_64 {
        return entries;
    }
    for section in image.code_sections() {
        let described = functions.iter().filter(|range| !functions.is_found(range.old_start));
        let known = described.map(|range| range.old_start.0..range.old_end().0);
        for gap in complement(section.address..section.end(), known) {
            let first = gap.start - section.address;
            let Some(bytes) = range(section.bytes, first, gap.end - gap.start) else { continue };
            let targets = (0..bytes.len()).filter_map(|position| target(section, first as usize + position));
            let is_inside = |target: &u64| {
                // Nothing is proven by value analysis of other functions.
                let home = functions.containing(Address(*target));
                home.is_some_and(|home| home.old_start.0 < *target && !functions.is_found(home.old_start))
            };
            entries.extend(
                targets
                    .filter(is_inside)
                    .map(|target| Entry { target: Address(target), source: UNKNOWN_FUNCTION }),
            );
        }
    }
    entries
}

/// The target, if the bytes at `position` can be a branch.
///
/// Source: AMD64 Architecture Programmer's Manual, volume 3, opcodes of `Jcc`, `LOOPcc`, `JrCXZ`, `CALL`, `JMP` and `XBEGIN`.
fn target(section: &SectionView<'_>, position: usize) -> Option<u64> {
    let bytes = section.bytes.get(position..)?;
    let (end, distance) = match *bytes {
        [0x70..=0x7f | 0xe0..=0xe3 | 0xeb, distance, ..] => (2, i64::from(distance.cast_signed()) as u64),
        [0xe8 | 0xe9, ..] => (5, displacement_at(section.bytes, position + 1)?),
        [0x0f, 0x80..=0x8f, ..] | [0xc7, 0xf8, ..] => (6, displacement_at(section.bytes, position + 2)?),
        _ => return None,
    };
    Some((section.address + position as u64 + end).wrapping_add(distance))
}
