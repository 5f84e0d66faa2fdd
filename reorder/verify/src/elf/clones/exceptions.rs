//! Exceptions that pass the copy of a fragment: they are caught where, and by what, they are caught in the original.

use std::ops::Range;

use super::copies::Copies;
use super::exception_lookup::{ExceptionTable, Found};
use super::instruction::Pair;
use super::pairing::Repeated;
use crate::elf::unwind_walk::UnwindEntry;
use reorder_base::address::{Address, NewAddress};

/// Reads the exception tables of both images.
pub(super) struct ExceptionTables<'a> {
    copies: &'a Copies<'a>,
    /// Call sites that may still be read: functions do not share tables, so no image has more of them than bytes.
    budgets: [usize; 2],
    /// Addresses of the tables of copies.
    pub(super) read: Vec<Range<u64>>,
}

impl<'a> ExceptionTables<'a> {
    /// None of them read yet.
    pub(super) fn of(copies: &'a Copies<'a>) -> Self {
        Self { copies, budgets: [copies.old.bytes.len(), copies.new.bytes.len()], read: Vec::new() }
    }

    /// The table of an original, if its entry names one; the outer `None` when it is not understood.
    pub(super) fn original(&mut self, home: &UnwindEntry) -> Option<Option<ExceptionTable<'a>>> {
        let Some(table) = home.exception_table else { return Some(None) };
        ExceptionTable::read(self.copies.old, table, home.start, &mut self.budgets[0]).map(Some)
    }

    /// The table of a copy, if its entry names one; the outer `None` when it is not understood.
    pub(super) fn copy(&mut self, found: &UnwindEntry) -> Option<Option<ExceptionTable<'a>>> {
        let Some(table) = found.exception_table else { return Some(None) };
        let table = ExceptionTable::read(self.copies.new, table, found.start, &mut self.budgets[1])?;
        self.read.push(table.extent());
        Some(Some(table))
    }
}

/// Whether the table of the copy whose instructions are at `code` says nothing that the original's does not: unwinders read no
/// more of it than its call sites need, but what they may read is right.
pub(super) fn adds_nothing(
    (old, new): (&Option<ExceptionTable<'_>>, &Option<ExceptionTable<'_>>),
    code: &Range<NewAddress>,
) -> bool {
    let Some(new) = new else { return true };
    let is_inside =
        new.described().is_none_or(|range| code.start.0 <= range.start && range.end <= code.end.0);
    is_inside && old.as_ref().is_none_or(|old| new.repeats(old))
}

/// Whether an exception that passes the copy of an instruction goes on as if it passed the original.
pub(super) fn is_caught_alike(
    copies: &Copies<'_>,
    (old, new): (&Option<ExceptionTable<'_>>, &Option<ExceptionTable<'_>>),
    (at, pair): (Repeated, Pair),
) -> bool {
    if old.is_none() && new.is_none() {
        return true;
    }
    if let (Some(old), Some(new)) = (old, new)
        && old.action_at(at.original.0) != new.action_at(at.copy.0)
    {
        return false;
    }
    let found = |table: &Option<ExceptionTable<'_>>, place: u64| match table {
        None => Some(Found::NoPad),
        Some(table) => table.at(place),
    };
    // A signal is looked up at the instruction itself, a call at its last byte.
    let places = [(0, 0), (pair.old_length - 1, pair.new_length - 1)];
    let guarded = pair.guard.map_or(0..0, |guard| 1..guard.length + 1).map(|after| (0, after));
    places.into_iter().chain(guarded).all(|(before, after)| {
        match (found(old, at.original.0 + before), found(new, at.copy.0 + after)) {
            (Some(Found::Pad(pad, filters)), Some(Found::Pad(other, others))) => {
                filters == others && copies.is_same_code(Address(pad), NewAddress(other))
            }
            // Nothing is thrown here: compilers list the places that can throw.
            (Some(Found::Missing), Some(Found::NoPad)) => new.is_none() && !pair.is_call,
            (before, after) => before.is_some() && before == after,
        }
    })
}
