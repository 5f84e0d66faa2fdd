//! Smaller records: patterns of metadata, properties, replacements.

use super::walk::{Record, Walk};
use reorder_base::address::Address;

/// The pattern of a generic class: functions that make it, flags, then functions that destroy an instance and its fields.
pub(super) fn read_class(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    read_value(walk, place)?;
    walk.plain_function(place.plus(12))?;
    walk.plain_function(place.plus(16))
}

/// The pattern of another generic type: the functions that make and complete metadata.
pub(super) fn read_value(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    walk.plain_function(place)?;
    walk.plain_function(place.plus(4))
}

/// The pattern of a class with an unknown superclass: functions that make it, destroy an instance, destroy the fields.
pub(super) fn read_resilient(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    [0, 4, 8].into_iter().try_for_each(|offset| walk.plain_function(place.plus(offset)))
}

// The header of a property's record.
const KIND: u32 = 0x7f00_0000;
const COMPUTED: u32 = 0x0200_0000;
const IS_SETTABLE: u32 = 0x0040_0000;

/// The record of a property: if it is computed, its identity, its getter and perhaps its setter.
pub(super) fn read_property(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    let head = walk.word(place)?;
    if head & KIND == COMPUTED {
        walk.plain_function(place.plus(8))?;
        if head & IS_SETTABLE != 0 {
            walk.plain_function(place.plus(12))?;
        }
    }
    Some(())
}

/// Flags and a number; for each replacement its key, the function, the place of the chain, and flags.
pub(super) fn read_replacements(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    let count = walk.word(place.plus(4))?;
    let mut next = place.plus(8);
    for _ in 0..count {
        walk.implementation(next.plus(4))?;
        next = next.plus(16);
    }
    Some(())
}

/// Flags and a number; for each scope its distance and flags.
pub(super) fn enter_replacements(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    let count = walk.word(place.plus(4))?;
    for index in 0..u64::from(count) {
        walk.enter_direct(Record::ReplacementScope, place.plus(8 + 8 * index))?;
    }
    Some(())
}
