use proptest::prelude::*;

use super::rebuild;
use crate::address_map::{AddressMap, Move};
use reorder_base::address::{Address, NewAddress};
use reorder_base::processor::Processor;
use reorder_image::macho::unwind_info::{HAS_EXCEPTION_TABLE, Place, UnwindEntry, UnwindInfo, is_dwarf};

const BASE: u64 = 0x1_0000_0000;
const PLACE: Place =
    Place { processor: Processor::Aarch64, base: Address(BASE), section: Address(BASE), origin: 0 };

fn at(offset: u64) -> Address {
    Address(BASE + offset)
}

fn info(entries: &[(u64, u32)], end: u64, exception_tables: &[(u64, u64)]) -> UnwindInfo {
    UnwindInfo {
        processor: PLACE.processor,
        base: PLACE.base,
        section: PLACE.section,
        size: 0,
        common_encodings: Vec::new(),
        personalities: vec![0x4008, 0x4010],
        entries: entries
            .iter()
            .map(|&(start, encoding)| UnwindEntry { start: at(start), encoding })
            .collect(),
        end: at(end),
        exception_tables: exception_tables
            .iter()
            .map(|&(function, table)| (at(function), at(table)))
            .collect(),
    }
}

fn map(moves: &[(u64, u64, u64)]) -> AddressMap {
    let moves =
        moves.iter().map(|&(old, new, size)| Move { old: at(old), new: NewAddress(BASE + new), size });
    AddressMap::new(moves).expect("ranges do not overlap")
}

fn rebuilt(info: &UnwindInfo, map: &AddressMap) -> UnwindInfo {
    let bytes = rebuild(info, map).expect("nothing is parted");
    assert_eq!(bytes.len() as u64, super::unwind_size(info, map).expect("nothing is parted"));
    UnwindInfo::decode(PLACE, &bytes).expect("what was written can be read")
}

/// Page kinds in the order of the first level.
fn page_kinds(bytes: &[u8]) -> Vec<u32> {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (index, count) = (word(20) as usize, word(24) as usize);
    (0..count - 1).map(|row| word(word(index + 12 * row + 4) as usize)).collect()
}

#[test]
fn neighbours_of_one_encoding_merge_where_allowed() {
    let lsda = HAS_EXCEPTION_TABLE | 0x0400_0001;
    let entries =
        [(0x100, 7), (0x110, 7), (0x120, lsda), (0x130, lsda), (0x140, 0x0300_0020), (0x150, 0x0300_0020)];
    let old = info(&entries, 0x160, &[(0x120, 0x900), (0x130, 0x910)]);
    let new = rebuilt(&old, &AddressMap::default());
    assert_eq!(
        new.entries.iter().map(|entry| entry.start.0 - BASE).collect::<Vec<_>>(),
        [0x100, 0x120, 0x130, 0x140, 0x150]
    );
    assert_eq!((new.end, &new.personalities), (old.end, &old.personalities));
    assert_eq!(new.exception_tables, old.exception_tables);
}

#[test]
fn what_no_entry_described_stays_so_wherever_it_goes() {
    // The first and the last range have no entry.
    let old = info(&[(0x110, 5), (0x120, 6)], 0x130, &[]);
    let new = rebuilt(
        &old,
        &map(&[(0x100, 0x120, 0x10), (0x110, 0x130, 0x10), (0x120, 0x100, 0x10), (0x130, 0x110, 0x10)]),
    );
    let encodings: Vec<u32> =
        [0xf0, 0x100, 0x110, 0x120, 0x130, 0x140].map(|offset| new.encoding_at(at(offset))).into();
    assert_eq!(encodings, [0, 6, 0, 0, 5, 0]);
    assert_eq!((new.end, new.entries.len()), (at(0x140), 3));
}

#[test]
fn an_entry_of_an_empty_function_hides_nothing() {
    // As lld writes it: one page of whole entries, two of which have the same start.
    let words = [1, 28, 0, 28, 0, 28, 2, 0x100, 52, 84, 0x130, 0, 84];
    let page = [2, 3 << 16 | 8, 0x100, 0, 0x100, 7, 0x120, 5];
    let bytes: Vec<u8> = words.into_iter().chain(page).flat_map(u32::to_le_bytes).collect();
    let old = UnwindInfo::decode(PLACE, &bytes).expect("the table is whole");
    assert_eq!([0x100, 0x11f, 0x120].map(|offset| old.encoding_at(at(offset))), [7, 7, 5]);
    let new = rebuilt(&old, &map(&[(0x100, 0x110, 0x20), (0x120, 0x100, 0x10)]));
    assert_eq!([0x100, 0x110, 0x12f].map(|offset| new.encoding_at(at(offset))), [5, 7, 7]);
}

#[test]
fn exception_tables_follow_their_functions() {
    let lsda = HAS_EXCEPTION_TABLE | 0x0400_0000;
    let old = info(&[(0x100, lsda), (0x110, lsda)], 0x120, &[(0x100, 0x900), (0x110, 0x910)]);
    let new = rebuilt(&old, &map(&[(0x100, 0x110, 0x10), (0x110, 0x100, 0x10)]));
    assert_eq!(new.exception_tables, [(at(0x100), at(0x910)), (at(0x110), at(0x900))]);
    let parted = rebuild(&old, &map(&[(0x100, 0x108, 0x8), (0x108, 0x100, 0x8)]));
    assert!(parted.is_err_and(|error| error.to_string().contains("M13")));
}

#[test]
fn encodings_beyond_the_common_ones_make_pages() {
    // 200 encodings, each twice: 127 are common and the others fit beside them into one page.
    let twice: Vec<(u64, u32)> = (0..400).map(|number| (number * 4, 1 + (number % 200) as u32)).collect();
    let old = info(&twice, 1600, &[]);
    let bytes = rebuild(&old, &AddressMap::default()).expect("it is small");
    assert_eq!(page_kinds(&bytes), [3]);
    assert_eq!(rebuilt(&old, &AddressMap::default()).entries, old.entries);
    // 600 encodings, each once: whole encodings are shorter.
    let once: Vec<(u64, u32)> = (0..600).map(|number| (number * 4, 1 + number as u32)).collect();
    let old = info(&once, 2400, &[]);
    let bytes = rebuild(&old, &AddressMap::default()).expect("it is small");
    assert_eq!(page_kinds(&bytes), [2]);
    assert_eq!(rebuilt(&old, &AddressMap::default()).entries, old.entries);
}

#[test]
fn far_and_many_functions_make_pages() {
    let far = info(&[(0, 1), (0xff_ffff, 2), (0x100_0000, 1), (0x4000_0000, 2)], 0x5000_0000, &[]);
    let bytes = rebuild(&far, &AddressMap::default()).expect("it is small");
    assert_eq!(page_kinds(&bytes).len(), 3);
    assert_eq!(rebuilt(&far, &AddressMap::default()).entries, far.entries);
    let many: Vec<(u64, u32)> = (0..40_000).map(|number| (number * 8, 1 + (number % 3) as u32)).collect();
    let many = info(&many, 320_000, &[]);
    assert_eq!(rebuilt(&many, &AddressMap::default()).entries, many.entries);
}

#[test]
fn padding_that_is_moved_over_says_nothing() {
    // Ten bytes of padding after each function; the functions change places and the padding's place.
    let old = info(&[(0x100, 5), (0x10c, 9), (0x110, 6)], 0x120, &[]);
    let new = rebuilt(&old, &map(&[(0x100, 0x110, 0xc), (0x110, 0x100, 0x10)]));
    let encodings: Vec<u32> =
        [0x100, 0x10c, 0x10f, 0x110, 0x11b].map(|offset| new.encoding_at(at(offset))).into();
    assert_eq!(encodings, [6, 6, 6, 5, 5]);
}

/// Functions of 16 bytes with an encoding each, some without, and an order of them.
fn functions() -> impl Strategy<Value = (Vec<Option<u32>>, Vec<usize>)> {
    let encoding = prop_oneof![
        Just(None),
        (1u32..4).prop_map(Some),
        (0u32..9).prop_map(|number| Some(0x0300_0000 | number)),
        (0u32..3).prop_map(|number| Some(HAS_EXCEPTION_TABLE | 0x0400_0000 | number)),
    ];
    prop::collection::vec(encoding, 1..60).prop_flat_map(|functions| {
        let order: Vec<usize> = (0..functions.len()).collect();
        (Just(functions), Just(order).prop_shuffle())
    })
}

proptest! {
    #[test]
    fn every_function_keeps_its_encoding_and_table((functions, order) in functions()) {
        let offset = |index: usize| 0x1000 + 16 * index as u64;
        let known = || functions.iter().enumerate().filter_map(|(index, encoding)| Some((index, (*encoding)?)));
        let first = known().next().map_or(0, |(index, _)| index);
        let last = known().next_back().map_or(0, |(index, _)| index + 1);
        let entries: Vec<(u64, u32)> =
            (first..last).map(|index| (offset(index), functions[index].unwrap_or(0))).collect();
        let tables: Vec<(u64, u64)> = known()
            .filter(|(_, encoding)| encoding & HAS_EXCEPTION_TABLE != 0)
            .map(|(index, _)| (offset(index), 0x9000 + index as u64))
            .collect();
        let old = info(&entries, offset(last), &tables);
        let moves: Vec<_> = order.iter().enumerate().map(|(new, old)| (offset(*old), offset(new), 16)).collect();
        let map = map(&moves);
        let new = rebuilt(&old, &map);
        for index in 0..functions.len() {
            for byte in [0, 15] {
                let (before, after) = (at(offset(index) + byte), Address(map.map(at(offset(index) + byte)).0));
                prop_assert_eq!(new.encoding_at(after), old.encoding_at(before));
            }
            let (before, after) = (at(offset(index)), Address(map.map(at(offset(index))).0));
            prop_assert_eq!(new.exception_table_at(after), old.exception_table_at(before));
            let encoding = old.encoding_at(before);
            if encoding & HAS_EXCEPTION_TABLE != 0 || is_dwarf(Processor::Aarch64, encoding) {
                let entry = new.entry_at(after).expect("the function has an entry");
                prop_assert_eq!(new.entries[entry].start, after);
            }
        }
        prop_assert_eq!(new.encoding_at(at(0)), 0);
        prop_assert_eq!(new.encoding_at(at(0x10_0000)), 0);
    }

    #[test]
    fn damage_is_survived(
        (functions, _) in functions(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let entries: Vec<(u64, u32)> =
            functions.iter().enumerate().map(|(index, encoding)| (16 * index as u64, encoding.unwrap_or(0))).collect();
        let end = 16 * functions.len() as u64;
        let mut bytes = rebuild(&info(&entries, end, &[]), &AddressMap::default()).expect("it is small");
        for (place, byte) in edits {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(read) = UnwindInfo::decode(PLACE, &bytes) {
            prop_assert!(read.entries.len() <= bytes.len() + 1);
            let _ = rebuild(&read, &AddressMap::default());
        }
    }
}
