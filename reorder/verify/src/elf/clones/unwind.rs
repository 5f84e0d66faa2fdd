//! The unwind tables: the old entries, moved as a whole; the entries of copies; a search table with all of them.

use std::ops::Range;

use super::copies::Copies;
use super::search_table::check_search_table;
use super::unwind_fragments::check_rewritten;
use super::unwind_functions::check_repeated;
use crate::bytes::{u32_at, u64_at};
use crate::elf::unwind_walk::{UnwindEntries, UnwindEntry};
use crate::elf::view::SectionView;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// The unwind entries of both images.
pub(super) struct UnwindTables<'a> {
    /// The section without copies.
    pub(super) before: &'a SectionView<'a>,
    /// The section with copies.
    pub(super) after: &'a SectionView<'a>,
    /// The entries of the section without copies.
    pub(super) known: Vec<UnwindEntry>,
    /// Position after the last of them.
    pub(super) known_end: usize,
    /// The entries that only the new section has.
    pub(super) added: Vec<UnwindEntry>,
}

impl UnwindTables<'_> {
    /// By how much the section moved, wrapping.
    pub(super) fn shift(&self) -> u64 {
        self.after.address.wrapping_sub(self.before.address)
    }

    /// A difference at `offset` in the new section.
    pub(super) fn differs(&self, offset: usize, name: &str, what: &str) -> Difference {
        let offset = Some(self.after.offset + offset as u64);
        Difference::new(Check::UnwindEntries, offset, name, "the same as before", what)
    }
}

/// Checks the tables. Landing pads of copied functions are recorded as ways in.
///
/// # Errors
/// Tables that cannot be read, or are missing.
pub(super) fn check_unwind(copies: &mut Copies<'_>, findings: &mut Findings) -> Result<()> {
    let (old, new) = (copies.old, copies.new);
    let before = old.section(b".eh_frame").filter(|section| !section.bytes.is_empty());
    let Some(before) = before else { return Ok(()) };
    let missing = || Error::verification("unwind entries are missing".to_owned());
    let after = new.section(b".eh_frame").ok_or_else(missing)?;
    let known = UnwindEntries::of(before).collect::<Result<Vec<_>>>()?;
    let mut moved = UnwindEntries::of(after).collect::<Result<Vec<_>>>()?;
    if moved.len() < known.len() {
        return Err(missing());
    }
    let added = moved.split_off(known.len());
    let known_end = known.last().map_or(0, |entry| entry.offset + length(before.bytes, entry.offset));
    let tables = UnwindTables { before, after, known, known_end, added };
    check_moved(&tables, &moved, findings);
    match copies.fragments().is_some() {
        true => copies.exception_tables = check_rewritten(copies, &tables, findings),
        false => check_repeated(copies, &tables, findings),
    }
    findings.checked(Check::UnwindEntries, "entries", moved.len() + tables.added.len());
    let rows = tables
        .added
        .iter()
        .map(|entry| (NewAddress(entry.start), NewAddress(after.address + entry.offset as u64)))
        .collect();
    check_search_table((old, new), rows, tables.shift(), NewAddress(after.address), findings);
    Ok(())
}

/// Checks that the section still begins with all old entries.
fn check_moved(tables: &UnwindTables<'_>, moved: &[UnwindEntry], findings: &mut Findings) {
    let mut fields: Vec<(usize, usize)> = tables.known.iter().flat_map(fields_of).collect();
    fields.sort_unstable();
    fields.dedup();
    let (before, after) = ((tables.before.bytes, 0..tables.known_end), (tables.after.bytes, 0));
    if let Some(at) = first_difference(before, after, &fields, tables.shift()) {
        findings.differs(tables.differs(at, &format!("byte {at:#x} of .eh_frame"), "another one"));
    }
    for (known, moved) in tables.known.iter().zip(moved).filter(|(known, moved)| known != moved) {
        let name = format!("the unwind entry of {}", Address(known.start));
        findings.differs(tables.differs(moved.offset, &name, "another one"));
    }
}

/// Position of the parent of `entry` in the section with these `bytes`.
pub(super) fn parent(bytes: &[u8], entry: &UnwindEntry) -> Option<usize> {
    Some((entry.offset + 4).wrapping_sub(u32_at(bytes, entry.offset + 4)? as usize))
}

/// Bytes of the entry at `offset`, its length included.
pub(super) fn length(bytes: &[u8], offset: usize) -> usize {
    4 + u32_at(bytes, offset).unwrap_or(0) as usize
}

/// The fields of an entry and of its parent that are relative to their own place.
fn fields_of(entry: &UnwindEntry) -> impl Iterator<Item = (usize, usize)> + use<> {
    [(entry.start_field, 4)].into_iter().chain(entry.relative.into_iter().flatten())
}

/// The first position in `range` of `old` that differs from `new`, where the range begins at `start`. Values of the `fields`
/// (position in `old` and size in bytes, ascending) are smaller by `further` in `new`.
pub(super) fn first_difference(
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
