//! The build-id and the debug link of the output.
//!
//! New id = old id ⊕ D(old layout) ⊕ D(new layout), with D a digest of the starts of all functions in the order of
//! their unwind entries and symbols, which relocation keeps. The checksum of `.gnu_debuglink` moves the same way:
//! debuggers then reject the separate debug file, whose addresses are no longer right.

use sha2::{Digest, Sha256};

use crate::address_map::AddressMap;
use crate::ledger::Ledger;
use reorder_base::address::NewAddress;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;

/// Rewrites both identities.
pub(crate) fn change_identity(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    map: &AddressMap,
    keep_build_id: bool,
    output: &mut [u8],
    ledger: &mut Ledger,
) {
    let old = layout_digest(functions, &AddressMap::default());
    let new = layout_digest(functions, map);
    let change: Vec<u8> = old.iter().zip(&new).map(|(old, new)| old ^ new).collect();
    let mut shift = |range: std::ops::Range<usize>| {
        let bytes: Vec<u8> = file.bytes[range.clone()]
            .iter()
            .zip(change.iter().cycle())
            .map(|(byte, change)| byte ^ change)
            .collect();
        ledger.write(output, range.start, &bytes);
    };
    if !keep_build_id {
        file.build_id_range().into_iter().for_each(&mut shift);
    }
    if let Some(section) = file.section(b".gnu_debuglink")
        && section.has_bytes()
        && section.size >= 4
    {
        let end = (section.offset.0 + section.size) as usize;
        shift(end - 4..end);
    }
}

fn layout_digest(functions: &ElfFunctions<'_>, map: &AddressMap) -> Vec<u8> {
    let mut digest = Sha256::new();
    let mut add = |address: NewAddress| digest.update(address.0.to_le_bytes());
    for entry in &functions.frame_entries {
        add(map.map(entry.start));
    }
    for symbol in functions.symbols.iter().chain(functions.dynamic_symbols.iter()) {
        if symbol.is_function() {
            add(map.map(symbol.value));
        }
    }
    digest.finalize().to_vec()
}
