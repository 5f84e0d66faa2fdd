//! `.sframe`: starts of functions, sorted. Source: the SFrame specification, versions 1 and 2.

use crate::address_map::AddressMap;
use crate::ledger::Ledger;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::little_endian::{u16_at, u32_at};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::{ElfFunctions, is_linker_stub_section};
use reorder_image::elf::section::Section;

/// Bytes of the header without its auxiliary part.
const HEADER: usize = 28;
/// "Entries are sorted by their starts."
const IS_SORTED: u8 = 1;
const MAGIC: u16 = 0xdee2;

/// What an entry's start is relative to. Versions and linkers differ; only one reading gives functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Section,
    Field,
}

struct Table<'data> {
    bytes: &'data [u8],
    /// Position of the entries in the section.
    first: usize,
    entry: usize,
    count: usize,
    is_sorted: bool,
}

/// Rewrites the starts of all entries and sorts them again.
///
/// # Errors
/// Refuses (R9) other versions, and starts that are functions in neither reading.
pub(crate) fn move_sframe(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    map: &AddressMap,
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    let Some(section) = file.section(b".sframe").filter(|section| section.has_bytes()) else { return Ok(()) };
    let refuse = |reason: &str| {
        Refusal::new(
            RefusalCode::UnknownCodeAddresses,
            format!("section .sframe {reason}"),
            "rebuild without it (-Wa,--gsframe=no), or remove it: objcopy --remove-section=.sframe IN OUT",
        )
        .at(section.address)
    };
    let table =
        table(file.section_bytes(section)).ok_or_else(|| refuse("has an unknown version or is damaged"))?;
    let starts: Vec<Address> = {
        let mut starts: Vec<Address> = functions.frame_entries.iter().map(|entry| entry.start).collect();
        starts.sort_unstable();
        starts
    };
    // Stubs of the linker have one unwind entry for all of them.
    let is_stub = |address: Address| {
        let home = file.sections.iter().find(|section| section.is_loaded() && section.contains(address));
        home.is_some_and(|home| is_linker_stub_section(home.name))
    };
    let is_function = |address: Address| starts.binary_search(&address).is_ok() || is_stub(address);
    let serves = |origin: &Origin| {
        (0..table.count).all(|index| table.start(section, index, *origin).is_some_and(is_function))
    };
    let origin = match [Origin::Section, Origin::Field].into_iter().filter(serves).collect::<Vec<_>>()[..] {
        [origin] => origin,
        [first, ..] if table.count == 0 => first,
        _ => return Err(refuse("names places that are not functions").into()),
    };
    let mut entries: Vec<(u64, &[u8])> = (0..table.count)
        .filter_map(|index| {
            let start = table.start(section, index, origin)?;
            let at = table.first + index * table.entry;
            Some((map.map(start).0, table.bytes.get(at + 4..at + table.entry)?))
        })
        .collect();
    if table.is_sorted {
        // Stable, so that entries with the same start keep their order and the identity changes nothing.
        entries.sort_by_key(|entry| entry.0);
    }
    for (index, (start, rest)) in entries.into_iter().enumerate() {
        let at = table.first + index * table.entry;
        let from = origin_of(section, at, origin);
        // In range: the code spans less than 2 GiB and the old distance fitted.
        let distance = start.wrapping_sub(from) as u32;
        let place = section.offset.0 as usize + at;
        ledger.write(output, place, &distance.to_le_bytes());
        ledger.write(output, place + 4, rest);
    }
    Ok(())
}

fn origin_of(section: &Section<'_>, at: usize, origin: Origin) -> u64 {
    match origin {
        Origin::Section => section.address.0,
        Origin::Field => section.address.0.wrapping_add(at as u64),
    }
}

impl Table<'_> {
    fn start(&self, section: &Section<'_>, index: usize, origin: Origin) -> Option<Address> {
        let at = self.first + index * self.entry;
        let distance = u32_at(self.bytes, at)?.cast_signed();
        Some(Address(origin_of(section, at, origin).wrapping_add(i64::from(distance) as u64)))
    }
}

fn table(bytes: &[u8]) -> Option<Table<'_>> {
    let word = |at: usize| u32_at(bytes, at).map(|word| word as usize);
    let magic = u16_at(bytes, 0)?;
    let (version, flags, auxiliary) = (*bytes.get(2)?, *bytes.get(3)?, usize::from(*bytes.get(7)?));
    let entry = match version {
        1 => 17,
        2 => 20,
        _ => return None,
    };
    let (count, offset) = (word(8)?, word(20)?);
    let first = (HEADER + auxiliary).checked_add(offset)?;
    let end = count.checked_mul(entry)?.checked_add(first)?;
    let is_sorted = flags & IS_SORTED != 0;
    (magic == MAGIC && end <= bytes.len()).then_some(Table { bytes, first, entry, count, is_sorted })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::table;

    proptest! {
        #[test]
        fn any_bytes_are_a_table_inside_them_or_none(mut bytes: Vec<u8>, version in 0..4_u8) {
            for (place, byte) in bytes.iter_mut().zip([0xe2, 0xde, version]) {
                *place = byte;
            }
            if let Some(table) = table(&bytes) {
                prop_assert!(table.first + table.count * table.entry <= bytes.len());
            }
        }
    }
}
