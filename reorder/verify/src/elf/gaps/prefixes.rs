//! Bytes right before an x86-64 function that are not padding: callers may read them at a fixed distance from its entry.
//!
//! Their meaning does not matter. They end at the entry, so they must stand right before the function again after it moved,
//! and no instruction may refer to them, neither as code nor as data.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use rayon::prelude::*;

use crate::elf::pair::ImagePair;
use crate::elf::view::SectionView;
use crate::fields::{Addressing, addressing};
use crate::moves::{AddressMoves, Move};
use crate::padding::padding_length;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// Fewer equal bytes may be equal by chance.
pub(super) const MIN_LENGTH: usize = 4;
/// The longest constants that callers are known to read before a function: a signature and a hash.
pub(super) const SIGNED_LENGTH: usize = 8;
/// Bytes of a signature and a hash, with room for longer ones.
pub(super) const MAX_LENGTH: usize = 16;
/// Bytes of the longest instruction.
const MAX_INSTRUCTION: usize = 15;

/// How many bytes at the end of a gap moved with the function that follows.
///
/// `bytes` is what precedes `next` and is not padding. Bytes that did not move along are a difference.
pub(super) fn carried_length(
    processor: Processor,
    bytes: &[u8],
    next: &Move,
    new: &SectionView<'_>,
    findings: &mut Findings,
) -> usize {
    // The function may be so close to the start of its section that only some of these bytes fit before it.
    let room = next.new_start.0.saturating_sub(new.address);
    let size = room.min(bytes.len().min(MAX_LENGTH) as u64);
    // If there is room for less, not all of them moved.
    let is_enough = size >= SIGNED_LENGTH.min(bytes.len()) as u64;
    let found = new.at(next.new_start.0 - size, size).filter(|_| is_enough).unwrap_or_default();
    let length = bytes.iter().rev().zip(found.iter().rev()).take_while(|(old, new)| old == new).count();
    if length >= MIN_LENGTH.min(bytes.len()) && length > 0 {
        return length;
    }
    // More bytes than that are code without a symbol, which stays.
    if bytes.len() <= MAX_LENGTH && !ends_with_padding(processor, bytes, next.old_start.0) {
        findings.differs(Difference::new(
            Check::Gaps,
            None,
            format!("the bytes right before {next}"),
            "the same bytes before the function",
            format!("{:02x?}", found.get(found.len().saturating_sub(MIN_LENGTH)..).unwrap_or_default()),
        ));
    }
    0
}

/// How many of the `equal` bytes before the new place of `next` lie in no function. Bytes inside of the previous function
/// are equal only by chance: the code before `next` did not move.
pub(super) fn outside_of_functions(moves: &AddressMoves, next: &Move, equal: u64) -> u64 {
    let is_free =
        |back: &u64| moves.containing_new(NewAddress(next.new_start.0.wrapping_sub(*back))).is_none();
    (1..=equal).take_while(is_free).count() as u64
}

/// Whether `bytes`, which end at `end`, may be code that ends with padding.
pub(in crate::elf) fn ends_with_padding(processor: Processor, bytes: &[u8], end: u64) -> bool {
    (1..=bytes.len().min(MAX_INSTRUCTION)).any(|length| {
        let last = &bytes[bytes.len() - length..];
        padding_length(processor, last, end.wrapping_sub(length as u64)) == length
    })
}

/// Checks that no instruction refers to bytes that moved with the next function. `carried` are their old places, ascending.
pub(super) fn check_unreferenced(pair: ImagePair<'_>, carried: &[Range<Address>], findings: &mut Findings) {
    if carried.is_empty() {
        return;
    }
    let holds = |target: Address| {
        let after = carried.partition_point(|range| range.start <= target);
        after > 0 && target < carried[after - 1].end
    };
    let found: Vec<(Address, Address)> = pair
        .moves
        .as_slice()
        .par_iter()
        .flat_map_iter(|range| {
            let section = pair.old.code_at(range.old_start.0, range.old_end().0);
            let bytes =
                section.and_then(|section| section.at(range.old_start.0, range.size)).unwrap_or_default();
            let mut decoder = Decoder::with_ip(64, bytes, range.old_start.0, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            let mut found = Vec::new();
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                if let Addressing::Field(field) = addressing(&decoder, &instruction)
                    && holds(Address(field.target))
                {
                    found.push((Address(instruction.ip()), Address(field.target)));
                }
            }
            found
        })
        .collect();
    for (place, target) in found {
        findings.differs(Difference::new(
            Check::Gaps,
            None,
            format!("the target of {place}"),
            "no bytes that moved with the next function",
            target.to_string(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_function_do_not_move_with_the_next() {
        let found = |old, new, size| Move { old_start: Address(old), new_start: NewAddress(new), size };
        let (previous, next) = (found(0x10, 0x50, 8), found(0x30, 0x5a, 4));
        let moves = AddressMoves::from_evidence(vec![previous, next]).expect("they are disjoint");
        let lengths = [0, 1, 2, 3, 8].map(|equal| outside_of_functions(&moves, &next, equal));
        assert_eq!(lengths, [0, 1, 2, 2, 2]);
    }

    #[test]
    fn padding_after_code_is_told_from_data() {
        let ends = |bytes: &[u8]| ends_with_padding(Processor::X86_64, bytes, 0x1010);
        assert!(ends(&[0xc3, 0x90]) && ends(&[0xc3, 0x0f, 0x1f, 0x44, 0, 0]) && ends(&[0xc3, 0]));
        assert!(
            !ends(&[0x90, 0xc3]) && !ends(&[0xfe, 0xca, 0x05, 0xc1, 0x31, 0xc0, 0x5b, 0xcf]) && !ends(&[])
        );
    }
}
