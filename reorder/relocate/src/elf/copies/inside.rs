//! Finds code and data that know a place inside a function and may compare it with an interrupted program counter.
//!
//! A copy is elsewhere, so a function with such a place is not copied. Addresses relative to the instruction are searched for at
//! every byte of the code. Bytes do not count where their function can be read in one way only and they are parts of other
//! instructions there. In an image at a fixed address a constant may be such a
//! place: operands of instructions, and words of eight bytes. Nothing moves here, so a constant that is missed
//! matters only to code that compares it with a program counter. Such code looks places up in a list, so on x86-64 a word counts
//! that has another address of code close by: alone, it is most often text or a number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::bodies::Body;
use super::split_bytes::SplitBytes;
use super::x86_64;
use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::decode::aarch64::{Operation, decode};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::absolute_addresses::{
    holds_constants, operands_of_code, tables_of_addresses,
};
use reorder_image::elf::code::Region;
use reorder_image::elf::file::{ElfFile, Linkage};

/// Bytes of an address.
const WORD: u64 = 8;
/// More than any switch has.
const MAX_ENTRIES: u64 = 1 << 16;

/// The functions in question.
pub(super) struct Insides<'run> {
    /// Ranges with the starts of functions in them, ascending and disjoint, and the position of each among the bodies.
    ranges: Vec<(Range<Address>, &'run [Address], usize)>,
    evidence: Vec<Option<Address>>,
    /// Where the instructions of bodies start, by position; `None` if these are not all.
    instructions: BTreeMap<usize, Option<Vec<Address>>>,
}

impl<'run> Insides<'run> {
    /// For each of `bodies` a place in the image that may hold an address inside it, if there is one outside of the body. Nothing
    /// describes the functions `found`, which ascend.
    pub(super) fn find(
        file: &ElfFile<'_>,
        analysis: &Analysis<'_>,
        found: &[Range<Address>],
        bodies: &'run [Body],
    ) -> Vec<Option<Address>> {
        let mut ranges: Vec<_> = bodies
            .iter()
            .enumerate()
            .map(|(index, body)| (body.range.clone(), body.function_starts.as_slice(), index))
            .collect();
        ranges.sort_unstable_by_key(|(range, ..)| range.start);
        let (evidence, instructions) = (vec![None; bodies.len()], BTreeMap::new());
        let mut insides = Self { ranges, evidence, instructions };
        let mut split = SplitBytes::new(analysis, found);
        let is_fixed = file.linkage == Linkage::FixedAddress;
        if is_fixed && file.processor == Processor::X86_64 {
            for (value, place) in operands_of_code(&analysis.code, &analysis.partition) {
                insides.note(value, place);
            }
        }
        let own_entries = match file.processor {
            Processor::X86_64 if is_fixed => own_entries(file, analysis),
            _ => BTreeSet::new(),
        };
        for section in file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes()) {
            let bytes = file.section_bytes(section);
            if is_fixed && (section.is_executable() || holds_constants(section)) {
                for (place, value) in words(bytes, section.address) {
                    let may_be_known = match file.processor {
                        Processor::X86_64 => {
                            insides.is_inside(value)
                                && !own_entries.contains(&place)
                                && !insides.is_operand(analysis, place)
                                && insides.starts_instruction(analysis, value)
                                && is_in_list(file, analysis, place, |other| !split.has_middle_at(other))
                        }
                        _ => true,
                    };
                    if may_be_known {
                        insides.note(value, place);
                    }
                }
            }
            if section.is_executable() {
                for (target, place) in formed_addresses(file.processor, bytes, section.address) {
                    if insides.is_inside(target) && !split.are_no_lea(place) {
                        insides.note(target, place);
                    }
                }
            }
        }
        insides.evidence
    }

    /// Whether `target` lies in one of the functions.
    fn is_inside(&self, target: Address) -> bool {
        let after = self.ranges.partition_point(|(range, ..)| range.start < target);
        self.ranges[..after].last().is_some_and(|(range, ..)| target < range.end)
    }

    /// Whether an instruction starts at `target`, or its function has bytes that are no instructions. Each function is read once.
    fn starts_instruction(&mut self, analysis: &Analysis<'_>, target: Address) -> bool {
        let after = self.ranges.partition_point(|(range, ..)| range.start < target);
        let Some((range, _, index)) = self.ranges[..after].last() else { return false };
        let (range, index) = (range.clone(), *index);
        let starts = self.instructions_of(analysis, range, index);
        starts.is_none_or(|starts| starts.binary_search(&target).is_ok())
    }

    fn instructions_of(
        &mut self,
        analysis: &Analysis<'_>,
        range: Range<Address>,
        index: usize,
    ) -> Option<&[Address]> {
        let starts = self.instructions.entry(index).or_insert_with(|| {
            let (mut address, mut starts) = (range.start, Vec::new());
            while address < range.end {
                starts.push(address);
                let step = x86_64::step(analysis.code.bytes(address..range.end), address)?;
                address = address.plus(u64::from(step.length));
            }
            Some(starts)
        });
        starts.as_deref()
    }

    /// Whether the word at `place` lies in one of the functions, whose numbers are operands; in other functions it may be data.
    fn is_operand(&mut self, analysis: &Analysis<'_>, place: Address) -> bool {
        let after = self.ranges.partition_point(|(range, ..)| range.start <= place);
        let Some((range, _, index)) = self.ranges[..after].last() else { return false };
        let (range, index) = (range.clone(), *index);
        place.plus(WORD) <= range.end && self.instructions_of(analysis, range, index).is_some()
    }

    /// `place` holds, or forms, `target`.
    fn note(&mut self, target: Address, place: Address) {
        let after = self.ranges.partition_point(|(range, ..)| range.start < target);
        let Some((range, starts, index)) = self.ranges[..after].last() else { return };
        let is_inside = target < range.end && starts.binary_search(&target).is_err();
        if is_inside && !range.contains(&place) {
            self.evidence[*index].get_or_insert(place);
        }
    }
}

/// Whether one of the words close to that at `place` holds an address of code that `may_be_place` does not rule out, as in a list
/// of places.
pub(super) fn is_in_list(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    place: Address,
    mut may_be_place: impl FnMut(Address) -> bool,
) -> bool {
    /// Words of the largest entry of such a list.
    const ENTRY: u64 = 3;
    let mut is_code = |at: u64| {
        let word = file.bytes_at(Address(at), WORD)?.first_chunk()?;
        let address = Address(u64::from_le_bytes(*word));
        let is_code = matches!(analysis.code.region(address), Region::Arena | Region::FixedCode);
        Some(is_code && may_be_place(address))
    };
    place.0.is_multiple_of(WORD)
        && (1..=ENTRY).any(|words| {
            let others = [place.0.checked_sub(words * WORD), place.0.checked_add(words * WORD)];
            others.into_iter().flatten().any(|at| is_code(at).unwrap_or(false))
        })
}

/// Places of the entries of tables of addresses through which functions jump at an index, up to the last that leads into one of
/// these functions. A table ends before the next address of data that some instruction states. It is no list of places that a
/// handler looks up: a handler would state the list's address.
fn own_entries(file: &ElfFile<'_>, analysis: &Analysis<'_>) -> BTreeSet<Address> {
    let tables = tables_of_addresses(&analysis.code, &analysis.partition);
    let mut places = BTreeSet::new();
    for users in tables.bases.chunk_by(|one, other| one.0 == other.0) {
        let base = users[0].0;
        let next = tables.stated.partition_point(|stated| *stated <= base);
        let end = tables.stated.get(next).copied();
        let entries = (0..MAX_ENTRIES).map_while(|number| {
            let place = base.plus(number * WORD);
            let target = Address(u64::from_le_bytes(*file.bytes_at(place, WORD)?.first_chunk()?));
            // A case that seldom runs may have been split off.
            let is_entry = end.is_none_or(|end| place < end) && analysis.code.arena_of(target).is_some();
            is_entry.then_some((place, target))
        });
        let entries: Vec<(Address, Address)> = entries.collect();
        let is_own = |(_, target): &(Address, Address)| {
            let block = analysis.partition.block_containing(*target);
            block.is_some_and(|block| users.binary_search(&(base, block)).is_ok())
        };
        let count = entries.iter().rposition(is_own).map_or(0, |last| last + 1);
        places.extend(entries[..count].iter().map(|(place, _)| *place));
    }
    places
}

/// Numbers of eight bytes at each multiple of four. AArch64 code loads whole addresses from such words.
fn words(bytes: &[u8], address: Address) -> impl Iterator<Item = (Address, Address)> + '_ {
    const STEP: u64 = 4;
    let first = address.0.wrapping_neg() % STEP;
    (first as usize..bytes.len()).step_by(STEP as usize).filter_map(move |position| {
        let value = u64::from_le_bytes(*bytes.get(position..)?.first_chunk::<8>()?);
        Some((address.plus(position as u64), Address(value)))
    })
}

/// Whole addresses that single instructions may form, each with the place that does. On AArch64 the analysis pairs the
/// halves of addresses.
pub(super) fn formed_addresses(
    processor: Processor,
    code: &[u8],
    address: Address,
) -> Box<dyn Iterator<Item = (Address, Address)> + '_> {
    match processor {
        Processor::Aarch64 => Box::new(code.chunks_exact(4).enumerate().filter_map(move |(number, word)| {
            let place = address.plus(4 * number as u64);
            match decode(u32::from_le_bytes([word[0], word[1], word[2], word[3]]), place) {
                Operation::Adr(_, target) => Some((target, place)),
                _ => None,
            }
        })),
        // Only `LEA` keeps an address, and its displacement is its last field.
        Processor::X86_64 | Processor::Other => {
            Box::new(code.windows(6).enumerate().filter_map(move |(position, bytes)| {
                let &[0x8d, operand, first, second, third, fourth] = bytes else { return None };
                let distance = i64::from(i32::from_le_bytes([first, second, third, fourth])) as u64;
                let place = address.plus(position as u64 + 2);
                (operand & 0xc7 == 0x05).then(|| (place.plus(4).plus(distance), place))
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::words;
    use reorder_base::address::Address;

    #[test]
    fn words_begin_at_multiples_of_four_and_have_any_value() {
        let mut bytes = [0; 15];
        bytes[3..11].copy_from_slice(&0x2_0000_1234_u64.to_le_bytes());
        let found: Vec<_> = words(&bytes, Address(0x1001)).collect();
        assert_eq!(found, [(Address(0x1004), Address(0x2_0000_1234)), (Address(0x1008), Address(2))]);
    }
}
