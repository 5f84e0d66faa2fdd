//! `.sframe`: the old entries with mapped starts, sorted by start if they were sorted before.

use super::pair::{ImagePair, Ledger};
use super::unwind_walk::UnwindEntries;
use crate::bytes::{displacement_at, range, u32_at};
use crate::elf::view::SectionView;
use crate::report::{Check, Difference};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// One entry: where the function starts, and all other bytes. The entries of both images are read alike, so the start is a
/// plain number.
type Entry<'data> = (u64, &'data [u8]);

/// Checks the section, if there is one.
///
/// # Errors
/// Malformed unwind entries of the old image.
pub(crate) fn check_sframe(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let Some(section) = pair.old.section(b".sframe").filter(|section| !section.bytes.is_empty()) else {
        return Ok(());
    };
    let new = range(pair.new.bytes, section.offset, section.bytes.len() as u64).unwrap_or_default();
    if new == section.bytes && pair.moves.moved() == 0 {
        return Ok(());
    }
    let mut known: Vec<Address> = match pair.old.section(b".eh_frame") {
        Some(frames) => {
            UnwindEntries::of(frames).map(|entry| Ok(Address(entry?.start))).collect::<Result<Vec<_>>>()?
        }
        None => Vec::new(),
    };
    known.sort_unstable();
    // Starts are relative to the section or to their own field; only one of the readings gives functions.
    let reading = [false, true].into_iter().find_map(|from_field| {
        let old = entries(section, section.bytes, from_field)?;
        // All stubs of the linker share one unwind entry.
        let is_stub =
            |start: u64| pair.old.section_at(start).is_some_and(|home| home.name.starts_with(b".plt"));
        let is_known =
            old.iter().all(|entry| known.binary_search(&Address(entry.0)).is_ok() || is_stub(entry.0));
        is_known.then_some((old, from_field))
    });
    let same = reading.and_then(|(mut old, from_field)| {
        let new = entries(section, new, from_field)?;
        old.iter_mut().for_each(|entry| entry.0 = pair.mapped(Address(entry.0)).0);
        const IS_SORTED: u8 = 1;
        if section.bytes.get(3)? & IS_SORTED != 0 {
            old.sort_by_key(|entry| entry.0);
        }
        (old == new).then_some(old.len())
    });
    match same.zip(extent(section.bytes)) {
        Some((count, (first, size, entries))) => {
            ledger.claims.add(section.offset + first as u64, (size * entries) as u64);
            ledger.findings.checked(Check::UnwindEntries, "entries of .sframe", count);
        }
        None => ledger.findings.differs(Difference::new(
            Check::UnwindEntries,
            Some(section.offset),
            "the entries of .sframe",
            "the old ones by the address map",
            "others",
        )),
    }
    Ok(())
}

/// Position of the first entry, size of one entry, number of entries; `None` for unknown versions.
fn extent(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    const HEADER: usize = 28;
    let size: usize = match bytes.get(2)? {
        1 => 17,
        2 => 20,
        _ => return None,
    };
    let first = HEADER.checked_add(usize::from(*bytes.get(7)?))?.checked_add(u32_at(bytes, 20)? as usize)?;
    let count = u32_at(bytes, 8)? as usize;
    bytes.get(first..first.checked_add(size.checked_mul(count)?)?)?;
    Some((first, size, count))
}

fn entries<'data>(
    section: &SectionView<'_>,
    bytes: &'data [u8],
    from_field: bool,
) -> Option<Vec<Entry<'data>>> {
    let (first, size, count) = extent(bytes)?;
    (0..count)
        .map(|index| {
            let at = first + index * size;
            let origin = section.address.wrapping_add(if from_field { at as u64 } else { 0 });
            Some((origin.wrapping_add(displacement_at(bytes, at)?), bytes.get(at + 4..at + size)?))
        })
        .collect()
}
