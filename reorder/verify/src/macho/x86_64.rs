//! Compares one atom of x86-64 code in both images.
//!
//! All bytes except the address fields of instructions are the same, and each field leads to the mapped target. Bytes that
//! are not instructions, such as jump tables, are the same: they count from their own place.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::super::aarch64::Counts;
use super::super::bytes::displacement_at;
use super::super::fields::read_field;
use super::super::report::{Check, Difference};
use super::pair::MachPair;
use super::view::MachView;
use super::x86_64_walk::{Walk, walk};
use crate::moves::Move;
use reorder_base::address::{Address, NewAddress};

/// Checks one atom; returns its first difference.
pub(super) fn check(
    pair: MachPair<'_>,
    range: &Move,
    old: &[u8],
    new: &[u8],
    offset: u64,
    counts: &mut Counts,
) -> Option<Difference> {
    let differs = |at: usize, expected: String, found: String| {
        let (from, to) = (range.old_start.plus(at as u64), range.new_start.plus(at as u64));
        let place = format!("the code at {to} (was at {from})");
        Some(Difference::new(Check::Functions, Some(offset + at as u64), place, expected, found))
    };
    let other_bytes = |from: usize, to: usize| {
        let pairs = old[from..to].iter().zip(&new[from..to]);
        let first = pairs.clone().position(|(old, new)| old != new)?;
        let (old, new) = (old[from + first], new[from + first]);
        differs(from + first, format!("{old:#04x}"), format!("{new:#04x}"))
    };
    let walk = walk(pair.old, old, range.old_start.0);
    counts.instructions += walk.instructions;
    counts.fields += walk.fields.len();
    if let Some(at) = walk.unsupported.filter(|_| range.is_moved()) {
        return differs(at, "instructions whose distances are known".to_owned(), "others".to_owned());
    }
    if let Some(at) = walk.unexplained.filter(|_| range.is_moved()) {
        let expected = "instructions, tables or padding, since the function moved";
        return differs(at, expected.to_owned(), format!("{:#04x}", old[at]));
    }
    if let Some((at, target)) = hidden_reference(pair, range, &walk, old, new) {
        return differs(
            at,
            format!("{}, where {target} went", pair.expected(target)),
            "the old distance".to_owned(),
        );
    }
    let mut compared_to = 0;
    for placed in &walk.fields {
        let (at, field) = (placed.at, placed.field);
        let is_own = (range.old_start.0..range.old_end().0).contains(&field.target);
        let found = read_field(&new[at..at + field.width], field.width).unwrap_or_default();
        let found = range.new_start.0.wrapping_add(placed.end as u64).wrapping_add(found);
        let follows = match is_own {
            true => found.wrapping_sub(field.target) == range.delta(),
            false => pair.follows(Address(field.target), NewAddress(found)),
        };
        if !follows {
            let target = Address(field.target);
            let expected = format!("{}, where {target} went", pair.expected(target));
            return differs(at, expected, format!("{found:#x}"));
        }
        if at < compared_to {
            return differs(at, "instructions that do not overlap".to_owned(), "others".to_owned());
        }
        if let Some(difference) = other_bytes(compared_to, at) {
            return Some(difference);
        }
        compared_to = at + field.width;
    }
    other_bytes(compared_to, old.len())
}

/// In bytes that control is not seen to reach, instructions may begin anywhere. Finds a distance there that leads exactly to
/// the start of a function and should have changed but did not; returns its position and its target.
fn hidden_reference(
    pair: MachPair<'_>,
    range: &Move,
    walk: &Walk,
    old: &[u8],
    new: &[u8],
) -> Option<(usize, Address)> {
    let own = range.old_start.0..range.old_end().0;
    walk.unreached.iter().cloned().flatten().find_map(|at| {
        let before = |distance: usize| at.checked_sub(distance).map_or(0, |at| old[at]);
        let is_branch = matches!(before(1), 0xe8 | 0xe9) || before(2) == 0x0f && before(1) & 0xf0 == 0x80;
        // `LEA` with a register of eight bytes; the address counts from its end.
        let is_address = before(3) & 0xf8 == 0x48 && before(2) == 0x8d && before(1) & 0xc7 == 0x05;
        if !(is_branch || is_address) {
            return None;
        }
        let (distance, found) = (displacement_at(old, at)?, displacement_at(new, at)?);
        let target = range.old_start.0.wrapping_add(at as u64 + 4).wrapping_add(distance);
        let atom = pair.moves.containing(Address(target)).filter(|atom| atom.old_start.0 == target)?;
        let is_wrong = distance == found && atom.delta() != range.delta() && !own.contains(&target);
        is_wrong.then_some((at, Address(target)))
    })
}

/// Whether `code`, an atom of the image, jumps to an address that it computes or reads.
pub(super) fn has_computed_jump(image: &MachView<'_>, code: &[u8], address: u64) -> bool {
    walk(image, code, address).has_computed_jump
}

/// Calls `found` with the old and the new target of every address field of an atom of `image`.
pub(super) fn for_each_target(
    image: &MachView<'_>,
    old: (u64, &[u8]),
    new: (u64, &[u8]),
    mut found: impl FnMut(u64, u64),
) {
    for placed in walk(image, old.1, old.0).fields {
        let bytes = new.1.get(placed.at..placed.at + placed.field.width);
        if let Some(distance) = bytes.and_then(|bytes| read_field(bytes, placed.field.width)) {
            found(placed.field.target, new.0.wrapping_add(placed.end as u64).wrapping_add(distance));
        }
    }
}

/// A hash of the bytes outside of address fields and of the targets outside of `text`; and the number of bytes hashed,
/// without padding at the end.
pub(super) fn fingerprint(
    image: &MachView<'_>,
    code: &[u8],
    address: u64,
    text: &Range<u64>,
) -> (u64, usize) {
    let mut hasher = DefaultHasher::new();
    let mut position = 0;
    let walk = walk(image, code, address);
    let code = &code[..walk.end];
    for placed in walk.fields {
        if placed.at < position || placed.at + placed.field.width > code.len() {
            continue;
        }
        code[position..placed.at].hash(&mut hasher);
        if !text.contains(&placed.field.target) {
            placed.field.target.hash(&mut hasher);
        }
        position = placed.at + placed.field.width;
    }
    code[position..].hash(&mut hasher);
    (hasher.finish(), code.len())
}
