//! The unwind entries of copied fragments: one for each fragment whose original has one. At each copied instruction it says
//! what the original's entry says at the original.

use super::copies::Copies;
use super::instruction::{Pair, compare};
use super::pairing::Repeated;
use super::record::Copied;
use super::rows::{Row, RowReader, Rows};
use super::unwind::{UnwindTables, length, parent};
use crate::elf::unwind_walk::{UnwindEntry, unsigned_leb128};
use crate::report::{Check, Findings};
use reorder_base::address::{Address, NewAddress};

/// Bytes of the word after the last entry.
const TERMINATOR: usize = 4;

/// What is wrong with an entry.
type Verdict<T = ()> = Result<T, String>;

/// Checks the entries that only the new image has.
pub(super) fn check_rewritten(copies: &Copies<'_>, tables: &UnwindTables<'_>, findings: &mut Findings) {
    check_extent(tables, findings);
    let homes = Homes::of(&tables.known);
    let mut added: Vec<&UnwindEntry> = tables.added.iter().collect();
    added.sort_unstable_by_key(|entry| (entry.start, entry.offset));
    let mut added = added.into_iter().peekable();
    let processor = copies.old.processor;
    let mut sides = Sides {
        copies,
        tables,
        homes: &homes,
        old: RowReader::of(tables.before, processor),
        new: RowReader::of(tables.after, processor),
        last: None,
    };
    let mut instructions = 0;
    for copied in &copies.by_copy {
        while let Some(other) = added.next_if(|entry| entry.start < copied.copy.0) {
            findings.differs(tables.differs(other.offset, "an added unwind entry", "one of no copy"));
        }
        let found = added.next_if(|entry| entry.start == copied.copy.0);
        let offset = found.map_or(tables.known_end, |entry| entry.offset);
        match sides.check_fragment(copied, found) {
            Ok(count) => instructions += count,
            Err(what) => {
                let name = format!("the unwind entry of the copy at {}", copied.copy);
                findings.differs(tables.differs(offset, &name, &what));
            }
        }
    }
    for other in added {
        findings.differs(tables.differs(other.offset, "an added unwind entry", "one of no copy"));
    }
    findings.checked(Check::UnwindEntries, "instructions with the rows of their originals", instructions);
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

/// The old entries by address.
struct Homes<'known> {
    /// Ascending by start.
    by_start: Vec<&'known UnwindEntry>,
    /// The greatest end of each entry and all before it.
    reach: Vec<u64>,
}

impl<'known> Homes<'known> {
    fn of(known: &'known [UnwindEntry]) -> Self {
        let mut by_start: Vec<&UnwindEntry> = known.iter().filter(|entry| entry.size > 0).collect();
        by_start.sort_unstable_by_key(|entry| (entry.start, entry.offset));
        let ends = by_start.iter().scan(0, |reach, entry| {
            *reach = entry.start.saturating_add(entry.size).max(*reach);
            Some(*reach)
        });
        let reach = ends.collect();
        Self { by_start, reach }
    }

    /// The entry that covers all of `start..end`; `None` if none covers any of it. The error says why neither is so.
    fn covering(&self, start: Address, end: Address) -> Verdict<Option<&'known UnwindEntry>> {
        let after = self.by_start.partition_point(|entry| entry.start <= start.0);
        let begins_inside = self.by_start.get(after).is_some_and(|entry| entry.start < end.0);
        let before = after.checked_sub(2).and_then(|at| self.reach.get(at));
        let is_shared = before.is_some_and(|reach| *reach > start.0);
        let home = self.by_start[..after].last().filter(|entry| start.0 < entry.start + entry.size);
        match home {
            _ if begins_inside || is_shared => Err("several entries of the original".to_owned()),
            Some(home) if end.0 <= home.start + home.size => Ok(Some(home)),
            Some(_) => Err("an entry of a part of the original".to_owned()),
            None => Ok(None),
        }
    }
}

/// The entries of both images, side by side.
struct Sides<'a, 'data> {
    copies: &'a Copies<'data>,
    tables: &'a UnwindTables<'data>,
    homes: &'a Homes<'a>,
    old: RowReader<'data>,
    new: RowReader<'data>,
    /// The rows of the entry at this position, which the fragments of one function share.
    last: Option<(usize, Rows<'data>)>,
}

impl<'data> Sides<'_, 'data> {
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
            Some((offset, rows)) if offset == home.offset => rows,
            _ => self.old.rows(home.offset).map_err(broken)?,
        };
        let after = self.new.rows(found.offset).map_err(broken)?;
        self.check_augmentation(&before, home, found)?;
        let count = self.check_rows(copied, &before, &after)?;
        self.last = Some((home.offset, before));
        Ok(count)
    }

    /// Checks what lies between the range and the instructions of an entry: nothing but an exception table, which neither
    /// has.
    fn check_augmentation(&self, rows: &Rows<'_>, home: &UnwindEntry, found: &UnwindEntry) -> Verdict {
        const INDIRECT: u8 = 0x80;
        const OMITTED: u8 = 0xff;
        if !rows.has_augmentation {
            return Ok(());
        }
        let expected = match rows.table_encoding {
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
        match (size == Some(expected), home.exception_table, found.exception_table) {
            (true, None, None) => Ok(()),
            (false, ..) => Err("augmentation data of another size".to_owned()),
            _ => Err("an exception table".to_owned()),
        }
    }

    /// Checks each instruction of a fragment and the jump after it.
    fn check_rows(&mut self, copied: &Copied, before: &Rows<'data>, after: &Rows<'data>) -> Verdict<usize> {
        let map = self.copies.fragments().ok_or("no map of instructions")?;
        let repeated = map.of_fragment(copied);
        let mut last = None;
        for at in repeated {
            let pair = self.pair(at).ok_or_else(|| format!("one of other code at {}", at.copy))?;
            // Unwinders look up the byte before a return address, so the last byte of each instruction counts too.
            let places = [(0, 0), (pair.old_length - 1, pair.new_length - 1)];
            for (old, new) in places {
                let rows = (before.at(at.original.0 + old), after.at(at.copy.0 + new));
                check_row(rows, at.copy.plus(new))?;
            }
            last = Some((at.copy.plus(pair.new_length), pair));
        }
        let Some((jump, pair)) = last else { return Err("one of no instructions".to_owned()) };
        if jump < copied.copy_end() {
            self.check_jump(copied, (before, after), (jump, pair))?;
        }
        Ok(repeated.len())
    }

    fn pair(&self, at: &Repeated) -> Option<Pair> {
        let (old, new) = (self.copies.originals(at.original)?, self.copies.copied(at.copy)?);
        compare(self.copies.old.processor, (old, at.original), (new, at.copy))
    }

    /// Checks the jump after a copy, which stands for the start of the next instruction of the original. `pair` is the last
    /// instruction.
    fn check_jump(
        &mut self,
        copied: &Copied,
        (before, after): (&Rows<'data>, &Rows<'data>),
        (jump, pair): (NewAddress, Pair),
    ) -> Verdict {
        let next = copied.original_end();
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
            .or_else(|| before.at(next.0.wrapping_sub(1)));
        for place in [jump, copied.copy_end().plus(u64::MAX)] {
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
