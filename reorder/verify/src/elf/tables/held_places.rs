//! Places inside functions that code or data of a program at a fixed address holds, besides the entries of known tables: a jump
//! to a place that the function did not compute may lead there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions};

use crate::elf::absolute::section_constants;
use crate::elf::clones::lea_targets;
use crate::elf::dispatch::Word;
use crate::elf::view::ElfView;
use crate::elf::whole_functions::WholeFunctions;
use crate::moves::AddressMoves;
use reorder_base::address::Address;

/// Such places, by the indices of their functions.
pub(super) struct HeldPlaces<'a> {
    image: &'a ElfView<'a>,
    functions: &'a AddressMoves,
    held: BTreeMap<u32, BTreeSet<u64>>,
}

impl<'a> HeldPlaces<'a> {
    /// Reads all code and data; `tables` are known, so that jumps through them are followed.
    pub(super) fn of(
        image: &'a ElfView<'a>,
        functions: &'a AddressMoves,
        tables: impl Iterator<Item = Word>,
    ) -> Self {
        let range = |word: Word| {
            let at = |number: u64| word.table.wrapping_add(number.wrapping_mul(u64::from(word.width)));
            at(word.index.least)..at(word.index.most.saturating_add(1))
        };
        let mut known: Vec<Range<u64>> = tables.map(range).collect();
        known.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        for range in &mut known {
            end = range.end.max(end);
            // So that the last range that starts before a place decides.
            range.end = end;
        }
        let is_entry = |place: u64| {
            let after = known.partition_point(|range| range.start <= place);
            known[..after].last().is_some_and(|range| place < range.end)
        };
        let mut whole = WholeFunctions::new(image, functions);
        let mut held: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let mut note = |value: u64| {
            let at = functions.as_slice().partition_point(|function| function.old_start.0 <= value);
            let function = at.checked_sub(1).and_then(|at| Some((at, functions.as_slice().get(at)?)));
            if let Some((index, function)) = function
                && function.old_start.0 < value
                && Address(value) < function.old_end()
            {
                held.entry(index as u32).or_default().insert(value);
            }
        };
        for section in image.sections.iter().filter(|section| section.is_loaded()) {
            if section.is_code() {
                section_constants(section, functions).for_each(|(_, value)| note(value));
                let is_inside = |value: u64| {
                    let function = functions.containing(Address(value));
                    function.is_some_and(|function| function.old_start.0 < value)
                };
                lea_targets(section)
                    .filter(|(value, place)| is_inside(*value) && !whole.is_no_lea(*value, *place))
                    .for_each(|(value, _)| note(value));
            } else if !section.name.starts_with(b".eh_frame") {
                let first = (section.address.wrapping_neg() % 8) as usize;
                for (number, word) in
                    section.bytes.get(first..).unwrap_or_default().chunks_exact(8).enumerate()
                {
                    let place = section.address.wrapping_add(first as u64 + 8 * number as u64);
                    let value = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                    if !is_entry(place) {
                        note(value);
                    }
                }
            }
        }
        Self { image, functions, held }
    }

    /// Whether such a place in one of `members`, indices of functions, is the address of an instruction.
    pub(super) fn enters(&self, members: &[u32]) -> bool {
        members.iter().any(|member| {
            let held = self.held.get(member);
            held.is_some_and(|held| self.starts_instruction(*member, held))
        })
    }

    fn starts_instruction(&self, member: u32, held: &BTreeSet<u64>) -> bool {
        let Some(function) = self.functions.as_slice().get(member as usize) else { return true };
        let section = self.image.code_at(function.old_start.0, function.old_end().0);
        let code =
            section.and_then(|section| section.at(function.old_start.0, function.size)).unwrap_or_default();
        let decoder = Decoder::with_ip(64, code, function.old_start.0, DecoderOptions::NONE);
        decoder.into_iter().any(|instruction| instruction.is_invalid() || held.contains(&instruction.ip()))
    }
}
