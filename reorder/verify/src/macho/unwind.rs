//! `__unwind_info`: an unwinder finds the same for every function at its new place.
//!
//! Rows may be merged, split and arranged in other pages; what counts is what an unwinder finds for an address.
//! Source: `mach-o/compact_unwind_encoding.h` of Apple's libunwind, and how its `UnwindCursor` looks addresses up.

use super::super::bytes::{u16_at, u32_at};
use super::super::processor::Processor;
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::view::MachView;
use reorder_base::error::{Error, Result};

/// The unwind information from one address up to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// First address.
    pub(super) start: u64,
    /// Without the number of the personality.
    pub(super) encoding: u32,
    /// Image offset of the pointer to the personality; 0 for none.
    pub(super) personality: u32,
    /// Address of the exception table; 0 for none.
    pub(super) exceptions: u64,
}

impl Row {
    fn none(start: u64) -> Self {
        Self { start, encoding: 0, personality: 0, exceptions: 0 }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        (self.encoding, self.personality, self.exceptions)
            == (other.encoding, other.personality, other.exceptions)
    }

    /// Whether unwinding depends on the start of the row, not only on its contents.
    fn needs_start(&self, processor: Processor) -> bool {
        const HAS_EXCEPTIONS: u32 = 0x4000_0000;
        const MODE: u32 = 0x0f00_0000;
        const STACK_INDIRECT: u32 = 0x0300_0000;
        self.encoding & HAS_EXCEPTIONS != 0
            || processor == Processor::X86_64 && self.encoding & MODE == STACK_INDIRECT
    }

    /// The position of the entry in `__eh_frame` that the row stands for.
    pub(super) fn frame_entry(&self, processor: Processor) -> Option<u32> {
        let mode = if processor == Processor::Aarch64 { 0x0300_0000 } else { 0x0400_0000 };
        (self.encoding & 0x0f00_0000 == mode).then_some(self.encoding & 0x00ff_ffff)
    }
}

/// The table of an image, in address order.
#[derive(Clone, Debug, Default)]
pub(super) struct UnwindTable {
    /// A row ends where the next one starts; the last says nothing.
    pub(super) rows: Vec<Row>,
}

impl UnwindTable {
    /// Reads `__TEXT,__unwind_info`; empty when there is none.
    ///
    /// # Errors
    /// A table that is damaged or not sorted as unwinders expect it.
    pub(super) fn read(image: &MachView<'_>) -> Result<Self> {
        let Some(section) =
            image.section(b"__TEXT", b"__unwind_info").filter(|section| !section.bytes.is_empty())
        else {
            return Ok(Self::default());
        };
        let reader = Reader { bytes: section.bytes, base: image.base() };
        reader.table().map_err(|(at, what)| {
            Error::malformed(section.offset + at as u64, format!("__unwind_info: {what}"))
        })
    }

    /// The row that covers `address`.
    pub(super) fn at(&self, address: u64) -> Row {
        let after = self.rows.partition_point(|row| row.start <= address);
        after.checked_sub(1).map_or(Row::none(0), |index| self.rows[index])
    }

    /// The rows that start after `start` and before `end`.
    fn inside(&self, start: u64, end: u64) -> &[Row] {
        let from = self.rows.partition_point(|row| row.start <= start);
        let to = self.rows.partition_point(|row| row.start < end);
        self.rows.get(from..to).unwrap_or_default()
    }
}

/// Position in the section, and what is wrong there.
type Wrong = (usize, &'static str);
type Read<T> = std::result::Result<T, Wrong>;

struct Reader<'data> {
    bytes: &'data [u8],
    base: u64,
}

impl Reader<'_> {
    fn word(&self, at: usize) -> Read<u32> {
        u32_at(self.bytes, at).ok_or((at, "cut off"))
    }

    fn short(&self, at: usize) -> Read<usize> {
        u16_at(self.bytes, at).map(usize::from).ok_or((at, "cut off"))
    }

    fn table(&self) -> Read<UnwindTable> {
        let (common, common_count) = (self.word(4)? as usize, self.word(8)?);
        let (personalities, personality_count) = (self.word(12)? as usize, self.word(16)?);
        let (index, index_count) = (self.word(20)? as usize, self.word(24)? as usize);
        if self.word(0)? != 1 {
            return Err((0, "an unknown version"));
        }
        let Some(pages) = index_count.checked_sub(1) else { return Ok(UnwindTable::default()) };
        if index_count > self.bytes.len() / 12 {
            return Err((24, "more pages than there is room for"));
        }
        let mut rows: Vec<Row> = Vec::new();
        let mut push = |offset: u32, encoding: u32, at: usize, limits: (u32, u32)| {
            // A row that says nothing may stand where all rows end.
            let is_end = offset == limits.1 && encoding == 0;
            if offset < limits.0 || offset >= limits.1 && !is_end {
                return Err((at, "a row outside of its page's addresses"));
            }
            let start = self.base.wrapping_add(u64::from(offset));
            let number = encoding >> 28 & 3;
            let personality = match number {
                0 => 0,
                _ if number > personality_count => return Err((at, "an unknown personality")),
                _ => self.word(personalities + (number as usize - 1) * 4)?,
            };
            let row = Row { start, encoding: encoding & 0xcfff_ffff, personality, exceptions: 0 };
            match rows.last_mut() {
                Some(last) if last.start > start => return Err((at, "rows that are not sorted")),
                // Unwinders find the last of several.
                Some(last) if last.start == start => *last = row,
                _ => rows.push(row),
            }
            Ok(())
        };
        // Bounds the rows of all pages; a damaged index could name one page again and again.
        let mut budget = self.bytes.len() / 4 + 1;
        for page in 0..pages {
            let entry = index + page * 12;
            let (first, next) = (self.word(entry)?, self.word(entry + 12)?);
            let start = self.word(entry + 4)? as usize;
            if next < first {
                return Err((entry, "pages that are not sorted"));
            }
            if start == 0 {
                continue;
            }
            let (entries, count) = (start + self.short(start + 4)?, self.short(start + 6)?);
            budget = budget.checked_sub(count).ok_or((start, "pages that overlap"))?;
            match self.word(start)? {
                2 => {
                    for at in (0..count).map(|entry| entries + entry * 8) {
                        push(self.word(at)?, self.word(at + 4)?, at, (first, next))?;
                    }
                }
                3 => {
                    let (local, local_count) =
                        (start + self.short(start + 8)?, self.short(start + 10)? as u32);
                    for at in (0..count).map(|entry| entries + entry * 4) {
                        let word = self.word(at)?;
                        let number = word >> 24;
                        let encoding = match number.checked_sub(common_count) {
                            None => self.word(common + number as usize * 4)?,
                            Some(number) if number < local_count => self.word(local + number as usize * 4)?,
                            Some(_) => return Err((at, "an unknown encoding")),
                        };
                        let offset =
                            first.checked_add(word & 0x00ff_ffff).ok_or((at, "an offset too large"))?;
                        push(offset, encoding, at, (first, next))?;
                    }
                }
                _ => return Err((start, "an unknown kind of page")),
            }
        }
        self.add_exceptions(index, pages, &mut rows)?;
        let end = self.word(index + pages * 12)?;
        rows.push(Row::none(self.base.wrapping_add(u64::from(end))));
        Ok(UnwindTable { rows })
    }

    /// The index of exception tables runs from where the first page's part starts to where the sentinel's does.
    fn add_exceptions(&self, index: usize, pages: usize, rows: &mut [Row]) -> Read<()> {
        let (from, to) = (self.word(index + 8)? as usize, self.word(index + pages * 12 + 8)? as usize);
        if to > self.bytes.len() || from > to || (to - from) % 8 != 0 {
            return Err((index + 8, "a damaged index of exception tables"));
        }
        let mut last = 0;
        for at in (from..to).step_by(8) {
            let (function, table) = (self.word(at)?, self.word(at + 4)?);
            if function < last {
                return Err((at, "an index of exception tables that is not sorted"));
            }
            last = function;
            let start = self.base.wrapping_add(u64::from(function));
            if let Ok(row) = rows.binary_search_by_key(&start, |row| row.start) {
                rows[row].exceptions = self.base.wrapping_add(u64::from(table));
            }
        }
        Ok(())
    }
}

/// The table says the same for every atom, and for everything outside of `__text`.
///
/// # Errors
/// A damaged table of the new image.
pub(super) fn check_unwind(pair: MachPair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let (old, new) = (UnwindTable::read(pair.old)?, UnwindTable::read(pair.new)?);
    let offset = pair.new.section(b"__TEXT", b"__unwind_info").map(|section| section.offset);
    let mut differs = |address: u64, what: &str| {
        ledger.findings.differs(Difference::new(
            Check::UnwindEntries,
            offset,
            format!("the unwind row of {address:#x}"),
            what,
            "another",
        ));
    };
    let processor = pair.old.processor;
    // An old table may say something of a part of an atom only at its end, where `__text` ends.
    let mut compare = |start: u64, end: u64, place: u64| {
        let (before, after) = (old.at(start), new.at(place));
        let needs_start = before.needs_start(processor);
        if !before.says_the_same(&after) {
            differs(start, "what the old image says");
        } else if needs_start && (before.start == start) != (after.start == place) {
            differs(start, "a row that starts with the function");
        } else if needs_start
            && before.start != start
            && before.start.wrapping_sub(start) != after.start.wrapping_sub(place)
        {
            differs(start, "a row that starts where it did");
        }
        let before_inside = old.inside(start, end).iter().filter(|row| !row.says_the_same(&before));
        let after_inside = new.inside(place, place.wrapping_add(end - start));
        let after_inside = after_inside.iter().filter(|row| !row.says_the_same(&after));
        let changes = |row: &Row, origin: u64| (row.start.wrapping_sub(origin), row.encoding);
        let is_same =
            before_inside.map(|row| changes(row, start)).eq(after_inside.map(|row| changes(row, place)));
        if !is_same {
            differs(start, "one row for the whole function");
        }
    };
    for atom in pair.moves.iter() {
        compare(atom.old_start.0, atom.old_end().0, atom.new_start.0);
    }
    let text = pair.old.text().range();
    let outside: Vec<&Row> = old.rows.iter().filter(|row| !text.contains(&row.start)).collect();
    for row in &outside {
        let next = old.inside(row.start, u64::MAX).first().map_or(row.start, |next| next.start);
        let end = if row.start < text.start { next.min(text.start) } else { next };
        compare(row.start, end.max(row.start), row.start);
    }
    if !old.rows.is_empty() || !new.rows.is_empty() {
        compare(text.end, text.end, text.end);
        let first = pair.old.base();
        let before_all = old.rows.first().map_or(first, |row| row.start).min(text.start);
        compare(first, before_all.max(first), first);
    }
    ledger.findings.checked(Check::UnwindEntries, "rows", old.rows.len());
    Ok(())
}
