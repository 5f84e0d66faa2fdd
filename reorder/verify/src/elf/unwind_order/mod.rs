//! Unwind entries that changed their order.
//!
//! A new image may hold the entries of `.eh_frame` that follow each other in another order. The image is given back with the
//! entries in their old order, each with the same meaning at its old place, and the search table led to these places: all
//! other checks compare that. Which entry had which place is only a guess ([`pairing`]). A wrong guess proves nothing: the
//! checks then find an entry that does not describe what it described.
//!
//! Source: Linux Standard Base 5.0, "Exception Frames".

mod code;
mod described;
mod pairing;

use std::ops::Range;

use described::{Described, described};
use pairing::Pairing;

use super::unwind::{FIRST_ROW, ROW_SIZE, SEARCH_TABLE_HEADER, search_table};
use crate::bytes::{displacement_at, range, u32_at};
use crate::elf::view::ElfView;
use crate::processor::Processor;
use reorder_base::error::{Error, Result};

/// Whether the entries of `new` may be in another order than those of `old`: where they follow each other, they are sorted by
/// the starts of their functions. Not where they cannot be read: other checks say that.
pub(crate) fn are_sorted(old: &ElfView<'_>, new: &ElfView<'_>) -> bool {
    // Functions of one kind may have changed places among each other, so that neither code nor entries tell.
    if new.processor != Processor::X86_64 || old.bytes == new.bytes {
        return false;
    }
    described(new).is_ok_and(|entries| {
        entries.windows(2).all(|pair| pair[0].run != pair[1].run || pair[0].start <= pair[1].start)
    })
}

/// The new image with its unwind entries in the order of the old one.
///
/// # Errors
/// Entries that are others than before, or that cannot be written at their old places.
pub(crate) fn put_back(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<Vec<u8>> {
    let (before, after) = (described(old)?, described(new)?);
    if runs(&before) != runs(&after) {
        return Err(Error::verification("unwind entries are at other positions than before"));
    }
    let partners = Pairing::new((old, &before), (new, &after)).partners()?;
    let mut whole = new.bytes.to_vec();
    let Some(section) = new.section(b".eh_frame") else { return Ok(whole) };
    let start = usize::try_from(section.offset).unwrap_or(usize::MAX);
    let place = start.checked_add(section.bytes.len()).and_then(|end| whole.get_mut(start..end));
    let place =
        place.ok_or_else(|| Error::malformed(section.offset, "unwind entries outside of the file"))?;
    let mut positions = Vec::with_capacity(before.len());
    for (entry, &partner) in before.iter().zip(&partners) {
        let partner = &after[partner as usize];
        write_at(section.bytes, partner, place, entry.record.clone()).ok_or_else(|| {
            Error::verification(format!(
                "the unwind entry of {:#x} does not fit its old place",
                partner.start
            ))
        })?;
        positions.push((section.address.wrapping_add(partner.record.start as u64), entry.record.start));
    }
    positions.sort_unstable();
    lead_rows(new, section.address, &positions, &mut whole)?;
    Ok(whole)
}

/// Where entries follow each other, from the first byte to the last.
fn runs(entries: &[Described]) -> Vec<Range<usize>> {
    let runs = entries.chunk_by(|one, other| one.run == other.run);
    runs.filter_map(|run| Some(run.first()?.record.start..run.last()?.record.end)).collect()
}

/// Writes `entry` to the range `to` of the section: what is relative to its own place keeps its target.
fn write_at(section: &[u8], entry: &Described, place: &mut [u8], to: Range<usize>) -> Option<()> {
    let record = section.get(entry.record.clone())?;
    let target = place.get_mut(to.clone())?;
    if record.len() != target.len() {
        return None;
    }
    target.copy_from_slice(record);
    let moved = (to.start as u64).wrapping_sub(entry.record.start as u64);
    // The parent is so many bytes before its field; all others are distances to what comes after them.
    let parent = u64::from(u32_at(record, 4)?).wrapping_add(moved);
    target[4..8].copy_from_slice(&u32::try_from(parent).ok()?.to_le_bytes());
    for field in [Some(8), entry.table_field].into_iter().flatten() {
        let distance = displacement_at(record, field)?.wrapping_sub(moved);
        let narrow = i32::try_from(distance as i64).ok()?;
        target.get_mut(field..field + 4)?.copy_from_slice(&narrow.to_le_bytes());
    }
    Some(())
}

/// Leads the rows of the search table to the entries at their old places. `positions` has the address of each entry in the new
/// image and the position in the section that it has in the old one.
fn lead_rows(new: &ElfView<'_>, section: u64, positions: &[(u64, usize)], whole: &mut [u8]) -> Result<()> {
    let Some((offset, address, table)) = search_table(new) else { return Ok(()) };
    if table.get(..4) != Some(SEARCH_TABLE_HEADER.as_slice()) {
        return Err(Error::verification(
            "unwind entries changed their order, but their search table is unknown",
        ));
    }
    let size = (u32_at(table, 8).unwrap_or_default() as usize).saturating_mul(ROW_SIZE);
    let start = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(FIRST_ROW);
    let rows = range(table, FIRST_ROW as u64, size as u64).and_then(|_| whole.get_mut(start..start + size));
    let rows = rows.ok_or_else(|| Error::malformed(offset, "the unwind search table runs past its end"))?;
    for row in rows.chunks_exact_mut(ROW_SIZE) {
        let entry = address.wrapping_add(displacement_at(row, 4).unwrap_or_default());
        let known = positions.binary_search_by_key(&entry, |&(entry, _)| entry).map_err(|_| {
            Error::verification(format!(
                "a row of the unwind search table leads to {entry:#x}, where no entry is"
            ))
        })?;
        let moved = section.wrapping_add(positions[known].1 as u64).wrapping_sub(address);
        let narrow = i32::try_from(moved as i64)
            .map_err(|_| Error::malformed(offset, "an unwind entry too far from its search table"))?;
        row[4..].copy_from_slice(&narrow.to_le_bytes());
    }
    Ok(())
}
