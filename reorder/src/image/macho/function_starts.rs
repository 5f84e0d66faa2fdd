//! `LC_FUNCTION_STARTS`: where functions start, as differences of variable length.
//!
//! Source: `mach-o/loader.h`; what dyld checks: an end mark, zeros behind it, and starts inside `__TEXT`.

use super::file::MachOFile;
use super::load_command::LinkEditPart;
use super::reader::{Reader, write_uleb};
use crate::address::{Address, NewAddress};
use crate::error::Result;

/// The starts, sorted and without repetitions; none if the image has no such table.
///
/// # Errors
/// Differences that are cut off or lead out of `__TEXT`, and anything behind the end mark.
pub fn function_starts(file: &MachOFile<'_>) -> Result<Vec<Address>> {
    let Some(range) = file.link_edit_range(LinkEditPart::FunctionStarts) else { return Ok(Vec::new()) };
    let bytes = file.link_edit_bytes(LinkEditPart::FunctionStarts);
    let mut reader = Reader::new(bytes, range.offset as u64, "table of function starts");
    let size = file.segment(b"__TEXT").map_or(0, |segment| segment.memory_size);
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
        starts.push(file.address_of(offset));
    }
    match reader.rest().iter().all(|byte| *byte == 0) {
        true => Ok(starts),
        false => Err(reader.error("goes on behind its end mark")),
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
            write_uleb(&mut bytes, start.0 - last);
            last = start.0;
        }
    }
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}
