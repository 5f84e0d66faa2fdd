//! Descriptors of modules, extensions, protocols and types.

use super::generic;
use super::walk::{Record, Walk};
use reorder_base::address::Address;

// Kinds, in the lowest five bits of a descriptor's flags.
const EXTENSION: u32 = 1;
const PROTOCOL: u32 = 3;
const CLASS: u32 = 16;
const STRUCT: u32 = 17;
const ENUM: u32 = 18;

const IS_GENERIC: u32 = 0x80;

// Flags of types, from bit 16.
const INITIALIZATION: u32 = 3;
const SINGLETON: u32 = 1;
const FOREIGN: u32 = 2;
const HAS_RESILIENT_SUPERCLASS: u32 = 1 << 13;
const HAS_OVERRIDE_TABLE: u32 = 1 << 14;
const HAS_VTABLE: u32 = 1 << 15;

/// Bytes of the descriptor of a class, and of another type, without optional parts.
const CLASS_SIZE: u64 = 44;
const VALUE_SIZE: u64 = 28;

/// Reads the descriptor at `place`.
pub(super) fn read(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    let flags = walk.word(place)?;
    walk.enter_indirect(Record::Context, place.plus(4), 1)?;
    match flags & 0x1f {
        EXTENSION => walk.enter_direct(Record::Name, place.plus(8)),
        PROTOCOL => read_protocol(walk, place),
        CLASS | STRUCT | ENUM => read_type(walk, place, flags),
        // Modules, anonymous contexts and opaque types name no functions.
        _ => Some(()),
    }
}

fn read_protocol(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    let (in_signature, count) = (walk.word(place.plus(12))?, walk.word(place.plus(16))?);
    let mut requirement = place.plus(24);
    for _ in 0..in_signature {
        requirement = generic::read_requirement(walk, requirement)?;
    }
    for _ in 0..count {
        // Flags, then the default witness.
        walk.implementation(requirement.plus(4))?;
        requirement = requirement.plus(8);
    }
    Some(())
}

fn read_type(walk: &mut Walk<'_, '_>, place: Address, flags: u32) -> Option<()> {
    let (is_class, kind_flags) = (flags & 0x1f == CLASS, flags >> 16);
    walk.plain_function(place.plus(12))?;
    let mut next = place.plus(if is_class { CLASS_SIZE } else { VALUE_SIZE });
    if is_class {
        walk.enter_direct(Record::Name, place.plus(20))?;
    }
    if flags & IS_GENERIC != 0 {
        let pattern = if is_class { Record::ClassPattern } else { Record::ValuePattern };
        walk.enter_direct(pattern, next.plus(4))?;
        next = generic::read_signature(walk, next.plus(8))?;
    }
    let has_resilient_superclass = is_class && kind_flags & HAS_RESILIENT_SUPERCLASS != 0;
    if has_resilient_superclass {
        next = next.plus(4);
    }
    match kind_flags & INITIALIZATION {
        FOREIGN => {
            walk.plain_function(next)?;
            next = next.plus(4);
        }
        SINGLETON => {
            if has_resilient_superclass {
                walk.enter_direct(Record::ResilientPattern, next.plus(4))?;
            }
            walk.plain_function(next.plus(8))?;
            next = next.plus(12);
        }
        _ => {}
    }
    if is_class { read_methods(walk, next, kind_flags) } else { Some(()) }
}

fn read_methods(walk: &mut Walk<'_, '_>, place: Address, kind_flags: u32) -> Option<()> {
    let mut next = place;
    if kind_flags & HAS_VTABLE != 0 {
        let count = walk.word(next.plus(4))?;
        next = next.plus(8);
        for _ in 0..count {
            walk.implementation(next.plus(4))?;
            next = next.plus(8);
        }
    }
    if kind_flags & HAS_OVERRIDE_TABLE != 0 {
        let count = walk.word(next)?;
        next = next.plus(4);
        for _ in 0..count {
            // The class and the method that is overridden, then the new one.
            walk.implementation(next.plus(8))?;
            next = next.plus(12);
        }
    }
    Some(())
}
