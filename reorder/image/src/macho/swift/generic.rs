//! Generic signatures, read for their names and to find the data after them.

use super::walk::{Record, Walk};
use reorder_base::address::Address;

// Kinds of requirements, in the lowest five bits of their flags.
const CONFORMS: u32 = 0;
const SAME_TYPE: u32 = 1;
const BASE_CLASS: u32 = 2;

// Flags of a signature.
const HAS_PACKS: u16 = 1;
const HAS_INVERTED_PROTOCOLS: u16 = 2;
const HAS_VALUES: u16 = 4;

/// Reads the signature at `place`; gives the place after it.
pub(super) fn read_signature(walk: &mut Walk<'_, '_>, place: Address) -> Option<Address> {
    let (parameters, requirements) = (walk.half(place)?, walk.half(place.plus(2))?);
    let flags = walk.half(place.plus(6))?;
    let mut next = aligned(place.plus(8 + u64::from(parameters)));
    for _ in 0..requirements {
        next = read_requirement(walk, next)?;
    }
    if flags & HAS_PACKS != 0 {
        let packs = walk.half(next)?;
        next = next.plus(4 + 8 * u64::from(packs));
    }
    if flags & HAS_INVERTED_PROTOCOLS != 0 {
        // A bit for each protocol, then for each bit that is set the number of requirements up to it.
        let protocols = u64::from(walk.half(next)?.count_ones());
        let last = next.plus(2 * protocols);
        let count = if protocols > 0 { walk.half(last)? } else { 0 };
        next = aligned(last.plus(2));
        for _ in 0..count {
            next = read_requirement(walk, next)?;
        }
    }
    if flags & HAS_VALUES != 0 {
        let values = walk.word(next)?;
        next = next.plus(4 + 4 * u64::from(values));
    }
    Some(next)
}

/// Reads the requirement at `place`; gives the place after it.
pub(super) fn read_requirement(walk: &mut Walk<'_, '_>, place: Address) -> Option<Address> {
    let subject = place.plus(8);
    match walk.word(place)? & 0x1f {
        // The second bit tells protocols of Objective-C.
        CONFORMS if walk.word(subject)? & 2 == 0 => walk.enter_indirect(Record::Context, subject, 3)?,
        SAME_TYPE | BASE_CLASS => walk.enter_direct(Record::Name, subject)?,
        _ => {}
    }
    Some(place.plus(12))
}

fn aligned(place: Address) -> Address {
    Address(place.0.checked_next_multiple_of(4).unwrap_or(place.0))
}
