//! Chooses those learned functions that fit everything else that is known about the image.
//!
//! They come from traces, so nothing of them is believed: each must be code as a whole, agree with all other functions about where
//! instructions begin, and be named by the image.

use std::collections::BTreeSet;
use std::ops::Range;

use fixedbitset::FixedBitSet;
use iced_x86::Instruction;

use super::is_apart;
use super::search::{Search, Stated, stated};
use crate::elf::file::{ElfFile, Linkage};
use reorder_base::address::Address;

impl Search<'_, '_> {
    /// Those of the `learned` ranges that fit the `found` and the `described` ones, which ascend and are disjoint, and each other;
    /// ascending.
    pub(super) fn fitting(
        &self,
        learned: &[Range<Address>],
        found: &[Range<Address>],
        described: &[Range<Address>],
    ) -> Vec<Range<Address>> {
        let is_possible = |range: &&Range<Address>| {
            let arena = self.code.arena_of(range.start).filter(|_| range.start < range.end);
            let is_whole = arena.is_some_and(|arena| range.end <= arena.end);
            is_whole && is_apart(described, range) && is_apart(found, range)
        };
        let mut candidates: Vec<Range<Address>> = learned.iter().filter(is_possible).cloned().collect();
        candidates.sort_unstable_by_key(|range| (range.start, range.end));
        // Disjoint before any is read, so that a hostile list costs no more than the code has bytes.
        let mut end = Address(0);
        candidates.retain(|range| {
            let is_apart = range.start >= end;
            end = if is_apart { range.end } else { end };
            is_apart
        });
        candidates.retain(|range| self.is_swept(range));
        if candidates.is_empty() {
            return candidates;
        }
        let (mut begins, mut inside) =
            (FixedBitSet::with_capacity(self.code.span()), FixedBitSet::with_capacity(self.code.span()));
        for range in candidates.iter().chain(found) {
            inside.insert_range(self.index(range.start)..self.index(range.end));
            self.instructions(range)
                .for_each(|instruction| begins.insert(self.index(Address(instruction.ip()))));
        }
        // The place in a range that an instruction uses as data, or branches to although no instruction begins there.
        let contradicted = |instruction: &Instruction| {
            let (place, is_read) = match stated(instruction)? {
                Stated::Target(place) => (place, false),
                Stated::Read(place) => (place, true),
                Stated::Address(_) => return None,
            };
            self.code.arena_of(Address(place))?;
            let index = self.index(Address(place));
            (inside.contains(index) && (is_read || !begins.contains(index))).then_some(Address(place))
        };
        let all = candidates.iter().chain(found).flat_map(|range| self.instructions(range));
        let all = all.chain(self.described_instructions(described));
        let contradictions: BTreeSet<Address> =
            all.filter_map(|instruction| contradicted(&instruction)).collect();
        candidates.retain(|range| {
            let is_contradicted = contradictions.range(range.start..range.end).next().is_some();
            !is_contradicted
                && self.instructions(range).all(|instruction| contradicted(&instruction).is_none())
        });
        candidates
    }
}

/// Starts of the `learned` ranges, which ascend, that a word of data names in an image at a fixed address, where no relocation
/// says which words are pointers.
pub(super) fn named_by_words(file: &ElfFile<'_>, learned: &[Range<Address>]) -> Vec<Address> {
    const WORD: u64 = 8;
    if learned.is_empty() || file.linkage != Linkage::FixedAddress {
        return Vec::new();
    }
    let data = file
        .sections
        .iter()
        .filter(|section| section.is_loaded() && section.has_bytes() && !section.is_executable());
    let words = data.flat_map(|section| {
        let first = (section.address.0.wrapping_neg() % WORD) as usize;
        let (words, _) = file.section_bytes(section).get(first..).unwrap_or_default().as_chunks::<8>();
        words.iter().map(|word| Address(u64::from_le_bytes(*word)))
    });
    words.filter(|word| learned.binary_search_by_key(word, |range| range.start).is_ok()).collect()
}
