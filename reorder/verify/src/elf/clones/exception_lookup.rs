//! What a personality routine finds in the exception table of a function, for one place in it.
//!
//! Takes a table and the start of its function; answers where an exception that passes the place goes on, and which types are
//! caught there. Source: Itanium C++ ABI, "Exception Handling Tables", and the routines of GCC and LLVM, which stop at the
//! first call site after the place.

use std::ops::Range;

use goblin::elf::header::ET_EXEC;

use crate::bytes::{displacement_at, signed_leb128, u32_at, u64_at, unsigned_leb128};
use crate::elf::unwind_walk::{INDIRECT, OMITTED};
use crate::elf::view::ElfView;
use crate::exception_table::number;

/// What the table says of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No call site: the program is terminated.
    Missing,
    /// The exception goes on to the caller.
    NoPad,
    /// The exception goes on at this address, a plain number, if one of these filters wants it.
    Pad(u64, Vec<Filter>),
}

/// One filter of a landing pad. The pad gets its number and compares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    number: i64,
    /// The types that it names, in order; `None` catches all.
    types: Vec<Option<TypeReference>>,
}

/// `DW_EH_PE_uleb128`, the form of call sites that GCC and LLVM choose.
const UNSIGNED: u8 = 0x01;

/// Longer chains of filters are circles, or not made by a compiler.
const MAX_FILTERS: usize = 1024;

/// The address of a type, or of the word that holds it.
type TypeReference = (bool, u64);

/// A range of calls with a common landing pad.
#[derive(Clone, Copy, Debug)]
struct Site {
    start: u64,
    end: u64,
    /// Zero for none.
    pad: u64,
    /// Position in the action table, counted from one; zero for cleanup alone.
    action: u64,
}

/// A table that was read.
#[derive(Debug)]
pub(super) struct ExceptionTable<'data> {
    /// The section from the table on.
    bytes: &'data [u8],
    address: u64,
    is_fixed: bool,
    /// What landing pads count from.
    base: u64,
    /// Encoding of the call sites.
    encoding: u8,
    sites: Vec<Site>,
    /// Position of the action table.
    actions: usize,
    /// Encoding of types, and the position after their table, which is read backwards.
    types: Option<(u8, usize)>,
}

impl<'data> ExceptionTable<'data> {
    /// The table of `image` at `address`, for the function or copy at `start`; `None` when it is not understood, or has more
    /// call sites than the `budget` that all tables of an image share.
    pub(super) fn read(image: &ElfView<'data>, address: u64, start: u64, budget: &mut usize) -> Option<Self> {
        let section = image.section_at(address)?;
        let bytes: &'data [u8] = section.bytes.get((address - section.address) as usize..)?;
        Self::parse((bytes, address), image.header.e_type == ET_EXEC, start, budget)
    }

    fn parse(
        (bytes, address): (&'data [u8], u64),
        is_fixed: bool,
        start: u64,
        budget: &mut usize,
    ) -> Option<Self> {
        let mut cursor = 1;
        let base = match *bytes.first()? {
            OMITTED => start,
            encoding => match pointer(bytes, &mut cursor, encoding, address, is_fixed)?? {
                (false, base) => base,
                (true, _) => return None,
            },
        };
        let encoding = *bytes.get(cursor)?;
        cursor += 1;
        let types = match encoding {
            OMITTED => None,
            _ => {
                let size = usize::try_from(unsigned_leb128(bytes, &mut cursor)?).ok()?;
                let end = cursor.checked_add(size).filter(|end| *end <= bytes.len())?;
                Some((encoding, end))
            }
        };
        let encoding = *bytes.get(cursor)?;
        cursor += 1;
        let size = usize::try_from(unsigned_leb128(bytes, &mut cursor)?).ok()?;
        let actions = cursor.checked_add(size)?;
        let table = bytes.get(..actions)?;
        let mut sites = Vec::new();
        while cursor < actions {
            *budget = budget.checked_sub(1)?;
            let from = start.wrapping_add(number(table, &mut cursor, encoding)?);
            let end = from.wrapping_add(number(table, &mut cursor, encoding)?);
            let pad = match number(table, &mut cursor, encoding)? {
                0 => 0,
                pad => base.wrapping_add(pad),
            };
            let action = unsigned_leb128(table, &mut cursor)?;
            sites.push(Site { start: from, end, pad, action });
        }
        // Other orders have another meaning: the search ends at the first site after the place.
        let is_sorted = sites.windows(2).all(|sites| sites[0].end <= sites[1].start);
        let is_sound = is_sorted && sites.iter().all(|site| site.start <= site.end);
        is_sound.then_some(Self { bytes, address, is_fixed, base, encoding, sites, actions, types })
    }

    /// The addresses of the table, with the actions and types that its call sites lead to.
    pub(super) fn extent(&self) -> Range<u64> {
        let used = self.sites.iter().filter_map(|site| self.end_of_action(site.action)).max();
        let types = self.types.map_or(0, |(_, end)| end);
        let size = used.unwrap_or(0).max(types).max(self.actions);
        self.address..self.address.saturating_add(size as u64)
    }

    /// The position after all records and lists of a chain of actions.
    fn end_of_action(&self, action: u64) -> Option<usize> {
        let mut cursor = self.actions.checked_add(usize::try_from(action.checked_sub(1)?).ok()?)?;
        let mut end = 0;
        for _ in 0..MAX_FILTERS {
            let filter = signed_leb128(self.bytes, &mut cursor)?;
            if filter < 0 {
                let (_, lists) = self.types?;
                let mut list =
                    lists.checked_add(usize::try_from(filter.checked_add(1)?.unsigned_abs()).ok()?)?;
                while unsigned_leb128(self.bytes, &mut list)? != 0 {}
                end = end.max(list);
            }
            let place = cursor;
            let distance = signed_leb128(self.bytes, &mut cursor)?;
            end = end.max(cursor);
            if distance == 0 {
                break;
            }
            cursor = place.checked_add_signed(isize::try_from(distance).ok()?)?;
        }
        Some(end)
    }

    /// The addresses from the start of the first call site to the end of the last.
    pub(super) fn described(&self) -> Option<Range<u64>> {
        Some(self.sites.first()?.start..self.sites.last()?.end)
    }

    /// The position in the action table that the call site around `place` names, if there is a call site.
    pub(super) fn action_at(&self, place: u64) -> Option<u64> {
        self.site_at(place).map(|site| site.action)
    }

    /// Whether all that its call sites do not say is as in `old`, or by default: what landing pads count from if there are none,
    /// the form of call sites if there are none, the form of types, and each byte of actions, types and lists, also those that
    /// no call site leads to.
    pub(super) fn repeats(&self, old: &Self) -> bool {
        let has_form = match (self.types, old.types) {
            (None, _) => true,
            (Some((encoding, _)), old) => old.is_some_and(|(expected, _)| encoding == expected),
        };
        let has_base = self.base == old.base || self.sites.iter().any(|site| site.pad != 0);
        let is_read = !self.sites.is_empty() || self.encoding == UNSIGNED;
        has_base && is_read && has_form && self.repeats_rest(old).unwrap_or(false)
    }

    /// Whether the actions begin as those of `old`, nothing but the same types follows, and then lists begin as those of `old`.
    /// How many types there are is not stated anywhere.
    fn repeats_rest(&self, old: &Self) -> Option<bool> {
        let extent = self.extent();
        let end = usize::try_from(extent.end.checked_sub(extent.start)?).ok()?;
        let types_end = self.types.map_or(end, |(_, end)| end);
        let actions = self.bytes.get(self.actions..types_end)?;
        let same = actions.iter().zip(old.bytes.get(old.actions..)?).take_while(|(new, old)| new == old);
        let rest = actions.len() - same.count();
        let (Some((encoding, _)), Some((_, old_end))) = (self.types, old.types) else {
            return Some(rest == 0);
        };
        let types = rest.div_ceil(pointer_size(encoding)?) as u64;
        let is_same = |number| self.type_at(number).is_some_and(|found| old.type_at(number) == Some(found));
        let lists = self.bytes.get(types_end..end)?;
        Some((1..=types).all(is_same) && old.bytes.get(old_end..)?.starts_with(lists))
    }

    fn site_at(&self, place: u64) -> Option<&Site> {
        let after = self.sites.partition_point(|site| site.start <= place);
        self.sites[..after].last().filter(|site| place < site.end)
    }

    /// What the table says of the byte at `place`; `None` when its filters are not understood.
    pub(super) fn at(&self, place: u64) -> Option<Found> {
        Some(match self.site_at(place) {
            None => Found::Missing,
            Some(Site { pad: 0, .. }) => Found::NoPad,
            Some(site) => Found::Pad(site.pad, self.filters(site.action)?),
        })
    }

    fn filters(&self, action: u64) -> Option<Vec<Filter>> {
        let mut filters = Vec::new();
        if action == 0 {
            return Some(filters);
        }
        let mut cursor = self.actions.checked_add(usize::try_from(action - 1).ok()?)?;
        while filters.len() < MAX_FILTERS {
            let number = signed_leb128(self.bytes, &mut cursor)?;
            filters.push(Filter { number, types: self.types_of(number)? });
            let place = cursor;
            match signed_leb128(self.bytes, &mut cursor)? {
                0 => return Some(filters),
                distance => cursor = place.checked_add_signed(isize::try_from(distance).ok()?)?,
            }
        }
        None
    }

    /// The types of a filter: one for a catch clause, a list for an exception specification, none for cleanup.
    fn types_of(&self, filter: i64) -> Option<Vec<Option<TypeReference>>> {
        const MAX_TYPES: usize = 1024;
        if filter >= 0 {
            let number = u64::try_from(filter).ok().filter(|number| *number > 0);
            return number.map_or(Some(Vec::new()), |number| Some(vec![self.type_at(number)?]));
        }
        let (_, end) = self.types?;
        let mut cursor = end.checked_add(usize::try_from(filter.checked_add(1)?.unsigned_abs()).ok()?)?;
        let mut types = Vec::new();
        while types.len() < MAX_TYPES {
            match unsigned_leb128(self.bytes, &mut cursor)? {
                0 => return Some(types),
                number => types.push(self.type_at(number)?),
            }
        }
        None
    }

    /// The type with this number, counted from one. The inner `None` catches all.
    fn type_at(&self, number: u64) -> Option<Option<TypeReference>> {
        let (encoding, end) = self.types?;
        let size = pointer_size(encoding)?;
        let mut cursor = end.checked_sub(usize::try_from(number).ok()?.checked_mul(size)?)?;
        pointer(self.bytes, &mut cursor, encoding, self.address, self.is_fixed)
    }
}

/// Bytes of a pointer of this encoding.
fn pointer_size(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}

/// Reads one encoded pointer of a table at `address`. The outer `None`: not understood; the inner: null. Absolute pointers
/// are known only in images at a fixed address; in others the loader writes them.
fn pointer(
    bytes: &[u8],
    cursor: &mut usize,
    encoding: u8,
    address: u64,
    is_fixed: bool,
) -> Option<Option<TypeReference>> {
    let place = address.wrapping_add(*cursor as u64);
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => u64_at(bytes, *cursor)?,
        0x03 => u64::from(u32_at(bytes, *cursor)?),
        0x0b => displacement_at(bytes, *cursor)?,
        _ => return None,
    };
    *cursor += pointer_size(encoding)?;
    let base = match encoding & 0x70 {
        0x00 if is_fixed => 0,
        0x10 => place,
        _ => return None,
    };
    Some((value != 0).then(|| (encoding & INDIRECT != 0, base.wrapping_add(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x2000;
    const START: u64 = 0x1000;

    fn parse(bytes: &[u8], budget: usize) -> Option<ExceptionTable<'_>> {
        ExceptionTable::parse((bytes, ADDRESS), true, START, &mut { budget })
    }

    /// Two call sites; the second has a catch clause, then a specification, then cleanup. Types are absolute words: the
    /// second catches all.
    const TABLE: [u8; 30] = [
        0xff, 0x03, 25, // no base; types end at 28
        0x01, 8, 4, 4, 0, 0, 0x10, 8, 0x20, 1, // call sites
        1, 1, 0x7f, 1, 0, 0, 0, // actions: 1, then -1, then 0; an unused byte
        0, 0, 0, 0, 0x34, 0x12, 0, 0, // types 2 and 1
        2, 0, // the list of filter -1
    ];

    #[test]
    fn sites_pads_and_filters_are_found() {
        let table = parse(&TABLE, 10).expect("a table");
        assert_eq!(table.extent(), ADDRESS..ADDRESS + 30);
        assert_eq!((table.at(START), table.at(START + 8)), (Some(Found::Missing), Some(Found::Missing)));
        assert_eq!((table.at(START + 4), table.at(START + 7)), (Some(Found::NoPad), Some(Found::NoPad)));
        let filters = vec![
            Filter { number: 1, types: vec![Some((false, 0x1234))] },
            Filter { number: -1, types: vec![None] },
            Filter { number: 0, types: vec![] },
        ];
        assert_eq!(table.at(START + 0x17), Some(Found::Pad(START + 0x20, filters)));
        assert_eq!(table.at(START + 0x18), Some(Found::Missing));
    }

    #[test]
    fn what_no_call_site_needs_is_the_old_one() {
        let old = parse(&TABLE, 10).expect("a table");
        let with = |at: usize, byte: u8| {
            let mut table = TABLE;
            table[at] = byte;
            parse(&table, 10).expect("a table that can be read").repeats(&old)
        };
        assert!(with(0, 0xff));
        assert!(with(12, 0), "another action is for the comparison of call sites to find");
        assert!(!with(19, 5), "a byte of actions that nothing reads");
        assert!(!with(20, 1), "a type");
        assert!(!with(28, 1), "a list of types");
        assert!(!with(1, 0x0b), "the form of types");
        let cleanup = [0xff, 0xff, 0x01, 4, 0x10, 8, 0x20, 0];
        assert!(parse(&cleanup, 10).expect("a table without types").repeats(&old));
        let empty = |encoding| {
            let table = [0xff, 0xff, encoding, 0];
            parse(&table, 10).expect("a table without call sites").repeats(&old)
        };
        assert!(empty(0x01) && !empty(0x41), "a form of call sites that nothing reads");
        let elsewhere = |pad| {
            let table = [0xff, 0xff, 0x01, 4, 0x10, 8, pad, 0];
            let table = ExceptionTable::parse((&table, ADDRESS), true, START + 1, &mut 10);
            table.expect("a table").repeats(&old)
        };
        assert!(elsewhere(0x1f), "pads are compared themselves");
        assert!(!elsewhere(0), "none of them, and another place to count from");
        let action = [0xff, 0xff, 0x01, 4, 0x10, 8, 0x20, 1, 0, 0];
        assert!(!parse(&action, 10).expect("a table with an action").repeats(&old), "another action");
    }

    #[test]
    fn tables_that_unwinders_read_in_another_way_are_refused() {
        let with = |at: usize, byte: u8| {
            let mut table = TABLE;
            table[at] = byte;
            parse(&table, 10).is_some()
        };
        assert!(with(0, 0xff));
        assert!(!with(9, 2), "a site before the last");
        assert!(!with(4, 7), "a site that the call sites cut");
        assert!(parse(&TABLE[..12], 10).is_none(), "a truncated table");
        assert!(parse(&TABLE, 1).is_none(), "more sites than are worth reading");
        let place = |at: usize, byte: u8| {
            let mut table = TABLE;
            table[at] = byte;
            parse(&table, 10).expect("sites that can be read").at(START + 0x10)
        };
        assert_eq!(place(14, 0x7f), None, "a circle of filters");
        assert_eq!(place(13, 9), None, "a type before the table");
        assert_eq!(place(1, 0x20), None, "types of an unknown form");
        // Absolute words of an image that the loader relocates.
        let relocated = ExceptionTable::parse((&TABLE, ADDRESS), false, START, &mut 10).expect("sites");
        assert_eq!(relocated.at(START + 0x10), None);
        assert_eq!(relocated.at(START + 4), Some(Found::NoPad));
    }

    proptest::proptest! {
        /// Any bytes: an answer for every place, in bounded time.
        #[test]
        fn hostile_tables_end(
            mut table in proptest::collection::vec(proptest::num::u8::ANY, 0..96),
            is_plain in proptest::bool::ANY,
        ) {
            if is_plain && table.len() > 4 {
                table[..4].copy_from_slice(&[0xff, 0x03, 60, 0x01]);
            }
            if let Some(table) = parse(&table, 1000) {
                for place in START..START + 64 {
                    let _ = table.at(place);
                }
            }
        }
    }
}
