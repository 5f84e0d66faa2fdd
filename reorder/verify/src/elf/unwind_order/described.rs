//! The unwind entries of one image, with all that does not depend on where they and their functions are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::bytes::u32_at;
use crate::elf::unwind_walk::UnwindEntries;
use crate::elf::view::ElfView;
use reorder_base::error::{Error, Result};

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Described {
    /// Its bytes in the section.
    pub(super) record: Range<usize>,
    /// The number of the run that it is in: entries that follow each other without anything between them.
    pub(super) run: u32,
    /// First address of its function.
    pub(super) start: u64,
    /// Bytes of its function.
    pub(super) size: u64,
    /// Position in the record of the distance to the exception table, if it has one.
    pub(super) table_field: Option<usize>,
    /// A digest of all of this but places: parent, instructions, exception table.
    pub(super) digest: u64,
}

/// The entries of `image` in section order.
///
/// # Errors
/// A section that cannot be read, or a distance to an exception table that is not four bytes.
pub(super) fn described(image: &ElfView<'_>) -> Result<Vec<Described>> {
    let Some(section) = image.section(b".eh_frame") else { return Ok(Vec::new()) };
    let mut entries: Vec<Described> = Vec::new();
    for entry in UnwindEntries::of(section) {
        let entry = entry?;
        let broken =
            || Error::malformed(section.offset.wrapping_add(entry.offset as u64), "a truncated unwind entry");
        let word = |at: usize| u32_at(section.bytes, at).map(|word| word as usize).ok_or_else(broken);
        let start = entry.offset;
        let end = start + 4 + word(start)?;
        let parent = (start + 4).wrapping_sub(word(start + 4)?);
        let table_field = match entry.relative[0] {
            Some((field, 4)) => Some(field - start),
            Some(_) => return Err(broken()),
            None => None,
        };
        let mut rest = section.bytes.get(start + 12..end).ok_or_else(broken)?.to_vec();
        if let Some(field) = table_field {
            rest.get_mut(field - 12..field - 8).ok_or_else(broken)?.fill(0);
        }
        let run = entries.last().map_or(0, |last| last.run + u32::from(last.record.end != start));
        let mut digest = DefaultHasher::new();
        (run, parent, entry.exception_table, rest).hash(&mut digest);
        entries.push(Described {
            record: start..end,
            run,
            start: entry.start,
            size: entry.size,
            table_field,
            digest: digest.finish(),
        });
    }
    Ok(entries)
}
