//! Finds code and data that know a place inside a function and may compare it with an interrupted program counter.
//!
//! A copy is elsewhere, so a function with such a place is not copied. Addresses relative to the instruction are searched for at
//! every byte of the code, however it is cut into instructions. In an image at a fixed address a constant may be such a
//! place: operands of instructions, and eight bytes at a multiple of four. Nothing moves here, so a constant that is missed
//! matters only to code that compares it with a program counter; pointers of eight bytes are what such tables hold. Numbers of
//! four bytes are left out: in a large program some of them match a place in most functions by chance.

use std::ops::Range;

use super::bodies::Body;
use reorder_base::address::Address;
use reorder_base::processor::Processor;
use reorder_image::decode::aarch64::{Operation, decode};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::absolute_addresses::{holds_constants, operands_of_code};
use reorder_image::elf::file::{ElfFile, Linkage};

/// The functions in question.
pub(super) struct Insides<'run> {
    /// Ranges with the starts of functions in them, ascending and disjoint, and the position of each among the bodies.
    ranges: Vec<(Range<Address>, &'run [Address], usize)>,
    evidence: Vec<Option<Address>>,
}

impl<'run> Insides<'run> {
    /// For each of `bodies` a place in the image that may hold an address inside it, if there is one outside of the body.
    pub(super) fn find(
        file: &ElfFile<'_>,
        analysis: &Analysis<'_>,
        bodies: &'run [Body],
    ) -> Vec<Option<Address>> {
        let mut ranges: Vec<_> = bodies
            .iter()
            .enumerate()
            .map(|(index, body)| (body.range.clone(), body.function_starts.as_slice(), index))
            .collect();
        ranges.sort_unstable_by_key(|(range, ..)| range.start);
        let mut insides = Self { ranges, evidence: vec![None; bodies.len()] };
        let is_fixed = file.linkage == Linkage::FixedAddress;
        if is_fixed && file.processor == Processor::X86_64 {
            for (value, place) in operands_of_code(&analysis.code, &analysis.partition) {
                insides.note(value, place);
            }
        }
        for section in file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes()) {
            let bytes = file.section_bytes(section);
            if is_fixed && (section.is_executable() || holds_constants(section)) {
                for (place, value) in words(bytes, section.address) {
                    insides.note(value, place);
                }
            }
            if section.is_executable() {
                for (target, place) in formed_addresses(file.processor, bytes, section.address) {
                    insides.note(target, place);
                }
            }
        }
        insides.evidence
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
