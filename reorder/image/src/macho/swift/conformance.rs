//! Descriptors of conformances of types to protocols.

use super::generic;
use super::walk::{Record, Walk};
use reorder_base::address::Address;

// Flags.
const TYPE_KIND: u32 = 7 << 3;
const DIRECT_TYPE: u32 = 0;
const IS_RETROACTIVE: u32 = 1 << 6;
const REQUIREMENTS: u32 = 0xff << 8;
const HAS_RESILIENT_WITNESSES: u32 = 1 << 16;
const HAS_GENERIC_WITNESS_TABLE: u32 = 1 << 17;

/// Reads the descriptor at `place`. The witness table itself has pointers, which the loader rebases.
pub(super) fn read(walk: &mut Walk<'_, '_>, place: Address) -> Option<()> {
    walk.enter_indirect(Record::Context, place, 3)?;
    let flags = walk.word(place.plus(12))?;
    if flags & TYPE_KIND == DIRECT_TYPE {
        walk.enter_direct(Record::Context, place.plus(4))?;
    }
    let mut next = place.plus(16);
    if flags & IS_RETROACTIVE != 0 {
        next = next.plus(4);
    }
    for _ in 0..(flags & REQUIREMENTS) >> 8 {
        next = generic::read_requirement(walk, next)?;
    }
    let packs = flags >> 24;
    next = next.plus(8 * u64::from(packs));
    if flags & HAS_RESILIENT_WITNESSES != 0 {
        let count = walk.word(next)?;
        next = next.plus(4);
        for _ in 0..count {
            // The requirement, then its witness.
            walk.implementation(next.plus(4))?;
            next = next.plus(8);
        }
    }
    if flags & HAS_GENERIC_WITNESS_TABLE != 0 {
        // Two sizes, the function that makes the table, and its private data.
        walk.plain_function(next.plus(4))?;
    }
    Some(())
}
