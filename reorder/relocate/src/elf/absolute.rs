//! Absolute addresses of code in operands and in words that are too short for a pointer.

use crate::address_map::AddressMap;
use crate::ledger::Ledger;
use reorder_image::elf::analysis::KeptAnalysis;
use reorder_image::elf::file::ElfFile;

/// Rewrites all fields at their new places, once the code is there.
pub(crate) fn move_absolute_fields(
    file: &ElfFile<'_>,
    analysis: &KeptAnalysis<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) {
    for field in &analysis.absolute_fields {
        let place = map.map(field.place);
        let target = map.map(field.target).0.to_le_bytes();
        // Functions stay in their section, so an address that fitted fits again.
        let bytes = &target[..usize::from(field.width)];
        if let Some(start) = file.offset_of(reorder_base::address::Address(place.0), u64::from(field.width)) {
            ledger.write(output, start.0 as usize, bytes);
        }
    }
}
