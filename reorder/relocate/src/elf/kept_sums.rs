//! The sum S + A of a relocation that the linker kept.
//!
//! S is the symbol's value. lld 22 gives sections several symbols and lets entries name any of them, and then S is the
//! address in the section's header: the bytes decide which of the two was meant. Where they confirm neither, the
//! entry was stale before, and the symbol's value counts. Instructions that hold a part of an address may confirm both: then
//! the moved instruction, which followed what it really means, decides.

use reorder_base::address::Address;
use reorder_image::elf::analysis::KeptAnalysis;
use reorder_image::elf::analysis::kept_relocations::holds;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::relocation_types::Meaning;
use reorder_image::elf::symbol::Symbol;

/// The value of `symbol` and, if it stands for a section, the address in that section's header.
pub(super) fn readings(file: &ElfFile<'_>, symbol: &Symbol<'_>) -> [Address; 2] {
    let section = symbol.defining_section().filter(|_| symbol.is_section());
    let header = section.and_then(|index| file.section_at(index)).map(|section| section.address);
    [symbol.value, header.unwrap_or(symbol.value)]
}

/// The sum that the bytes at `place` confirm, or the first if they confirm neither. If they confirm both, the one that
/// `still_holds` after the move, or the second, which is the one that lld means.
pub(super) fn meant(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
    place: Address,
    meaning: Meaning,
    sums: [Address; 2],
    still_holds: impl Fn(Address) -> bool,
) -> Address {
    chosen(sums, |sum| is_confirmed(file, analysis, place, meaning, sum), still_holds)
}

fn chosen(
    [first, second]: [Address; 2],
    is_confirmed: impl Fn(Address) -> bool,
    still_holds: impl Fn(Address) -> bool,
) -> Address {
    let is_second = first != second
        && is_confirmed(second)
        && (!is_confirmed(first) || still_holds(second) || !still_holds(first));
    if is_second { second } else { first }
}

fn is_confirmed(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
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
fn is_loaded_there(analysis: &KeptAnalysis<'_>, place: Address, target: Address) -> bool {
    let wanted = (target, place);
    analysis.pointers.binary_search_by_key(&wanted, |pointer| (pointer.target, pointer.place)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // case: several symbols for one section, named by chance
    #[test]
    fn the_moved_instruction_decides_between_two_sums() {
        let sums = [Address(0x21_0d38), Address(0x21_0c34)];
        let both = |_: Address| true;
        let none = |_: Address| false;
        let only = |wanted: Address| move |sum: Address| sum == wanted;
        assert_eq!(chosen(sums, none, both), sums[0]);
        assert_eq!(chosen(sums, only(sums[0]), none), sums[0]);
        assert_eq!(chosen(sums, only(sums[1]), none), sums[1]);
        // `adrp` holds a page, which both may lie on.
        assert_eq!(chosen(sums, both, only(sums[0])), sums[0]);
        assert_eq!(chosen(sums, both, only(sums[1])), sums[1]);
        assert_eq!(chosen(sums, both, both), sums[1]);
        assert_eq!(chosen(sums, both, none), sums[1]);
    }
}
