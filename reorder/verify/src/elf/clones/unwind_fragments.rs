//! The unwind entries of copied fragments: one for each fragment whose original has one. At each copied instruction it says
//! what the original's entry says at the original.

use std::ops::Range;

use super::copies::Copies;
use super::exception_lookup::ExceptionTable;
use super::exceptions::{ExceptionTables, adds_nothing, is_caught_alike};
use super::fragments::{TailJump, tail};
use super::instruction::{Pair, compare_guarded};
use super::pairing::Repeated;
use super::record::Copied;
use super::rows::{Row, RowReader, Rows};
use super::unwind::{UnwindTables, length, parent};
use super::unwind_homes::Homes;
use crate::bytes::unsigned_leb128;
use crate::elf::unwind_walk::{INDIRECT, OMITTED, UnwindEntry};
use crate::report::{Check, Findings};
use reorder_base::address::{Address, NewAddress};

/// Bytes of the word after the last entry.
const TERMINATOR: usize = 4;

/// What is wrong with an entry.
type Verdict<T = ()> = Result<T, String>;

/// Checks the entries that only the new image has; gives the addresses of their exception tables.
pub(super) fn check_rewritten(
    copies: &Copies<'_>,
    tables: &UnwindTables<'_>,
    findings: &mut Findings,
) -> Vec<Range<u64>> {
    check_extent(tables, findings);
    let homes = Homes::of(&tables.known);
    let mut added: Vec<&UnwindEntry> = tables.added.iter().collect();
    added.sort_unstable_by_key(|entry| (entry.start, entry.offset));
    let is_start = |entry: &UnwindEntry| {
        let start = NewAddress(entry.start);
        copies.by_copy.binary_search_by_key(&start, |copied| copied.copy).is_ok()
    };
    for (number, entry) in added.iter().enumerate() {
        let is_second = number > 0 && added[number - 1].start == entry.start;
        if is_second || !is_start(entry) {
            findings.differs(tables.differs(entry.offset, "an added unwind entry", "one of no copy"));
        }
    }
    let processor = copies.old.processor;
    let mut sides = Sides {
        copies,
        tables,
        homes: &homes,
        old: RowReader::of(tables.before, processor),
        new: RowReader::of(tables.after, processor),
        exceptions: ExceptionTables::of(copies),
        last: None,
    };
    // The fragments of a function one after the other: they share its entry.
    let mut by_original: Vec<&Copied> = copies.by_copy.iter().collect();
    by_original.sort_unstable_by_key(|copied| copied.original);
    let mut instructions = 0;
    for copied in by_original {
        let found = added.binary_search_by_key(&copied.copy.0, |entry| entry.start).ok().map(|at| added[at]);
        let offset = found.map_or(tables.known_end, |entry| entry.offset);
        match sides.check_fragment(copied, found) {
            Ok(count) => instructions += count,
            Err(what) => {
                let name = format!("the unwind entry of the copy at {}", copied.copy);
                findings.differs(tables.differs(offset, &name, &what));
            }
        }
    }
    findings.checked(Check::UnwindEntries, "instructions with the rows of their originals", instructions);
    sides.exceptions.read
}

/// Checks that the added entries follow the old ones, and that only zeros follow them: a terminator, if there was one.
fn check_extent(tables: &UnwindTables<'_>, findings: &mut Findings) {
    let mut end = tables.known_end;
    for entry in &tables.added {
        if entry.offset != end {
            findings.differs(tables.differs(end, "bytes before an unwind entry", "no entry"));
        }
        end = entry.offset + length(tables.after.bytes, entry.offset);
    }
    let rest = tables.after.bytes.get(end..).unwrap_or_default();
    if let Some(at) = rest.iter().position(|byte| *byte != 0) {
        findings.differs(tables.differs(end + at, "the end of the unwind entries", "another byte"));
    }
    let was_terminated = tables.before.bytes.len().saturating_sub(tables.known_end) >= TERMINATOR;
    if was_terminated && rest.len() < TERMINATOR {
        findings.differs(tables.differs(end, "the end of the unwind entries", "no terminator"));
    }
}

/// The entries of both images, side by side.
struct Sides<'a> {
    copies: &'a Copies<'a>,
    tables: &'a UnwindTables<'a>,
    homes: &'a Homes<'a>,
    old: RowReader<'a>,
    new: RowReader<'a>,
    exceptions: ExceptionTables<'a>,
    /// The last entry of an original, by its position: its fragments follow each other.
    last: Option<(usize, Evaluated<'a>)>,
}

/// The entry of an original.
struct Evaluated<'a> {
    rows: Rows<'a>,
    table: Option<ExceptionTable<'a>>,
}

impl<'a> Sides<'a> {
    /// Checks the entry of one fragment; gives the number of instructions. The error says what is wrong.
    fn check_fragment(&mut self, copied: &Copied, found: Option<&UnwindEntry>) -> Verdict<usize> {
        let home = self.homes.covering(copied.original, copied.original_end())?;
        let (home, found) = match (home, found) {
            (None, None) => return Ok(0),
            (Some(home), Some(found)) => (home, found),
            (None, Some(_)) => return Err("one, although the original has none".to_owned()),
            (Some(_), None) => return Err("none".to_owned()),
        };
        if found.size != copied.copy_size {
            return Err(format!("one for {} bytes of {}", found.size, copied.copy_size));
        }
        if parent(self.tables.before.bytes, home) != parent(self.tables.after.bytes, found) {
            return Err("another parent".to_owned());
        }
        let broken = |error: gimli::Error| format!("instructions that cannot be evaluated: {error}");
        let before = match self.last.take() {
            Some((offset, evaluated)) if offset == home.offset => evaluated,
            _ => Evaluated {
                rows: self.old.rows(home.offset).map_err(broken)?,
                table: self.exceptions.original(home).ok_or("an exception table of an unknown form")?,
            },
        };
        let after = Evaluated {
            rows: self.new.rows(found.offset).map_err(broken)?,
            table: self.exceptions.copy(found).ok_or("an exception table of an unknown form")?,
        };
        self.check_augmentation((&before, home), (&after, found))?;
        let count = self.check_instructions(copied, &before, &after)?;
        self.last = Some((home.offset, before));
        Ok(count)
    }

    /// Checks what lies between the range and the instructions of an entry: nothing but the address of an exception table.
    fn check_augmentation(
        &self,
        (before, home): (&Evaluated<'_>, &UnwindEntry),
        (after, found): (&Evaluated<'_>, &UnwindEntry),
    ) -> Verdict {
        let has_table = home.exception_table.or(found.exception_table).is_some();
        if has_table && (before.rows.has_ambiguous_arguments || after.rows.has_ambiguous_arguments) {
            return Err("sizes of arguments on which unwinders disagree".to_owned());
        }
        if !before.rows.has_augmentation {
            return Ok(());
        }
        let expected = match before.rows.table_encoding {
            None | Some(OMITTED) => 0,
            Some(encoding) if encoding & INDIRECT != 0 => {
                return Err("an indirect exception table".to_owned());
            }
            Some(encoding) => match encoding & 0xf {
                0x03 | 0x0b => 4,
                _ => 8,
            },
        };
        let size = unsigned_leb128(self.tables.after.bytes, &mut (found.start_field + 8));
        match size == Some(expected) {
            true => Ok(()),
            false => Err("augmentation data of another size".to_owned()),
        }
    }

    /// Checks each instruction of a fragment and the jump after it; gives their number.
    fn check_instructions(
        &mut self,
        copied: &Copied,
        before: &Evaluated<'a>,
        after: &Evaluated<'a>,
    ) -> Verdict<usize> {
        let map = self.copies.fragments().ok_or("no map of instructions")?;
        let repeated = map.of_fragment(copied);
        let mut last = None;
        for at in repeated {
            let pair = self.pair(at).ok_or_else(|| format!("one of other code at {}", at.copy))?;
            // Unwinders look up the byte before a return address, so the last byte of each instruction counts too.
            let places = [(0, 0), (pair.old_length - 1, pair.new_length - 1)];
            // A guard stands for the start of the instruction after it.
            let guarded = pair.guard.map_or(0..0, |guard| 1..guard.length + 1).map(|new| (0, new));
            for (old, new) in places.into_iter().chain(guarded) {
                let rows = (before.rows.at(at.original.0 + old), after.rows.at(at.copy.0 + new));
                check_row(rows, at.copy.plus(new))?;
            }
            if !is_caught_alike(self.copies, (&before.table, &after.table), (*at, pair)) {
                return Err(format!("other exceptions are caught at {}", at.copy));
            }
            last = Some((at.copy.plus(pair.new_length), pair));
        }
        let Some((jump, pair)) = last else { return Err("one of no instructions".to_owned()) };
        if !adds_nothing((&before.table, &after.table), &(copied.copy..jump)) {
            return Err("an exception table that says more than the original's".to_owned());
        }
        let jumps = tail(self.copies, jump, copied.copy_end()).unwrap_or_default();
        for (number, jump) in jumps.iter().enumerate() {
            let end = jumps.get(number + 1).map_or(copied.copy_end(), |next| next.place);
            self.check_jump((&before.rows, &after.rows), (*jump, end), (copied, pair))?;
        }
        Ok(repeated.len())
    }

    fn pair(&self, at: &Repeated) -> Option<Pair> {
        let (old, new) = (self.copies.originals(at.original)?, self.copies.copied(at.copy)?);
        compare_guarded(self.copies.old.processor, (old, at.original), (new, at.copy))
    }

    /// Checks a jump after a copy, which stands for the start of the instruction of the original that it leads to. `end` is
    /// its own; `pair` is the last instruction of the copy.
    fn check_jump(
        &mut self,
        (before, after): (&Rows<'a>, &Rows<'a>),
        (jump, end): (TailJump, NewAddress),
        (copied, pair): (&Copied, Pair),
    ) -> Verdict {
        let next = self.copies.original(jump.target).unwrap_or(Address(jump.target.0));
        let is_expected = pair.continues && !pair.is_call && !pair.is_trap;
        let other = match before.at(next.0) {
            None if is_expected => self.homes.covering(next, next.plus(1))?,
            _ => None,
        };
        let other = other.map(|entry| self.old.rows(entry.offset)).transpose();
        let other = other.map_err(|error| format!("the next entry cannot be evaluated: {error}"))?;
        // After a call or trap at the end of its function, control arrives here only if the original would leave it.
        let row = before
            .at(next.0)
            .or_else(|| other.as_ref()?.at(next.0))
            .or_else(|| before.at(copied.original_end().0.wrapping_sub(1)));
        for place in [jump.place, end.plus(u64::MAX)] {
            check_row((row, after.at(place.0)), place)?;
        }
        Ok(())
    }
}

/// Checks that both rows say the same.
fn check_row((before, after): (Option<&Row<'_>>, Option<&Row<'_>>), place: NewAddress) -> Verdict {
    match (before, after) {
        (Some(before), Some(after)) if before == after && !before.is_placed => Ok(()),
        (Some(before), Some(_)) if before.is_placed => {
            Err(format!("a rule at {place} that uses the place of its instruction"))
        }
        _ => Err(format!("other rules at {place}")),
    }
}
