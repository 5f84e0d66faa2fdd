//! Tables of distances that computed jumps read: every word still leads to the same code.
//!
//! Tables that count from a place in their function stay unchanged, provided that the function moves as a whole. Tables that
//! count from their own start stay in place, so their words must follow.

use std::ops::Range;

use super::super::aarch64::dispatches;
use super::super::bytes::displacement_at;
use super::super::processor::Processor;
use super::super::report::{Check, Difference};
use super::code::code_at;
use super::pair::{Ledger, MachPair};
use super::tables::function_starts;
use super::view::MachView;
use super::x86_64;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;

/// A table and the atom that jumps through it.
pub(super) type TableUse = (u64, u32);

/// Adds the tables of the atom at `index` that count from their own start; returns a difference if a jump counts from a
/// place that did not move with the atom.
pub(super) fn tables_of(pair: MachPair<'_>, index: usize, tables: &mut Vec<TableUse>) -> Option<Difference> {
    if pair.old.processor == Processor::X86_64 {
        return None;
    }
    let atom = &pair.moves.as_slice()[index];
    let (_, code) = code_at(pair.old, atom.old_start.0, atom.size)?;
    let found = dispatches(code, atom.old_start.0);
    tables.extend(found.tables.iter().map(|&table| (table, index as u32)));
    let delta_at = |address: u64| pair.moves.containing(Address(address)).map_or(0, |atom| atom.delta());
    let anchor = found.anchors.into_iter().find(|&anchor| delta_at(anchor) != atom.delta())?;
    Some(Difference::new(
        Check::JumpTables,
        None,
        format!("the jumps of {atom}"),
        "tables that count from a place which moved with it",
        format!("one that counts from {anchor:#x}"),
    ))
}

/// The words of tables that count from themselves have followed their targets.
pub(super) fn check_tables(pair: MachPair<'_>, mut tables: Vec<TableUse>, ledger: &mut Ledger<'_>) {
    tables.sort_unstable();
    tables.dedup();
    let mut words = 0;
    for (index, &(base, owner)) in tables.iter().enumerate() {
        let owner = &pair.moves.as_slice()[owner as usize];
        let own: Range<u64> = owner.old_start.0..owner.old_end().0;
        let next = tables[index + 1..].iter().find(|&&(next, _)| next != base);
        let limit = next.map_or(u64::MAX, |&(next, _)| next);
        let Some(NewAddress(new_base)) = pair.mapped(Address(base)) else { continue };
        let word_at = |image: &MachView<'_>, place: u64| {
            let offset = image.offset_of(place, 4)?;
            Some((offset, displacement_at(image.bytes, offset)?))
        };
        for place in (base..limit).step_by(4) {
            let new_place = new_base.wrapping_add(place - base);
            let (Some((_, old)), Some((offset, new))) =
                (word_at(pair.old, place), word_at(pair.new, new_place))
            else {
                break;
            };
            let (target, found) = (Address(base.wrapping_add(old)), NewAddress(new_base.wrapping_add(new)));
            let follows = pair.is_text(target) && pair.follows(target, found);
            let is_own = own.contains(&target.0);
            // A word that leads out of the function may lie after the table; if it followed its target, it belongs to it.
            if !is_own && (old == new || !follows) {
                break;
            }
            words += 1;
            let title = format!("the word at {place:#x} of the table at {base:#x}");
            ledger.follows(pair, Check::JumpTables, offset, &title, target, found);
            if old != new {
                ledger.claims.add(offset as u64, 4);
            }
        }
    }
    ledger.findings.checked(Check::JumpTables, "words", words);
}

/// Symbols inside a function divide it into atoms. If it has computed jumps, these must move together, because tables
/// cannot be assigned to atoms.
///
/// # Errors
/// Damaged function starts.
pub(super) fn check_functions_with_tables(pair: MachPair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let mut starts = function_starts(pair.old)?;
    starts.sort_unstable();
    let atoms = pair.moves.as_slice();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(pair.old.text().range().end);
        let from = atoms.partition_point(|atom| atom.old_start.0 < *start);
        let to = atoms.partition_point(|atom| atom.old_start.0 < end);
        let group = atoms.get(from..to).unwrap_or_default();
        let moves_together = group.windows(2).all(|pair| pair[0].delta() == pair[1].delta());
        if moves_together {
            continue;
        }
        let jumps = |start: u64, size: u64| {
            code_at(pair.old, start, size).is_some_and(|(_, code)| match pair.old.processor {
                Processor::Aarch64 => dispatches(code, start).is_computed,
                Processor::X86_64 => x86_64::has_computed_jump(pair.old, code, start),
            })
        };
        if group.iter().any(|atom| jumps(atom.old_start.0, atom.size)) {
            ledger.findings.differs(Difference::new(
                Check::JumpTables,
                None,
                format!("the function at {start:#x}"),
                "its parts together: it has computed jumps",
                "parts at several places",
            ));
        }
    }
    Ok(())
}
