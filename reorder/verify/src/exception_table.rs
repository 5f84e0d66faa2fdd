//! Exception tables: where the exceptions of one function are caught.
//!
//! A table in an unknown form is reported as such. Source: Itanium C++ ABI, "Exception Handling Tables", and the tables that
//! GCC and LLVM write.

use std::ops::Range;

use crate::bytes::{displacement_at, u32_at, unsigned_leb128};
use crate::elf::unwind_walk::OMITTED;

/// Code whose exceptions one landing pad catches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallSite {
    /// The code: an exception leaves a call in it.
    pub(crate) code: Range<u64>,
    /// Where control goes then.
    pub(crate) pad: u64,
}

/// Adds the call sites of the function at `start` that have a landing pad to `sites`; `None` when its table has an unknown
/// form or more call sites than the `budget`.
pub(crate) fn read_table(
    table: &[u8],
    start: u64,
    budget: &mut usize,
    sites: &mut Vec<CallSite>,
) -> Option<()> {
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
    let bytes = table.get(..cursor.checked_add(size)?)?;
    while cursor < bytes.len() {
        *budget = budget.checked_sub(1)?;
        let first = start.wrapping_add(number(bytes, &mut cursor, encoding)?);
        let length = number(bytes, &mut cursor, encoding)?;
        let pad = number(bytes, &mut cursor, encoding)?;
        unsigned_leb128(bytes, &mut cursor)?;
        if pad != 0 {
            let code = first..first.saturating_add(length);
            sites.push(CallSite { code, pad: start.wrapping_add(pad) });
        }
    }
    Some(())
}

/// One number of a call site, in the encodings that compilers use.
pub(crate) fn number(bytes: &[u8], cursor: &mut usize, encoding: u8) -> Option<u64> {
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
        let mut sites = Vec::new();
        assert_eq!(read_table(&table, START, &mut 10, &mut sites), Some(()));
        assert_eq!(sites, [CallSite { code: 0x1004..0x1008, pad: 0x1040 }]);
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
            let mut sites = Vec::new();
            let _ = read_table(&table, START, &mut 1000, &mut sites);
            proptest::prop_assert!(sites.len() <= table.len());
        }
    }
}
