//! `.debug_frame`: starts of functions, in place. Source: DWARF 5, section 6.4.1.

use gimli::{LittleEndian, Reader};

use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice};
use crate::error::Result;

/// Where functions start, for each entry that moved.
///
/// # Errors
/// A damaged section, segmented or narrow addresses.
pub fn move_frames(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Vec<Patch>> {
    let whole = Slice::new(&section.bytes, LittleEndian);
    let mut rest = whole;
    let mut patches = Vec::new();
    while !rest.is_empty() {
        let start = rest.offset_from(whole);
        let entry = move_entry(&mut rest, whole, pieces).map_err(|error| section.damaged(start, error))?;
        patches.extend(entry);
    }
    Ok(patches)
}

fn move_entry(rest: &mut Slice<'_>, whole: Slice<'_>, pieces: &Pieces) -> gimli::Result<Option<Patch>> {
    let (length, format) = rest.read_initial_length()?;
    let mut entry = rest.split(length)?;
    if entry.is_empty() {
        return Ok(None);
    }
    let common = entry.read_offset(format)?;
    let none = if format == gimli::Format::Dwarf64 { usize::MAX } else { u32::MAX as usize };
    if common == none {
        // From version 4 on the entry says how wide addresses are.
        if entry.read_u8()? >= 4 {
            entry.read_null_terminated_slice()?;
            let (address, segment) = (entry.read_u8()?, entry.read_u8()?);
            if (address, segment) != (8, 0) {
                return Err(gimli::Error::UnsupportedAddressSize(address));
            }
        }
        return Ok(None);
    }
    let at = entry.offset_from(whole);
    let start = entry.read_u64()?;
    let new = pieces.start(start);
    Ok((new != start).then_some(Patch { at, width: 8, value: new }))
}
