//! Possible references of bytes that are not understood.
//!
//! No assumption is made about where instructions begin: every byte may be the last one before a distance. Targets are
//! never rewritten, only pinned, so finding too many costs movable atoms and finding too few would break the program.

use std::collections::BTreeSet;
use std::ops::Range;

use super::X86Context;
use crate::decoded_atom::DecodedAtom;
use crate::pins::Pin;
use reorder_base::address::Address;

/// Over how many later places that look addressed a table is followed.
const MAX_CUTS: usize = 3;

/// Sizes of the immediate operands that may follow an address relative to the instruction's end.
const IMMEDIATES: [u64; 4] = [0, 1, 2, 4];

/// The result for an atom that stays, with all references that its bytes may hold.
#[must_use]
pub fn opaque(context: &X86Context<'_>, atom: &Range<Address>, pin: Pin) -> DecodedAtom {
    let bytes = context.bytes(atom);
    let text = context.file.text().range();
    let mut targets = Vec::new();
    let mut bases = BTreeSet::new();
    let mut add = |target: Address| {
        if text.contains(&target) && !atom.contains(&target) {
            targets.push(target);
        }
    };
    // It may run into the next atom, and addresses relative to its end are that atom's start.
    add(atom.end);
    for (index, &byte) in bytes.iter().enumerate() {
        let place = atom.start.plus(index as u64 + 1);
        let rest = &bytes[index + 1..];
        if let Some(&distance) = rest.first()
            && is_short_branch(byte)
        {
            add(place.plus(1).plus(i64::from(distance as i8) as u64));
        }
        let Some(distance) = rest.first_chunk().map(|word| i64::from(i32::from_le_bytes(*word)) as u64)
        else {
            continue;
        };
        let before = index.checked_sub(1).map(|before| bytes[before]);
        let is_long_branch = matches!(byte, 0xe8 | 0xe9) // call, jmp
            || before == Some(0x0f) && byte & 0xf0 == 0x80 // jcc
            || before == Some(0xc7) && byte == 0xf8; // xbegin
        if is_long_branch {
            add(place.plus(4).plus(distance));
        }
        // A ModRM byte for an address relative to the instruction's end.
        if byte & 0xc7 == 0x05 {
            IMMEDIATES.iter().for_each(|size| add(place.plus(4 + size).plus(distance)));
            let own = place.plus(4).plus(distance);
            bases.extend(atom.contains(&own).then(|| own.distance_from(atom.start) as usize));
        }
    }
    // Words after a place that is addressed may be distances from there; a false one may cut a table short.
    for &base in &bases {
        let next = bases.range(base + 1..).nth(MAX_CUTS).copied().unwrap_or(bytes.len());
        for word in bytes[base..next].chunks_exact(4) {
            let distance = i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            add(atom.start.plus(base as u64).plus(distance as u64));
        }
    }
    // A word of a table may be a distance from itself.
    let words = atom.start.0.next_multiple_of(4).saturating_sub(atom.start.0) as usize;
    for (index, word) in bytes.get(words..).unwrap_or_default().chunks_exact(4).enumerate() {
        let place = atom.start.plus((words + 4 * index) as u64);
        let distance = i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let target = place.plus(distance as u64);
        if context.starts.binary_search(&target).is_ok() {
            add(target);
        }
    }
    targets.sort_unstable();
    targets.dedup();
    DecodedAtom { pin: Some(pin), possible_targets: targets, ..DecodedAtom::default() }
}

/// `jcc`, `loop` and its variants, `jmp`, each with a distance of one byte.
fn is_short_branch(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb)
}
