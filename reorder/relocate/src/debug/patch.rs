//! Writes into a copy of a section, each of the width of the old field.

use crate::debug::sections::DebugSection;
use reorder_base::error::Result;

/// A value to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Position in the section.
    pub at: usize,
    /// Bytes, at most eight.
    pub width: u8,
    /// What is stored, little-endian.
    pub value: u64,
}

/// Stores all `patches`.
///
/// # Errors
/// A place outside the section, or a value that is too large for its place.
pub fn store(section: &DebugSection<'_>, bytes: &mut [u8], patches: &[Patch]) -> Result<()> {
    for patch in patches {
        let width = usize::from(patch.width).min(8);
        let fits = width == 8 || patch.value >> (8 * width) == 0;
        let place = patch.at.checked_add(width).and_then(|end| bytes.get_mut(patch.at..end));
        match place.filter(|_| fits) {
            Some(place) => place.copy_from_slice(&patch.value.to_le_bytes()[..width]),
            None => {
                return Err(section.damaged(patch.at, format!("{:#x} does not fit its field", patch.value)));
            }
        }
    }
    Ok(())
}

/// Appends a section offset or length of the format's width.
pub(crate) fn push_offset(bytes: &mut Vec<u8>, format: gimli::Format, value: usize) {
    let width = usize::from(format.word_size());
    bytes.extend_from_slice(&(value as u64).to_le_bytes()[..width]);
}

/// Appends the length of what follows a unit's length field; [`close_unit`] fills it in.
pub(crate) fn open_unit(bytes: &mut Vec<u8>, format: gimli::Format) -> usize {
    if format == gimli::Format::Dwarf64 {
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    let at = bytes.len();
    push_offset(bytes, format, 0);
    at
}

/// Fills in the length that [`open_unit`] left at `at`.
pub(crate) fn close_unit(bytes: &mut [u8], format: gimli::Format, at: usize) {
    let width = usize::from(format.word_size());
    let length = (bytes.len() - at - width) as u64;
    bytes[at..at + width].copy_from_slice(&length.to_le_bytes()[..width]);
}
