//! What an entry that the linker kept adds up to.
//!
//! S is the symbol's value. lld 22 gives sections several symbols and lets entries name any of them, and then S is the
//! address in the section's header: the bytes decide which of the two was meant. Where they confirm neither, the
//! entry was stale before, and the symbol's value counts.

use crate::address::Address;
use crate::image::analysis::Analysis;
use crate::image::analysis::kept_relocations::holds;
use crate::image::elf::file::ElfFile;
use crate::image::elf::relocation_types::Meaning;
use crate::image::elf::symbol::Symbol;

/// The value of `symbol` and, if it stands for a section, the address in that section's header.
pub(super) fn readings(file: &ElfFile<'_>, symbol: &Symbol<'_>) -> [Address; 2] {
    let section = symbol.defining_section().filter(|_| symbol.is_section());
    let header = section.and_then(|index| file.section_at(index)).map(|section| section.address);
    [symbol.value, header.unwrap_or(symbol.value)]
}

/// Of the two sums the one that the bytes at `place` confirm, or the first.
pub(super) fn meant(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    place: Address,
    meaning: Meaning,
    sums: [Address; 2],
) -> Address {
    let [first, second] = sums;
    let is_second = first != second
        && !is_confirmed(file, analysis, place, meaning, first)
        && is_confirmed(file, analysis, place, meaning, second);
    if is_second { second } else { first }
}

fn is_confirmed(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    place: Address,
    meaning: Meaning,
    sum: Address,
) -> bool {
    let word = |width: u8, expected: u64| {
        let bytes = file.bytes_at(place, u64::from(width));
        bytes.is_some_and(|bytes| *bytes == expected.to_le_bytes()[..bytes.len()])
    };
    match meaning {
        Meaning::Relative(width) => word(width, sum.0.wrapping_sub(place.0)),
        // The word itself may be empty until the loader stores the address.
        Meaning::Absolute(width) => word(width, sum.0) || is_loaded_there(analysis, place, sum),
        Meaning::Instruction(form) => {
            let bytes = file.bytes_at(place, 4).and_then(|bytes| bytes.first_chunk());
            bytes.is_some_and(|bytes| holds(form, u32::from_le_bytes(*bytes), place, sum))
        }
        _ => false,
    }
}

/// Whether the loader stores `target` at `place`; pointers are sorted by these two.
fn is_loaded_there(analysis: &Analysis<'_>, place: Address, target: Address) -> bool {
    let wanted = (target, place);
    analysis.pointers.binary_search_by_key(&wanted, |pointer| (pointer.target, pointer.place)).is_ok()
}
