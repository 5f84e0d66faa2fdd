//! Landing pads: where the unwinder lets control go on in AArch64 functions, with what a call left in registers.
//!
//! Takes the unwind entries and their exception tables; says so where a table is not understood. Source: Itanium C++ ABI, "Exception Handling Tables", and the tables that GCC and LLVM write.

use std::ops::Range;

use super::bytes::{displacement_at, u32_at};
use super::elf_view::ElfView;
use super::processor::Processor;
use super::unwind_walk::{OMITTED, UnwindEntries, UnwindEntry, unsigned_leb128};

/// The places of one image.
#[derive(Debug, Default)]
pub(super) struct LandingPads {
    /// Ascending.
    pads: Vec<u64>,
    /// Functions of which the pads are not known, by start.
    unknown: Vec<Range<u64>>,
}

impl LandingPads {
    /// Of all functions of `image`, if it is for AArch64: others need none.
    pub(super) fn of(image: &ElfView<'_>) -> Self {
        let mut found = Self::default();
        let section = image.section(b".eh_frame").filter(|_| image.processor == Processor::Aarch64);
        // Tables are not shared by functions: more call sites than bytes are not worth reading.
        let mut budget = image.bytes.len();
        for entry in section.into_iter().flat_map(UnwindEntries::of).map_while(Result::ok) {
            let Some(table) = entry.exception_table else { continue };
            let known = image
                .section_at(table)
                .and_then(|section| section.bytes.get((table - section.address) as usize..))
                .and_then(|bytes| read_table(bytes, entry.start, &mut budget, &mut found.pads));
            if known.is_none() {
                found.unknown.push(entry.start..entry.start.saturating_add(entry.size));
            }
        }
        found.pads.sort_unstable();
        found.pads.dedup();
        found.pads.shrink_to_fit();
        found.unknown.sort_unstable_by_key(|range| range.start);
        found
    }

    /// Whether an exception may be caught at `address`; nothing when the function's table is not understood.
    pub(super) fn contains(&self, address: u64) -> Option<bool> {
        let after = self.unknown.partition_point(|range| range.start <= address);
        let is_unknown = self.unknown[..after].last().is_some_and(|range| address < range.end);
        (!is_unknown).then(|| self.pads.binary_search(&address).is_ok())
    }
}

/// Where the exceptions of one function are caught.
pub(super) enum TablePads {
    /// The places, which count from the function's start.
    FromStart(Vec<u64>),
    /// Places that count from a base in the table.
    FromBase,
}

/// What the exception table at `table` says of the function of `entry`; nothing when it is not understood, or longer than
/// the `budget` that all tables of an image share.
pub(super) fn pads_of(
    image: &ElfView<'_>,
    table: u64,
    entry: &UnwindEntry,
    budget: &mut usize,
) -> Option<TablePads> {
    let section = image.section_at(table)?;
    let bytes = section.bytes.get((table - section.address) as usize..)?;
    if *bytes.first()? != OMITTED {
        return Some(TablePads::FromBase);
    }
    let mut pads = Vec::new();
    read_table(bytes, entry.start, budget, &mut pads).map(|()| TablePads::FromStart(pads))
}

/// Adds the pads of the function at `start`; nothing when its table is not understood.
pub(super) fn read_table(table: &[u8], start: u64, budget: &mut usize, pads: &mut Vec<u64>) -> Option<()> {
    let mut cursor = 1;
    if *table.first()? != OMITTED {
        return None;
    }
    let types = *table.get(cursor)?;
    cursor += 1;
    if types != OMITTED {
        unsigned_leb128(table, &mut cursor)?;
    }
    let encoding = *table.get(cursor)?;
    cursor += 1;
    let size = usize::try_from(unsigned_leb128(table, &mut cursor)?).ok()?;
    let sites = table.get(..cursor.checked_add(size)?)?;
    while cursor < sites.len() {
        *budget = budget.checked_sub(1)?;
        number(sites, &mut cursor, encoding)?;
        number(sites, &mut cursor, encoding)?;
        let pad = number(sites, &mut cursor, encoding)?;
        unsigned_leb128(sites, &mut cursor)?;
        if pad != 0 {
            pads.push(start.wrapping_add(pad));
        }
    }
    Some(())
}

/// One number of a call site, in the forms that compilers write.
fn number(bytes: &[u8], cursor: &mut usize, encoding: u8) -> Option<u64> {
    let value = match encoding {
        0x01 => return unsigned_leb128(bytes, cursor),
        0x03 => u64::from(u32_at(bytes, *cursor)?),
        0x0b => displacement_at(bytes, *cursor)?,
        _ => return None,
    };
    *cursor += 4;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    #[test]
    fn pads_count_from_the_start_of_their_function() {
        // Two call sites, the second without a pad; then one action.
        let table = [0xff, 0xff, 0x01, 8, 4, 4, 0x40, 1, 0x20, 4, 0, 0, 1, 0];
        let mut pads = Vec::new();
        assert_eq!(read_table(&table, START, &mut 10, &mut pads), Some(()));
        assert_eq!(pads, [0x1040]);
        // A base of its own, a table that runs past its end, and more sites than are worth reading.
        let based = [&[0x1b, 0, 0, 0, 0][..], &table[1..]].concat();
        assert_eq!(read_table(&based, START, &mut 10, &mut Vec::new()), None);
        assert_eq!(read_table(&table[..9], START, &mut 10, &mut Vec::new()), None);
        assert_eq!(read_table(&table, START, &mut 1, &mut Vec::new()), None);
    }

    proptest::proptest! {
        /// Any bytes: an answer, and no more pads than bytes.
        #[test]
        fn hostile_tables_end(table in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let mut pads = Vec::new();
            let _ = read_table(&table, START, &mut 1000, &mut pads);
            proptest::prop_assert!(pads.len() <= table.len());
        }
    }
}
