//! The unwind entries of copied functions: for each copy those of its original, with the same exception tables.

use super::copies::Copies;
use super::record::Copied;
use super::unwind::{UnwindTables, first_difference, length, parent};
use crate::elf::landing_pads::{TablePads, pads_of};
use crate::elf::unwind_walk::UnwindEntry;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::NewAddress;

/// Checks the entries that only the new image has, and records the landing pads of copies as ways in.
pub(super) fn check_repeated(copies: &mut Copies<'_>, tables: &UnwindTables<'_>, findings: &mut Findings) {
    let expected = expected_entries(&tables.known, &copies.by_copy);
    let mut in_order: Vec<&UnwindEntry> = tables.added.iter().collect();
    in_order.sort_unstable_by_key(|entry| (entry.start, entry.offset));
    if expected.len() != in_order.len() {
        let what = format!("{} entries for {}", in_order.len(), expected.len());
        findings.differs(tables.differs(tables.known_end, "the unwind entries of copies", &what));
    }
    for ((start, entry), found) in expected.iter().zip(&in_order) {
        if start.0 != found.start || !is_repeated(tables, entry, found) {
            let name = format!("the unwind entry of the copy at {start}");
            findings.differs(tables.differs(found.offset, &name, "another one"));
        }
    }
    // Functions do not share tables, and copies use those of their originals.
    let mut budget = copies.new.bytes.len();
    for entry in &tables.added {
        lead_to_pads(copies, entry, &mut budget, findings);
    }
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

/// Whether an added entry is that of its original: same parent, same exception table, same rules.
fn is_repeated(tables: &UnwindTables<'_>, entry: &UnwindEntry, found: &UnwindEntry) -> bool {
    let (before, after) = (tables.before.bytes, tables.after.bytes);
    let size = length(before, entry.offset);
    // What follows parent and start: size, exception table, rules.
    let rest = entry.start_field + 4..entry.offset + size;
    let further = tables.shift().wrapping_add((found.offset as u64).wrapping_sub(entry.offset as u64));
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
