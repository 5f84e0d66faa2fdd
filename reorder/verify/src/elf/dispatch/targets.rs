//! The targets of the words of a table.

use super::value::Word;
use crate::bytes::{displacement_at, u64_at};
use crate::elf::view::ElfView;
use reorder_base::address::Address;

/// Entries that are followed in a table of unknown length.
pub(super) const MAX_WORDS: u64 = 4096;

/// The targets of the words of a table, without duplicates. A table without a known end is read up to the next of `starts`.
pub(crate) fn targets(image: &ElfView<'_>, (anchor, word): (u64, Word), starts: &[Address]) -> Vec<u64> {
    let word = word.counted_from(anchor);
    let count = word.index.most.saturating_sub(word.index.least).saturating_add(1).min(MAX_WORDS);
    let least = if word.index.is_free() { 0 } else { word.index.least };
    let start = word.table.wrapping_add(least.wrapping_mul(u64::from(word.width)));
    // The label of a table may come after the first words that the index admits.
    let has_label = (start..start.saturating_add(count * u64::from(word.width))).contains(&anchor);
    let first = if has_label { anchor } else { start };
    let next = starts.get(starts.partition_point(|other| other.0 <= first)).copied();
    let next = next.filter(|_| word.index.is_free() || !word.index.is_compared);
    let limit = next.map_or(u64::MAX, |next| next.0);
    let mut found = Vec::new();
    for number in 0..count {
        let place = start.wrapping_add(number * u64::from(word.width));
        let within = (place < limit).then(|| word_at(image, place, word.width)).flatten();
        let Some(target) = within.map(|word| anchor.wrapping_add(word)) else { break };
        if !image.section_at(target).is_some_and(|section| section.is_code()) {
            break;
        }
        found.push(target);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The word of `width` bytes at an address outside of code, sign-extended.
fn word_at(image: &ElfView<'_>, place: u64, width: u8) -> Option<u64> {
    let section = image.section_at(place).filter(|section| !section.is_code())?;
    let bytes = section.at(place, u64::from(width))?;
    if width == 8 { u64_at(bytes, 0) } else { displacement_at(bytes, 0) }
}
