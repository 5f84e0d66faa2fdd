//! Mangled names: text with distances to descriptors and functions in between.

use std::ops::Range;

use super::walk::{Record, Walk};
use crate::macho::file::MachOFile;
use crate::macho::reference::DataReference;
use reorder_base::address::Address;

// Bytes that precede a distance.
const CONTEXT: u8 = 0x01;
const CONFORMANCE_ACCESSOR: u8 = 0x07;
const METADATA_ACCESSOR: u8 = 0x09;
const LAST_WITH_DISTANCE: u8 = 0x17;
const FIRST_WITH_POINTER: u8 = 0x18;
const LAST_WITH_POINTER: u8 = 0x1f;
/// The first byte of names other than types: of an associated conformance, or a name that a function must be called to make.
const SPECIAL: u8 = 0xff;

/// Reads the name at `place`; gives the place of the zero after it.
pub(super) fn read(walk: &mut Walk<'_, '_>, place: Address) -> Option<Address> {
    let mut next = place;
    loop {
        match walk.byte(next)? {
            0 => return Some(next),
            CONTEXT => {
                walk.enter_direct(Record::Context, next.plus(1))?;
                next = next.plus(5);
            }
            CONFORMANCE_ACCESSOR | METADATA_ACCESSOR => {
                walk.plain_function(next.plus(1))?;
                next = next.plus(5);
            }
            other if other <= LAST_WITH_DISTANCE => next = next.plus(5),
            other if other <= LAST_WITH_POINTER => next = next.plus(9),
            _ => next = next.plus(1),
        }
    }
}

/// Longest name that [`is_name`] accepts; those of key paths have a few dozen bytes.
const MAX_LENGTH: u64 = 4096;

/// Whether there is a name at `place` that ends before `end`.
pub(super) fn is_name(file: &MachOFile<'_>, place: Address, end: Address) -> bool {
    let longest = end.0.saturating_sub(place.0).min(MAX_LENGTH);
    let Some(mut rest) = file.bytes_at(place, longest) else { return false };
    let mut is_empty = true;
    while let Some((&byte, after)) = rest.split_first() {
        let distance = match byte {
            0 => return !is_empty,
            1..=LAST_WITH_DISTANCE => 4,
            FIRST_WITH_POINTER..=LAST_WITH_POINTER => 8,
            b'!'..=b'~' | SPECIAL => 0,
            _ => return false,
        };
        rest = after.get(distance..).unwrap_or_default();
        is_empty = false;
    }
    false
}

/// Reads the names to which the words in `start..end` lead if they lie in `names`, the section of names.
pub(super) fn enter_all(
    walk: &mut Walk<'_, '_>,
    start: Address,
    end: Address,
    names: &Range<Address>,
) -> Option<()> {
    let mut next = start;
    while next.plus(4) <= end {
        if let Some(target) = walk.distance(next)?.filter(|target| names.contains(target)) {
            walk.enter(Record::Name, target);
        }
        next = next.plus(4);
    }
    Some(())
}

/// Reads all names of the section of names in order. After another record between them, bytes may be misread up to the
/// next zero.
pub(super) fn read_all(walk: &mut Walk<'_, '_>, start: Address, end: Address) -> Option<()> {
    let mut next = start;
    while next < end {
        next = if walk.byte(next)? == 0 { next.plus(1) } else { read(walk, next)? };
    }
    Some(())
}

/// Enters the names of associated conformances that witness tables point to: such pointers are odd.
pub(super) fn enter_witnesses(walk: &mut Walk<'_, '_>, rebases: &[DataReference]) {
    for slot in rebases.iter().filter(|slot| slot.target.0 & 1 == 1) {
        let name = Address(slot.target.0 - 1);
        if walk.file.bytes_at(name, 2) == Some(&[SPECIAL, CONFORMANCE_ACCESSOR]) {
            walk.enter(Record::Name, name);
        }
    }
}
