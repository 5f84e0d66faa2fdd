//! One atom of x86-64 code, old against new.
//!
//! All bytes but the address fields recur, and each field stands for the mapped target. Bytes that are no instructions,
//! such as jump tables in front of which nothing says so, must be the same; whatever decodes as an instruction must follow.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::super::fields::{Addressing, addressing, read_field};
use super::super::recover::Move;
use super::super::report::{Check, Difference};
use super::arm64_atom::Counts;
use super::pair::MachPair;
use crate::address::Address;

/// Checks one atom; gives its first difference.
pub(super) fn check(
    pair: MachPair<'_>,
    range: &Move,
    old: &[u8],
    new: &[u8],
    offset: u64,
    counts: &mut Counts,
) -> Option<Difference> {
    let differs = |at: usize, expected: String, found: String| {
        let place = format!("the code at {}", range.new_start.plus(at as u64));
        Some(Difference::new(Check::Functions, Some(offset + at as u64), place, expected, found))
    };
    let mut decoder = Decoder::with_ip(64, old, range.old_start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut compared_to = 0;
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        counts.instructions += 1;
        let Addressing::Field(field) = addressing(&decoder, &instruction) else { continue };
        if instruction.is_invalid() {
            continue;
        }
        let at = start + field.offset;
        let is_own = (range.old_start.0..range.old_end().0).contains(&field.target);
        let found = read_field(&new[at..at + field.width], field.width).unwrap_or_default();
        let found = range.new_start.0.wrapping_add(decoder.position() as u64).wrapping_add(found);
        let follows = match is_own {
            true => found.wrapping_sub(field.target) == range.delta(),
            false => pair.follows(field.target, found),
        };
        counts.fields += 1;
        if !follows {
            let expected = format!("{}, where {} went", pair.expected(field.target), Address(field.target));
            return differs(at, expected, format!("{found:#x}"));
        }
        if old[compared_to..at] != new[compared_to..at] {
            return differs(compared_to, "the same bytes".to_owned(), "others".to_owned());
        }
        compared_to = at + field.width;
    }
    match old[compared_to..] == new[compared_to..] {
        true => None,
        false => differs(compared_to, "the same bytes".to_owned(), "others".to_owned()),
    }
}

/// Whether control may go on behind the last instruction of `code` that is no padding.
pub(super) fn runs_on(code: &[u8], address: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut runs_on = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            runs_on = false;
        } else if !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            runs_on = matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
            ) && instruction.mnemonic() != Mnemonic::Hlt;
        }
    }
    runs_on
}

/// Calls `found` with the old and the new target of every address field.
pub(super) fn for_each_target(old: (u64, &[u8]), new: (u64, &[u8]), mut found: impl FnMut(u64, u64)) {
    let mut decoder = Decoder::with_ip(64, old.1, old.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if let (false, Addressing::Field(field)) =
            (instruction.is_invalid(), addressing(&decoder, &instruction))
        {
            let at = start + field.offset;
            let distance = new.1.get(at..at + field.width).and_then(|bytes| read_field(bytes, field.width));
            if let Some(distance) = distance {
                found(field.target, new.0.wrapping_add(decoder.position() as u64).wrapping_add(distance));
            }
        }
    }
}

/// A number that only depends on the bytes outside of address fields, and on addresses outside of `text`.
pub(super) fn fingerprint(code: &[u8], address: u64, text: &std::ops::Range<u64>) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        let end = decoder.position();
        match addressing(&decoder, &instruction) {
            Addressing::Field(field) if !instruction.is_invalid() => {
                code[start..start + field.offset].hash(&mut hasher);
                if !text.contains(&field.target) {
                    field.target.hash(&mut hasher);
                }
                code[start + field.offset + field.width..end].hash(&mut hasher);
            }
            _ => code[start..end].hash(&mut hasher),
        }
    }
    hasher.finish()
}
