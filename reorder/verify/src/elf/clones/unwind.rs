//! The unwind tables: the old entries, moved as a whole; for each copy the entries of its original; a search table with all
//! of them.

use std::ops::Range;

use super::follow::Copies;
use super::record::Copied;
use crate::bytes::{displacement_at, u32_at, u64_at};
use crate::elf::landing_pads::{TablePads, pads_of};
use crate::elf::unwind_walk::{UnwindEntries, UnwindEntry};
use crate::elf::view::ElfView;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// `PT_GNU_EH_FRAME`.
const SEARCH_TABLE: u32 = 0x6474_e550;
const SEARCH_HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const FIRST_ROW: usize = 12;
const ROW_SIZE: usize = 8;

/// Checks the tables, and records the landing pads of copies as ways in.
///
/// # Errors
/// Tables that cannot be read, or are missing.
pub(super) fn check_unwind(
    copies: &mut Copies<'_>,
    claimed: &[Copied],
    findings: &mut Findings,
) -> Result<()> {
    let (old, new) = (copies.old, copies.new);
    let before = old.section(b".eh_frame").filter(|section| !section.bytes.is_empty());
    let Some(before) = before else { return Ok(()) };
    let missing = || Error::verification("unwind entries are missing".to_owned());
    let after = new.section(b".eh_frame").ok_or_else(missing)?;
    let shift = after.address.wrapping_sub(before.address);
    let known = UnwindEntries::of(before).collect::<Result<Vec<_>>>()?;
    let found = UnwindEntries::of(after).collect::<Result<Vec<_>>>()?;
    if found.len() < known.len() {
        return Err(missing());
    }
    let differs = |offset: usize, name: String, what: &str| {
        let offset = Some(after.offset + offset as u64);
        Difference::new(Check::UnwindEntries, offset, name, "the same as before", what)
    };
    let end = known.last().map_or(0, |entry| entry.offset + length(before.bytes, entry.offset));
    let mut fields: Vec<(usize, usize)> = known.iter().flat_map(fields_of).collect();
    fields.sort_unstable();
    fields.dedup();
    if let Some(at) = first_difference((before.bytes, 0..end), (after.bytes, 0), &fields, shift) {
        findings.differs(differs(at, format!("byte {at:#x} of .eh_frame"), "another one"));
    }
    let (moved, added) = found.split_at(known.len());
    for (known, moved) in known.iter().zip(moved).filter(|(known, moved)| known != moved) {
        let name = format!("the unwind entry of {}", Address(known.start));
        findings.differs(differs(moved.offset, name, "another one"));
    }
    let expected = expected_entries(&known, claimed);
    let mut in_order: Vec<&UnwindEntry> = added.iter().collect();
    in_order.sort_unstable_by_key(|entry| (entry.start, entry.offset));
    if expected.len() != in_order.len() {
        let what = format!("{} entries for {}", in_order.len(), expected.len());
        findings.differs(differs(end, "the unwind entries of copies".to_owned(), &what));
    }
    for ((start, entry), found) in expected.iter().zip(&in_order) {
        let is_same =
            start.0 == found.start && is_repeated((before.bytes, entry), (after.bytes, found), shift);
        if !is_same {
            let name = format!("the unwind entry of the copy at {start}");
            findings.differs(differs(found.offset, name, "another one"));
        }
    }
    findings.checked(Check::UnwindEntries, "entries", found.len());
    // Functions do not share tables, and copies use those of their originals.
    let mut budget = new.bytes.len();
    for entry in added {
        lead_to_pads(copies, entry, &mut budget, findings);
    }
    let rows = added
        .iter()
        .map(|entry| (NewAddress(entry.start), NewAddress(after.address + entry.offset as u64)))
        .collect();
    check_search_table((old, new), rows, shift, NewAddress(after.address), findings);
    Ok(())
}

/// The entries that copies need, each with its required start, sorted by start.
fn expected_entries<'known>(
    known: &'known [UnwindEntry],
    claimed: &[Copied],
) -> Vec<(NewAddress, &'known UnwindEntry)> {
    let mut by_start: Vec<&UnwindEntry> = known.iter().collect();
    by_start.sort_unstable_by_key(|entry| (entry.start, entry.offset));
    let mut expected = Vec::new();
    for copied in claimed {
        let from = by_start.partition_point(|entry| entry.start < copied.original.0);
        let inside = by_start[from..].iter().take_while(|entry| entry.start < copied.original_end().0);
        expected.extend(inside.map(|entry| (copied.copy.plus(entry.start - copied.original.0), *entry)));
    }
    expected.sort_unstable_by_key(|(start, entry)| (*start, entry.offset));
    expected
}

/// Bytes of the entry at `offset`, its length included.
fn length(bytes: &[u8], offset: usize) -> usize {
    4 + u32_at(bytes, offset).unwrap_or(0) as usize
}

/// The fields of an entry and of its parent that are relative to their own place.
fn fields_of(entry: &UnwindEntry) -> impl Iterator<Item = (usize, usize)> + use<> {
    [(entry.start_field, 4)].into_iter().chain(entry.relative.into_iter().flatten())
}

/// The first position in `range` of `old` that differs from `new`, where the range begins at `start`. Values of the `fields`
/// (position in `old` and size in bytes, ascending) are smaller by `further` in `new`.
fn first_difference(
    (old, range): (&[u8], Range<usize>),
    (new, start): (&[u8], usize),
    fields: &[(usize, usize)],
    further: u64,
) -> Option<usize> {
    let mut position = range.start;
    let inside = fields.iter().filter(|(place, width)| range.start <= *place && place + width <= range.end);
    for &(place, width) in inside.chain([&(range.end, 0)]) {
        let new_place = |place: usize| start + (place - range.start);
        let plain = (old.get(position..place), new.get(new_place(position)..new_place(place)));
        match plain {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(new)) => {
                return old.iter().zip(new).position(|(old, new)| old != new).map(|at| position + at);
            }
            _ => return Some(position),
        }
        let number = |bytes: &[u8], at: usize| match width {
            8 => u64_at(bytes, at),
            _ => u32_at(bytes, at).map(u64::from),
        };
        let expected = number(old, place).map(|old| match width {
            8 => old.wrapping_sub(further),
            _ => u64::from((old as u32).wrapping_sub(further as u32)),
        });
        if width > 0 && number(new, new_place(place)) != expected {
            return Some(place);
        }
        position = place + width;
    }
    None
}

/// Whether an added entry is that of its original: same parent, same exception table, same rules.
fn is_repeated(
    (before, entry): (&[u8], &UnwindEntry),
    (after, found): (&[u8], &UnwindEntry),
    shift: u64,
) -> bool {
    let parent = |bytes: &[u8], entry: &UnwindEntry| {
        Some((entry.offset + 4).wrapping_sub(u32_at(bytes, entry.offset + 4)? as usize))
    };
    let size = length(before, entry.offset);
    // What follows parent and start: size, exception table, rules.
    let rest = entry.start_field + 4..entry.offset + size;
    let further = shift.wrapping_add((found.offset as u64).wrapping_sub(entry.offset as u64));
    let table: Vec<(usize, usize)> = entry.relative[0].into_iter().collect();
    length(after, found.offset) == size
        && parent(before, entry) == parent(after, found)
        && (entry.size, entry.exception_table, entry.personality)
            == (found.size, found.exception_table, found.personality)
        && first_difference((before, rest), (after, found.start_field + 4), &table, further).is_none()
}

/// Checks that exceptions are caught in the copy, or in the original if the table names a base of its own.
fn lead_to_pads(copies: &mut Copies<'_>, entry: &UnwindEntry, budget: &mut usize, findings: &mut Findings) {
    let Some(table) = entry.exception_table else { return };
    let original = copies.original(NewAddress(entry.start));
    let is_sound = match (original, pads_of(copies.new, table, entry, budget)) {
        (Some(original), Some(TablePads::FromStart(sites))) => sites.iter().all(|site| {
            let distance = site.pad.wrapping_sub(entry.start);
            distance < entry.size && copies.leads_to(original.plus(distance), NewAddress(site.pad))
        }),
        (Some(_), Some(TablePads::FromBase)) => true,
        _ => false,
    };
    if !is_sound {
        let name = format!("the landing pads of the copy at {}", NewAddress(entry.start));
        let expected = "places in the copy";
        findings.differs(Difference::new(
            Check::UnwindEntries,
            None,
            name,
            expected,
            "others, or unknown ones",
        ));
    }
}

/// Checks the search table: it is sorted, has all rows of the old one and those `added`, and names `frames` as the start of
/// the entries.
fn check_search_table(
    (old, new): (&ElfView<'_>, &ElfView<'_>),
    added: Vec<(NewAddress, NewAddress)>,
    shift: u64,
    frames: NewAddress,
    findings: &mut Findings,
) {
    let differs = |what: &str| {
        Difference::new(
            Check::UnwindSearchTable,
            None,
            "the unwind search table",
            "all entries, sorted",
            what,
        )
    };
    let (Some((_, before)), Some((named, after))) = (search_table(old), search_table(new)) else {
        findings.differs(differs("no readable table"));
        return;
    };
    if named != frames.0 {
        findings.differs(differs("another address of the entries"));
    }
    if after.windows(2).any(|rows| rows[0].0 > rows[1].0) {
        findings.differs(differs("rows that are not sorted"));
    }
    // Originals keep their starts; all their entries moved by `shift`.
    let typed = |(start, entry)| (NewAddress(start), NewAddress(entry));
    let moved = before.iter().map(|(start, entry)| typed((*start, entry.wrapping_add(shift))));
    let mut expected: Vec<(NewAddress, NewAddress)> = moved.chain(added).collect();
    expected.sort_unstable();
    let mut found: Vec<(NewAddress, NewAddress)> = after.into_iter().map(typed).collect();
    found.sort_unstable();
    if expected != found {
        findings.differs(differs("other rows"));
    }
    findings.checked(Check::UnwindSearchTable, "rows", found.len());
}

/// The address of the entries that the search table names, and its rows: start and entry. Both images are read here, so
/// addresses are plain numbers.
fn search_table(image: &ElfView<'_>) -> Option<(u64, Vec<(u64, u64)>)> {
    let segment = image.segments.iter().find(|segment| segment.p_type == SEARCH_TABLE)?;
    let section = image.section(b".eh_frame_hdr")?;
    let is_one = (segment.p_vaddr, segment.p_offset) == (section.address, section.offset)
        && segment.p_filesz == section.bytes.len() as u64;
    (is_one && section.bytes.get(..4) == Some(&SEARCH_HEADER)).then_some(())?;
    let named = section.address.wrapping_add(4).wrapping_add(displacement_at(section.bytes, 4)?);
    let count = u32_at(section.bytes, 8)? as usize;
    let part = |at: usize| Some(section.address.wrapping_add(displacement_at(section.bytes, at)?));
    let room = section.bytes.len().saturating_sub(FIRST_ROW) / ROW_SIZE;
    let rows = (0..count.min(room)).filter_map(|row| {
        let at = FIRST_ROW + row * ROW_SIZE;
        Some((part(at)?, part(at + 4)?))
    });
    let rows: Vec<(u64, u64)> = rows.collect();
    (rows.len() == count).then_some((named, rows))
}
