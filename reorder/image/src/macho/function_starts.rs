//! `LC_FUNCTION_STARTS`: where functions start, as differences of variable length.
//!
//! Source: `mach-o/loader.h`; what dyld checks: an end mark, zeros after it, and starts inside `__TEXT`.

use super::file::MachOFile;
use super::load_command::LinkEditPart;
use crate::reader::Reader;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_base::leb128::write_unsigned;

/// The starts, sorted and without repetitions; none if the image has no such table.
///
/// # Errors
/// Differences that are cut off or lead out of `__TEXT`, and anything after the end mark.
pub fn function_starts(file: &MachOFile<'_>) -> Result<Vec<Address>> {
    let Some(range) = file.link_edit_range(LinkEditPart::FunctionStarts) else { return Ok(Vec::new()) };
    let bytes = file.link_edit_bytes(LinkEditPart::FunctionStarts);
    let size = file.segment(b"__TEXT").map_or(0, |segment| segment.memory_size);
    decode(file.base(), size, Reader::new(bytes, range.offset as u64, "table of function starts"))
}

/// The starts in a table for `size` bytes of code and headers from `base` on.
fn decode(base: Address, size: u64, mut reader: Reader<'_>) -> Result<Vec<Address>> {
    let (mut starts, mut offset) = (Vec::new(), 0u64);
    while !reader.rest().is_empty() {
        let difference = reader.uleb()?;
        if difference == 0 {
            break;
        }
        match offset.checked_add(difference).filter(|offset| *offset < size) {
            Some(next) => offset = next,
            None => return Err(reader.error("leads out of __TEXT")),
        }
        starts.push(base.plus(offset));
    }
    match reader.rest().iter().all(|byte| *byte == 0) {
        true => Ok(starts),
        false => Err(reader.error("continues after its end mark")),
    }
}

/// The table of `starts`, in any order: the end mark and padding to eight bytes included. `base` is the address of the
/// headers, which no function precedes.
#[must_use]
pub fn encode(base: Address, starts: &[NewAddress]) -> Vec<u8> {
    let mut sorted = starts.to_vec();
    sorted.sort_unstable();
    let (mut bytes, mut last) = (Vec::with_capacity(starts.len() * 2 + 8), base.0);
    for start in sorted {
        // A difference of zero would be the end mark.
        if start.0 > last {
            write_unsigned(&mut bytes, start.0 - last);
            last = start.0;
        }
    }
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{decode, encode};
    use crate::reader::Reader;
    use reorder_base::address::{Address, NewAddress};

    const BASE: Address = Address(0x1_0000_0000);

    fn read(bytes: &[u8]) -> Option<Vec<u64>> {
        let starts = decode(BASE, 1 << 30, Reader::new(bytes, 0, "table")).ok()?;
        Some(starts.iter().map(|start| start.distance_from(BASE)).collect())
    }

    fn write(offsets: &[u64]) -> Vec<u8> {
        encode(BASE, &offsets.iter().map(|offset| NewAddress(BASE.0 + offset)).collect::<Vec<_>>())
    }

    #[test]
    fn the_end_mark_and_what_follows() {
        assert_eq!(write(&[0x1000, 0x1004, 0x1004]), [0x80, 0x20, 4, 0, 0, 0, 0, 0]);
        assert_eq!(write(&[]), [0; 8]);
        assert_eq!(read(&[0x80, 0x20, 4, 0]), Some(vec![0x1000, 0x1004]));
        assert_eq!(read(&[0, 0, 0]), Some(vec![]));
        assert_eq!(read(&[4, 0, 1]), None, "bytes after the end mark");
        assert_eq!(read(&[0x80]), None, "cut off");
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0]), None, "outside of __TEXT");
    }

    proptest! {
        #[test]
        fn starts_survive_a_round_trip(mut offsets in prop::collection::vec(1u64..1 << 30, 0..50)) {
            let bytes = write(&offsets);
            prop_assert_eq!(bytes.len() % 8, 0);
            offsets.sort_unstable();
            offsets.dedup();
            prop_assert_eq!(read(&bytes), Some(offsets));
        }

        #[test]
        fn damage_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&bytes);
        }
    }
}
