//! How control enters code other than by branches of code that ran: what an image says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_image::elf::dynamic::dynamic_entries;
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::relocation::{LoaderAction, loader_relocations};
use reorder_image::elf::symbol::SymbolTable;
use reorder_verify::AddressMoves;

/// Places of originals of which some word, symbol or instruction of the new image has the address of the copy.
pub(super) fn addresses_of_copies(
    new: &ElfFile<'_>,
    moves: &AddressMoves,
    copies: &Range<NewAddress>,
) -> Result<BTreeSet<NewAddress>> {
    let originals: BTreeMap<NewAddress, NewAddress> =
        moves.copies().iter().map(|copy| (copy.copy, copy.original)).collect();
    let mut led: BTreeSet<NewAddress> = BTreeSet::new();
    let mut note = |address: u64| {
        let address = NewAddress(address);
        if copies.contains(&address) {
            led.extend(originals.get(&address).copied());
        }
    };
    note(new.entry.0);
    for relocation in loader_relocations(new, &dynamic_entries(new)?)? {
        match relocation.action {
            LoaderAction::Relative(address)
            | LoaderAction::ResolveIndirect(address)
            | LoaderAction::Symbolic(Some(address)) => note(address.0),
            LoaderAction::Symbolic(None) => {}
        }
    }
    for symbol in SymbolTable::parse(new, object::elf::SHT_DYNSYM.0)?.iter() {
        note(symbol.value.0);
    }
    for section in new.sections.iter().filter(|section| section.is_loaded() && section.has_bytes()) {
        let bytes = new.section_bytes(section);
        match section.is_executable() {
            true => {
                formed_by_lea(bytes, section.address).for_each(&mut note);
                if new.linkage == Linkage::FixedAddress {
                    let words = bytes.windows(4).filter_map(|word| word.first_chunk());
                    words.for_each(|word| note(u64::from(u32::from_le_bytes(*word))));
                }
            }
            false => bytes
                .chunks_exact(8)
                .filter_map(|word| word.first_chunk().copied())
                .for_each(|word| note(u64::from_le_bytes(word))),
        }
    }
    Ok(led)
}

/// What bytes of x86-64 code form if each `LEA` of an address relative to the next instruction is one. Of other code, addresses
/// that do not lead to copies, except by chance.
fn formed_by_lea(code: &[u8], address: Address) -> impl Iterator<Item = u64> + '_ {
    /// Opcode, ModRM, distance.
    const SIZE: usize = 6;
    let formed = move |(offset, bytes): (usize, &[u8])| {
        let distance = i32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        let is_relative = bytes[0] == 0x8d && bytes[1] & 0xc7 == 0x05;
        is_relative.then(|| address.plus((offset + SIZE) as u64).plus(i64::from(distance) as u64).0)
    };
    code.windows(SIZE).enumerate().filter_map(formed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_code_forms_are_those_of_lea() {
        // lea 0x10(%rip), %rax; mov 0x10(%rip), %rax
        let code = [0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0];
        assert_eq!(formed_by_lea(&code, Address(0x1000)).collect::<Vec<_>>(), [0x1017]);
    }
}
