//! Mangled names: text with distances to descriptors and functions in between.

use super::walk::{Record, Walk};
use crate::address::Address;
use crate::image::macho::reference::DataReference;

// What stands in front of a distance.
const CONTEXT: u8 = 0x01;
const CONFORMANCE_ACCESSOR: u8 = 0x07;
const METADATA_ACCESSOR: u8 = 0x09;
const LAST_WITH_DISTANCE: u8 = 0x17;
const LAST_WITH_POINTER: u8 = 0x1f;
/// What a name begins with that is no type's: of an associated conformance, or one that is only made by a function.
const SPECIAL: u8 = 0xff;

/// Reads the name at `place`; gives the place of the zero behind it.
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

/// Reads all names of a section that holds nothing else but zeros between them.
pub(super) fn read_all(walk: &mut Walk<'_, '_>, start: Address, end: Address) -> Option<()> {
    let mut next = start;
    while next < end {
        if walk.byte(next)? == 0 {
            next = next.plus(1);
        } else {
            walk.names.insert(next);
            next = read(walk, next)?;
        }
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
