//! Headers and load commands: the same except for the identity and the positions in `__LINKEDIT`.
//!
//! Source: `mach-o/loader.h` of Apple's cctools, and what dyld checks before it maps an image.

use std::ops::Range;

use super::super::bytes::u32_at;
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::tables::entry_point;
use super::view::{MachView, Part, SegmentView, padded};
use reorder_base::error::{Error, Result};

const SEGMENT: u32 = 0x19;
const UUID: u32 = 0x1b;
const MAIN: u32 = 0x8000_0028;
const ENCRYPTION: [u32; 2] = [0x21, 0x2c];
const HEADER: usize = 32;

/// Checks that two images can be compared: they have the same commands, segments and sections.
///
/// # Errors
/// Says what differs.
pub(super) fn comparable(old: &MachView<'_>, new: &MachView<'_>) -> Result<()> {
    let commands = |image: &MachView<'_>| -> Vec<(u32, usize, usize)> {
        image.commands.iter().map(|command| (command.kind, command.offset, command.size)).collect()
    };
    if commands(old) != commands(new) {
        return Err(Error::verification("the load commands are not the same"));
    }
    if old.processor != new.processor || old.bytes[..HEADER] != new.bytes[..HEADER] {
        return Err(Error::verification("the headers are not the same"));
    }
    let is_same = old.sections.len() == new.sections.len()
        && old.segments.len() == new.segments.len()
        && old.sections.iter().zip(&new.sections).all(|(old, new)| {
            (old.segment, old.name) == (new.segment, new.name)
                && (may_change_size(old) || (old.address, old.size) == (new.address, new.size))
        });
    match is_same {
        true => Ok(()),
        false => Err(Error::verification("the sections are not the same")),
    }
}

/// `__unwind_info` is rebuilt and may be shorter, or longer where there is room.
fn may_change_size(section: &super::view::SectionView<'_>) -> bool {
    section.is(b"__TEXT", b"__unwind_info")
}

/// Checks that every load command is of a kind that names no function, or whose tables other checks compare.
///
/// # Errors
/// Kinds whose contents may depend on where functions are: initial registers, initialisers of old linkers, notes, new
/// tables in `__LINKEDIT`; tables of what refers to functions by their place; encrypted code; two starts of the program.
pub(super) fn check_kinds(image: &MachView<'_>) -> Result<()> {
    /// Set in commands that the loader must know to run the image.
    const REQUIRED: u32 = 0x8000_0000;
    const SPLIT_SEGMENTS: u32 = 0x1e;
    const OPTIMIZATION_HINTS: u32 = 0x2e;
    let mut has_entry = false;
    for command in &image.commands {
        let is_known = matches!(
            command.kind & !REQUIRED,
            // Symbols and libraries.
            0x2 | 0xb..=0xf | 0x12..=0x15 | 0x17 | 0x18
            // Segments, identity, search paths, signature, split segments, more libraries, encryption.
            | 0x19 | 0x1b..=0x21
            // Pointers, libraries, versions, function starts, environment, start, data in code.
            | 0x22..=0x29
            // Source version, requirements, encryption, options, hints, versions.
            | 0x2a..=0x30
            // Build version, exports, chained pointers.
            | 0x32..=0x34
        );
        let is_encrypted =
            ENCRYPTION.contains(&command.kind) && u32_at(image.bytes, command.offset + 16) != Some(0);
        let names_places = matches!(command.kind, SPLIT_SEGMENTS | OPTIMIZATION_HINTS)
            && !image.part(Part::Other(command.kind)).1.is_empty();
        let is_second = command.kind == MAIN && std::mem::replace(&mut has_entry, true);
        if !is_known || is_encrypted || names_places || is_second {
            let message = format!("a load command of the kind {:#x} that is not understood", command.kind);
            return Err(Error::malformed(command.offset as u64, message));
        }
    }
    Ok(())
}

/// Compares everything before the contents of the first section.
pub(super) fn check_commands(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    let mut free = Vec::new();
    for command in &pair.new.commands {
        match command.kind {
            UUID => free.push(command.offset + 8..command.offset + 24),
            // The loader uses the first.
            MAIN if entry_point(pair.new).is_some_and(|(field, _)| field == command.offset + 8) => {
                free.push(command.offset + 8..command.offset + 16);
            }
            // Memory size and file size of `__LINKEDIT`, whose contents are checked part by part.
            SEGMENT
                if pair.new.bytes.get(command.offset + 8..command.offset + 24)
                    == Some(&padded(b"__LINKEDIT")) =>
            {
                free.push(command.offset + 32..command.offset + 40);
                free.push(command.offset + 48..command.offset + 56);
            }
            _ => {}
        }
    }
    for part in &pair.new.parts {
        let end = match part.part {
            // The numbers of symbols do not change.
            Part::Symbols | Part::IndirectSymbols => part.field + 4,
            _ => part.field + 8,
        };
        free.push(part.field..end);
    }
    for section in pair.new.sections.iter().filter(|section| may_change_size(section)) {
        free.push(section.header + 32..section.header + 52);
    }
    let mut differing = None;
    for command in &pair.new.commands {
        for at in command.offset..command.offset + command.size {
            let is_same = pair.old.bytes[at] == pair.new.bytes[at];
            if !is_same && !free.iter().any(|range| range.contains(&at)) {
                differing.get_or_insert(at);
            }
        }
        ledger.claims.add(command.offset as u64, command.size as u64);
    }
    if let Some(at) = differing {
        let (expected, found) = (pair.old.bytes[at].into(), pair.new.bytes[at].into());
        let difference = Difference::number(
            Check::LoadCommands,
            at as u64,
            "a byte of the load commands",
            expected,
            found,
        );
        ledger.findings.differs(difference);
    }
    ledger.findings.checked(Check::LoadCommands, "commands", pair.new.commands.len());
    check_unwind_place(pair, ledger);
}

/// `__unwind_info` lies in its segment and overlaps no other section.
fn check_unwind_place(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    for (old, new) in pair.old.sections.iter().zip(&pair.new.sections) {
        if !may_change_size(old) {
            continue;
        }
        let (before, after) = (old.range(), new.range());
        let is_free = pair.new.sections.iter().all(|other| {
            other.header == new.header
                || other.size == 0
                || other.range().end <= after.start
                || after.end <= other.range().start
        });
        let commands_end = pair.new.commands.iter().map(|command| command.offset + command.size).max();
        let is_after_commands = new.offset >= commands_end.unwrap_or(0) as u64;
        let is_aligned = after.start % (1 << new.alignment.min(12)) == 0;
        if !(is_free && is_aligned && is_after_commands) {
            ledger.findings.differs(Difference::new(
                Check::LoadCommands,
                Some(new.header as u64),
                "the place of __unwind_info",
                "room that nothing else has",
                format!("{:#x} to {:#x}", after.start, after.end),
            ));
        }
        // The rest of the old table, and the free bytes before the new one.
        ledger.claims.add(new.offset, new.size);
        if before.start != after.start || before.end > after.end {
            let from = if before.start == after.start { new.offset + new.size } else { old.offset };
            let end = old.offset + old.size;
            let rest = pair.new.bytes.get(from as usize..end as usize).unwrap_or_default();
            let is_new = |at: u64| (new.offset..new.offset + new.size).contains(&at);
            let was = pair.old.bytes.get(from as usize..end as usize).unwrap_or_default();
            let is_clear = rest
                .iter()
                .zip(was)
                .enumerate()
                .all(|(index, (&byte, &was))| byte == 0 || byte == was || is_new(from + index as u64));
            if is_clear {
                ledger.claims.add(from, end.saturating_sub(from));
            }
        }
    }
}

/// The parts of `__LINKEDIT` lie inside it, in order and aligned, and cover it; parts without addresses are the same.
pub(super) fn check_link_edit(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    let mut differs = |offset: u64, place: &str, expected: &str, found: String| {
        ledger.findings.differs(Difference::new(Check::LinkEdit, Some(offset), place, expected, found));
    };
    let (Some(old), Some(new)) = (pair.old.segment(b"__LINKEDIT"), pair.new.segment(b"__LINKEDIT")) else {
        let has_parts = pair.new.parts.iter().any(|part| part.size > 0);
        if has_parts || pair.old.segment(b"__LINKEDIT").is_some() {
            differs(0, "the segment __LINKEDIT", "one", "none".to_owned());
        }
        return;
    };
    let segment = new.offset as usize..(new.offset + new.file_size) as usize;
    let is_last = |image: &MachView<'_>, end: u64| image.bytes.len() as u64 == end;
    if is_last(pair.old, old.offset + old.file_size) && !is_last(pair.new, new.offset + new.file_size) {
        let found = format!("{} bytes after it", pair.new.bytes.len() - segment.end);
        differs(segment.end as u64, "the end of the file", "the end of __LINKEDIT", found);
    }
    /// The loader's page size, by processor.
    const PAGES: [u64; 3] = [1, 0x1000, 0x4000];
    let is_rounded = |page: u64| new.memory_size == new.file_size.next_multiple_of(page);
    if new.memory_size != old.memory_size && !PAGES.into_iter().any(is_rounded) {
        let found = new.memory_size.to_string();
        differs(
            new.command as u64,
            "the size of __LINKEDIT in memory",
            "that of the file, in whole pages",
            found,
        );
    }
    for (old, new) in pair.old.parts.iter().zip(&pair.new.parts) {
        let is_inside = (segment.start..=segment.end).contains(&new.offset);
        if new.size == 0 && !is_inside && ![0, old.offset].contains(&new.offset) {
            differs(
                new.field as u64,
                &format!("the place of {:?}", new.part),
                "none",
                new.offset.to_string(),
            );
        }
    }
    let mut parts: Vec<_> = pair.new.parts.iter().filter(|part| part.size > 0).collect();
    parts.sort_by_key(|part| part.offset);
    let mut end = segment.start;
    for part in parts {
        let alignment = match part.part {
            Part::Strings => 1,
            Part::IndirectSymbols => 4,
            Part::Signature => 16,
            _ => 8,
        };
        // Some linkers do not align the tables either.
        let was_aligned = pair.old.part(part.part).0.is_multiple_of(alignment);
        if part.offset < end || part.offset + part.size > segment.end {
            differs(
                part.offset as u64,
                &format!("{:?}", part.part),
                "a place of its own in __LINKEDIT",
                "none".into(),
            );
        } else if part.offset % alignment != 0 && was_aligned {
            differs(part.offset as u64, &format!("{:?}", part.part), "an aligned place", "another".into());
        }
        end = end.max(part.offset + part.size);
    }
    if between_parts(pair.old, old) != between_parts(pair.new, new) {
        differs(
            segment.start as u64,
            "what lies between the parts of __LINKEDIT",
            "the same bytes, or zeros",
            "others".into(),
        );
    }
    for (old, new) in pair.old.parts.iter().zip(&pair.new.parts) {
        let is_constant = matches!(
            new.part,
            Part::Rebase
                | Part::Bind
                | Part::WeakBind
                | Part::LazyBind
                | Part::Fixups
                | Part::IndirectSymbols
                | Part::Strings
                | Part::Other(_)
        );
        if is_constant && !same_but_for_padding(pair.old.part(old.part).1, pair.new.part(new.part).1) {
            differs(new.offset as u64, &format!("{:?}", new.part), "the same bytes", "others".into());
        }
    }
    ledger.claims.add(new.offset, new.file_size);
    ledger.findings.checked(Check::LinkEdit, "parts", pair.new.parts.len());
}

/// The bytes of `__LINKEDIT` that belong to no part, in file order, without zeros at both ends of each run.
fn between_parts<'data>(image: &MachView<'data>, segment: &SegmentView) -> Vec<&'data [u8]> {
    let segment = segment.offset as usize..(segment.offset + segment.file_size) as usize;
    let mut parts: Vec<Range<usize>> =
        image.parts.iter().map(|part| part.offset..part.offset.saturating_add(part.size)).collect();
    parts.retain(|part| !part.is_empty());
    parts.sort_by_key(|part| part.start);
    parts.push(segment.end..segment.end);
    let mut found = Vec::new();
    let mut end = segment.start;
    for part in parts {
        let bytes = image.bytes.get(end..part.start.min(segment.end)).unwrap_or_default();
        let is_set = |&byte: &u8| byte != 0;
        if let (Some(first), Some(last)) = (bytes.iter().position(is_set), bytes.iter().rposition(is_set)) {
            found.push(&bytes[first..=last]);
        }
        end = end.max(part.end);
    }
    found
}

/// Whether two tables are the same apart from zeros at their ends.
fn same_but_for_padding(old: &[u8], new: &[u8]) -> bool {
    let common = old.len().min(new.len());
    let is_zero = |rest: &[u8]| rest.iter().all(|&byte| byte == 0);
    old[..common] == new[..common] && is_zero(&old[common..]) && is_zero(&new[common..])
}
