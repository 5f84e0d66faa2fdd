//! `.debug_aranges`: which unit owns which addresses.

use gimli::{DebugAranges, LittleEndian};

use super::{Read, Slice};
use crate::debug::view::DebugView;

/// Position of a unit, and the addresses that it owns.
type Owned = (usize, Vec<(u64, u64)>);

/// Checks that each added unit has the addresses of its own ranges there, if the image has the table at all.
pub(super) fn check_aranges(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    added: &[gimli::Unit<Slice<'_>>],
    (before, after): (&DebugView<'_>, &DebugView<'_>),
) -> Read<()> {
    let name = ".debug_aranges";
    let (old, new) = (before.bytes(name), after.bytes(name));
    let rest = new.get(old.len()..).unwrap_or_default();
    if old.is_empty() && rest.is_empty() {
        return Ok(());
    }
    let read = || -> gimli::Result<Vec<Owned>> {
        let table = DebugAranges::new(rest, LittleEndian);
        let mut sets = Vec::new();
        let mut headers = table.headers();
        while let Some(header) = headers.next()? {
            let mut ranges = Vec::new();
            let mut entries = header.entries();
            while let Some(entry) = entries.next()? {
                let range = entry.range();
                ranges.push((range.begin, range.end));
            }
            sets.push((header.debug_info_offset().0, ranges));
        }
        Ok(sets)
    };
    let expected = || -> gimli::Result<Vec<Owned>> {
        let own = |unit: &gimli::Unit<Slice<'_>>| {
            let mut ranges = dwarf.unit_ranges(unit)?;
            let mut all = Vec::new();
            while let Some(range) = ranges.next()? {
                all.push((range.begin, range.end));
            }
            Ok((unit.header.offset().0, all))
        };
        added.iter().map(own).collect()
    };
    let (found, expected) =
        (read().map_err(|error| error.to_string())?, expected().map_err(|error| error.to_string())?);
    match found == expected {
        true => Ok(()),
        false => Err("other addresses than the added units".to_owned()),
    }
}
