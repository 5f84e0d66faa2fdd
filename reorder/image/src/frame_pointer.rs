//! Pointers of unwind entries that mean nothing: a stored zero, regardless of its base.
//!
//! `gimli` adds the base to any stored value, so a null that counts from its own place comes out as that place.
//! Source: Linux Standard Base 5.0, "DWARF Extensions"; `read_encoded_value_with_base` of libgcc and `getEncodedP` of
//! libunwind, which add the base to what is not zero.

use gimli::constants::DwEhPe;

/// Whether the unwind entry `record`, from its length on, stores zero as the address of its exception table. The starts of
/// its entries have `start_width` bytes, and the address the form `encoding`.
#[must_use]
pub(super) fn names_no_table(record: &[u8], start_width: usize, encoding: DwEhPe) -> bool {
    /// Length and distance to the common entry.
    const HEAD: usize = 8;
    let rest = record.get(HEAD + 2 * start_width..).unwrap_or_default();
    let length_end = rest.iter().position(|byte| byte & 0x80 == 0).map_or(rest.len(), |last| last + 1);
    let width = match encoding.0 & 0x0f {
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        0x00 | 0x04 | 0x0c => 8,
        // Numbers of any length: zero is one byte.
        _ => 1,
    };
    let stored = rest.get(length_end..).and_then(|rest| rest.get(..width));
    stored.is_some_and(|stored| stored.iter().all(|&byte| byte == 0))
}

#[cfg(test)]
mod tests {
    use gimli::constants::{
        DW_EH_PE_absptr, DW_EH_PE_pcrel, DW_EH_PE_sdata2, DW_EH_PE_sdata4, DW_EH_PE_uleb128, DwEhPe,
    };

    use super::names_no_table;

    // case: Mach-O: unwind entries with a null exception table
    #[test]
    fn zero_is_no_address_in_every_form() {
        let relative = |form: DwEhPe| DwEhPe(form.0 | DW_EH_PE_pcrel.0);
        for (start_width, encoding, width) in [
            (4, relative(DW_EH_PE_sdata4), 4),
            (8, relative(DW_EH_PE_absptr), 8),
            (4, relative(DW_EH_PE_sdata2), 2),
            (4, DW_EH_PE_uleb128, 1),
        ] {
            for length in [&[8][..], &[0x88, 0x00]] {
                let mut record = vec![0x11; 8 + 2 * start_width];
                record.extend_from_slice(length);
                let table = record.len();
                record.resize(table + width, 0);
                record.push(0x0c);
                assert!(names_no_table(&record, start_width, encoding), "{encoding:?}");
                record[table + width - 1] = 1;
                assert!(!names_no_table(&record, start_width, encoding), "{encoding:?}");
                assert!(!names_no_table(&record[..table], start_width, encoding), "cut off");
            }
        }
    }
}
