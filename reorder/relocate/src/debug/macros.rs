//! `.debug_macro`: its units name the line program that numbers their files. Source: DWARF 5, section 6.3.1.

use std::collections::{BTreeMap, BTreeSet};

use gimli::{DebugMacroOffset, LittleEndian, MacroEntry, Reader};

use super::patch::Patch;
use super::sections::{DebugSection, Slice};
use super::units::UnitUpdate;
use reorder_base::error::Result;

/// New positions of the line programs.
///
/// # Errors
/// A damaged section; one whose units overlap each other.
pub(crate) fn move_macros(
    section: &DebugSection<'_>,
    units: &[UnitUpdate],
    lines: &BTreeMap<usize, usize>,
) -> Result<Vec<Patch>> {
    let mut waiting: Vec<usize> = units.iter().flat_map(|unit| unit.macros.iter().copied()).collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut patches = Vec::new();
    // Each entry takes a byte at least.
    let mut left = section.bytes.len();
    while let Some(offset) = waiting.pop() {
        if !seen.insert(offset) {
            continue;
        }
        let broken = |error: gimli::Error| section.damaged(offset, error);
        patches.extend(header(section, offset, lines).map_err(broken)?);
        let reader = gimli::DebugMacro::from(Slice::new(&section.bytes, LittleEndian));
        let mut entries = reader.get_macros(DebugMacroOffset(offset)).map_err(broken)?;
        while let Some(entry) = entries.next().map_err(broken)? {
            left = left.checked_sub(1).ok_or_else(|| section.damaged(offset, "units overlap each other"))?;
            if let MacroEntry::Import { offset } = entry {
                waiting.push(offset.0);
            }
        }
    }
    Ok(patches)
}

fn header(
    section: &DebugSection<'_>,
    offset: usize,
    lines: &BTreeMap<usize, usize>,
) -> gimli::Result<Option<Patch>> {
    const IS_WIDE: u8 = 1;
    const NAMES_LINES: u8 = 2;
    let mut rest = Slice::new(&section.bytes, LittleEndian);
    rest.skip(offset)?;
    rest.read_u16()?;
    let flags = rest.read_u8()?;
    if flags & NAMES_LINES == 0 {
        return Ok(None);
    }
    let is_wide = flags & IS_WIDE != 0;
    let format = if is_wide { gimli::Format::Dwarf64 } else { gimli::Format::Dwarf32 };
    let old = rest.read_offset(format)?;
    let new = lines.get(&old).copied().ok_or(gimli::Error::OffsetOutOfBounds(old as u64))?;
    Ok(Some(Patch { at: offset + 3, width: format.word_size(), value: new as u64 }))
}
