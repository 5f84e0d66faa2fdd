//! Patterns of key paths, which only code refers to.
//!
//! They are not listed anywhere, so a pattern is recognised by its whole form: the cache of the key path, its generic
//! signature, the names of its root and value types, a string for Objective-C, then parts that fill exactly the size that
//! precedes them. Both names must be well-formed and lie in the section of names. No other Swift record has this form; data
//! that has it by chance would also have to lead to the start of a function in the right place.
//! Source: Swift's `include/swift/ABI/KeyPath.h`.

use super::names;
use super::walk::Walk;
use crate::macho::section::Section;
use reorder_base::address::Address;

/// Bytes before the parts, where the size of the parts is in them, and its bits.
const HEAD: u64 = 24;
const SIZE_PLACE: u64 = 20;
const SIZE: u32 = 0x00ff_ffff;
const FLAGS: u32 = 0xc000_0000;

// Kinds of parts.
const KIND: u32 = 0x7f00_0000;
const EXTERNAL: u32 = 0;
const STORED_IN_STRUCT: u32 = 0x0100_0000;
const COMPUTED: u32 = 0x0200_0000;
const STORED_IN_CLASS: u32 = 0x0300_0000;
const OPTIONAL: u32 = 0x0400_0000;

const PAYLOAD: u32 = 0x00ff_ffff;
/// Offsets from here on are in a word of their own.
const FIRST_LONG_OFFSET: u32 = 0x007f_fffd;
const OFFSET: u32 = 0x007f_ffff;

// Flags of computed properties.
const IS_SETTABLE: u32 = 0x0040_0000;
const IS_KNOWN_BY_NUMBER: u32 = 0x0030_0000;
const HAS_ARGUMENTS: u32 = 0x0008_0000;
const RESOLUTION: u32 = 0xf;
/// The identity is the place of a pointer.
const INDIRECT: u32 = 2;

/// Reads all patterns among the constants.
pub(super) fn find(walk: &mut Walk<'_, '_>) {
    let file = walk.file;
    let constants = |section: &&Section<'_>| {
        section.has_bytes() && (section.is(b"__TEXT", b"__const") || section.name == b"__constg_swiftt")
    };
    for section in file.sections.iter().filter(constants) {
        let start = Address(section.address.0.checked_next_multiple_of(4).unwrap_or(section.end().0));
        for place in (start.0..section.end().0.saturating_sub(HEAD)).step_by(4).map(Address) {
            if let Some(fields) = read(walk, place, section.end()) {
                fields.into_iter().for_each(|field| {
                    // `None` would mean that the field lies outside the image, but it was read before.
                    let _ = walk.plain_function(field);
                });
            }
        }
    }
}

/// The fields with distances to functions of the pattern at `place`, if there is one.
fn read(walk: &Walk<'_, '_>, place: Address, end: Address) -> Option<Vec<Address>> {
    let word = |offset| walk.file.word_at(place.plus(offset));
    let size_and_flags = word(SIZE_PLACE)?;
    let size = u64::from(size_and_flags & SIZE);
    let has_names = is_name(walk, place.plus(8)) && is_name(walk, place.plus(12));
    if !has_names || size == 0 || !size.is_multiple_of(4) || size_and_flags & !(SIZE | FLAGS) != 0 {
        return None;
    }
    let leads_to = |offset, is_writable: bool| {
        let target = target_of(walk, place.plus(offset))?;
        let section = target.and_then(|target| walk.file.section_at(target));
        Some(target.is_none() || section.is_some_and(|section| (section.segment != b"__TEXT") == is_writable))
    };
    if !(leads_to(0, true)? && leads_to(4, false)? && leads_to(16, false)?) {
        return None;
    }
    let stop = Some(place.plus(HEAD + size)).filter(|stop| *stop <= end)?;
    read_parts(walk, place.plus(HEAD), stop)
}

fn read_parts(walk: &Walk<'_, '_>, start: Address, stop: Address) -> Option<Vec<Address>> {
    let (mut next, mut fields) = (start, Vec::new());
    while next < stop {
        let head = walk.file.word_at(next)?;
        let payload = head & PAYLOAD;
        let mut length = 4;
        match head & KIND {
            EXTERNAL => length += 4 + 4 * u64::from(payload),
            STORED_IN_STRUCT | STORED_IN_CLASS if payload & OFFSET >= FIRST_LONG_OFFSET => length += 4,
            STORED_IN_STRUCT | STORED_IN_CLASS => {}
            COMPUTED => {
                if head & IS_KNOWN_BY_NUMBER == 0 && head & RESOLUTION != INDIRECT {
                    fields.push(next.plus(4));
                }
                fields.push(next.plus(8));
                length = 12;
                if head & IS_SETTABLE != 0 {
                    fields.push(next.plus(length));
                    length += 4;
                }
                if head & HAS_ARGUMENTS != 0 {
                    // Their layout, a table of pointers, and the function that copies them.
                    fields.extend([next.plus(length), next.plus(length + 8)]);
                    length += 12;
                }
            }
            OPTIONAL => {}
            _ => return None,
        }
        next = next.plus(length);
        // A property of another library is followed by the parts to use without its description, other parts by the type
        // between them and the next.
        if next < stop && head & KIND != EXTERNAL {
            if !is_name(walk, next) {
                return None;
            }
            next = next.plus(4);
        }
    }
    (next == stop).then_some(fields)
}

/// Where the distance at `place` leads; the inner option is `None` for zero.
fn target_of(walk: &Walk<'_, '_>, place: Address) -> Option<Option<Address>> {
    let word = walk.file.word_at(place)?;
    // An odd distance leads to a pointer or to a name.
    Some((word != 0).then(|| place.plus(i64::from((word & !1) as i32) as u64)))
}

/// Whether the odd distance at `place` leads to a name in the section of names.
fn is_name(walk: &Walk<'_, '_>, place: Address) -> bool {
    let Some(word) = walk.file.word_at(place).filter(|word| word & 1 == 1) else { return false };
    let name = place.plus(i64::from((word & !1) as i32) as u64);
    let section = walk.file.section_at(name).filter(|section| section.name == b"__swift5_typeref");
    section.is_some_and(|section| names::is_name(walk.file, name, section.end()))
}
