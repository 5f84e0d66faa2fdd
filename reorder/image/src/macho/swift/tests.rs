//! Records of each kind, written by hand and linked for both processors, and damaged ones.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{SwiftReferences, references};
use crate::macho::file::MachOFile;
use crate::macho::{fixups, linked, symbol_table};
use reorder_base::address::Address;

/// Functions `_a` to `_l`, and what writes the distance to a place.
const FUNCTIONS: &str = "
    .text
    .irp name, a, b, c, d, e, f, g, h, i, j, k, l
    .globl _\\name
    .p2align 4
    _\\name: .long 0, 0, 0, 0
    .endr
    .macro to place
    .long \\place - .
    .endm
    .macro section name
    .section __TEXT,\\name
    .p2align 2
    .endm
";

fn starts(file: &MachOFile<'_>) -> BTreeMap<Address, String> {
    let text = file.text().range();
    symbol_table::symbols(file)
        .unwrap()
        .filter_map(|symbol| Some((symbol.address()?, String::from_utf8_lossy(symbol.name).into_owned())))
        .filter(|(address, _)| text.contains(address))
        .collect()
}

fn read(bytes: &[u8]) -> (SwiftReferences, BTreeMap<Address, String>) {
    let file = MachOFile::parse(bytes).unwrap();
    let starts = starts(&file);
    let addresses: Vec<Address> = starts.keys().copied().collect();
    (references(&file, &fixups::rebases(&file).unwrap(), &addresses).unwrap(), starts)
}

/// The functions, by place of the field, that known fields of `records` lead to, and those of unknown words.
fn functions(records: &str) -> (String, String) {
    let mut results = ["arm64", "x86_64"].map(|architecture| {
        let source = format!("{FUNCTIONS}\n{records}\n");
        let (found, starts) = read(&linked::library(architecture, "s", &source, &[], &[]));
        let name = |address: &Address| starts[address].trim_start_matches('_').to_owned();
        let known = found.references.iter().map(|field| name(&field.target)).collect::<String>();
        (known, found.unknown.iter().map(|(_, function)| name(function)).collect::<String>())
    });
    assert_eq!(results[0], results[1], "the records do not depend on the processor");
    std::mem::take(&mut results[0])
}

/// What `records` say if everything in them is known.
fn known(records: &str) -> String {
    let (known, unknown) = functions(records);
    assert_eq!(unknown, "", "{known}");
    known
}

#[test]
fn lists_of_functions() {
    let records = "
        section __swift_as_entry\nl_entry: to _a\n to _b
        section __swift_as_ret\nl_ret: to _c
        section __swift_as_cont\nl_cont: to _d
        section __swift5_entry\nl_main: to _e
        section __swift5_acfuncs\nl_accessible: .long 0, 0, 0\n to _f\n .long 0\n .long 0, 0, 0\n to l_framed\n .long 0
        section __const\nl_framed: to _g\n .long 32";
    let mut letters: Vec<char> = known(records).chars().collect();
    letters.sort_unstable();
    assert_eq!(letters.into_iter().collect::<String>(), "abcdefg");
}

#[test]
fn replacements() {
    let records = "
        section __swift5_replace\nl_list: .long 0, 1\n to l_scope\n .long 0
        section __const\nl_scope: .long 0, 2\n .long 0\n to _b\n .long 0, 0\n .long 0\n to _a\n .long 0, 0";
    assert_eq!(known(records), "ba");
}

#[test]
fn types_with_all_that_may_follow() {
    // A generic class: two parameters, one requirement; a singleton with a superclass from elsewhere; a table of methods,
    // one of them asynchronous, and one override.
    let class = "
        section __swift5_types\nl_list: to l_class
        section __const
        l_class: .long 0xe00100d0, 0, 0\n to _a\n .long 0, 0, 0, 0, 0, 0, 0
        .long 0\n to l_pattern\n .short 2, 1, 2, 0\n .byte 0x80, 0x80, 0, 0\n .long 0x80, 0, 0
        .long 0
        .long 0\n to l_resilient\n to _b
        .long 9, 3\n .long 0x10\n to _c\n .long 0x30\n to l_framed\n .long 0x11\n to _d
        .long 1\n .long 0, 0\n to _e
        l_pattern: to _f\n to _g\n .long 0\n to _h\n to _i
        l_resilient: to _j\n to _k\n to _l\n .long 0, 0, 0
        l_framed: to _a\n .long 48";
    assert_eq!(known(class), "abcdefghijkla");
    // A generic structure whose signature has packs, inverted protocols and values, then an imported enumeration.
    let values = "
        section __swift5_types2\nl_list: to l_struct\n to l_enum
        section __const
        l_struct: .long 0x000200d1, 0, 0\n to _a\n .long 0, 0, 0
        .long 0\n to l_pattern\n .short 1, 0, 1, 7\n .byte 0x80, 0, 0, 0
        .short 1, 1\n .short 0, 0, 0, 0
        .short 3, 0, 1, 0\n .long 0x80, 0, 0
        .long 1, 0
        to _b
        l_enum: .long 0x00020052, 0, 0\n to _c\n .long 0, 0, 0\n to _d
        l_pattern: to _e\n .long 0, 0";
    let (found, unknown) = functions(values);
    assert_eq!((found.as_str(), unknown.as_str()), ("abcde", ""));
}

#[test]
fn protocols_and_their_parents() {
    let records = "
        section __swift5_protos\nl_list: to l_protocol
        section __const
        l_protocol: .long 0x43\n to l_parent\n .long 0, 1, 3, 0
        .long 0x80, 0, 0
        .long 0x11\n to _a\n .long 0x31\n to l_framed\n .long 7\n .long l_name + 1 - .
        l_framed: to _b\n .long 16
        l_name: .byte 0xff, 7\n to _c\n .byte 0, 0
        l_parent: .long 0x51, 0, 0\n to _d\n .long 0, 0, 0";
    assert_eq!(known(records), "abcd");
}

#[test]
fn conformances_with_all_that_may_follow() {
    let records = "
        section __swift5_proto\nl_list: to l_conformance
        section __const
        l_conformance: .long 1\n to l_struct\n .long 0\n .long 0x01030140
        .long 0
        .long 1, 0\n to l_same
        .long 0, 0
        .long 2\n .long 0\n to _a\n .long 0\n to _b
        .short 3, 1\n to _c\n .long 0
        l_same: .byte 9\n to _d\n .byte 0, 0, 0
        l_struct: .long 0x51, 0, 0\n to _e\n .long 0, 0, 0";
    assert_eq!(known(records), "abcde");
}

#[test]
fn names_with_functions_at_any_place() {
    let records = "
        section __swift5_typeref
        l_names: .asciz \"Sa\"\n .byte 0\n l_first: .byte 1\n to l_struct\n .ascii \"Qo\"\n l_second: .byte 9\n to _a
        .byte 0x1e, 1, 2, 3, 4, 5, 6, 7, 8\n .byte 0, 0
        l_third: .byte 0xff, 9\n to _b\n .byte 0\n .byte 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0
        section __const\nl_struct: .long 0x51, 0, 0\n to _c\n .long 0, 0, 0";
    let mut letters: Vec<char> = known(records).chars().collect();
    letters.sort_unstable();
    assert_eq!(letters, ['a', 'b', 'c']);
}

#[test]
fn records_that_only_symbols_or_pointers_tell() {
    let records = "
        section __swift5_entry\nl_main: .long 0
        section __const
        \"_$s1m1fyyYaFTu\": to _a\n .long 16
        \"_$s1m1xSivpMV\": .long 0x02400000, 0\n to _b\n to _c
        \"_$s1m1ySivpMV\": .long 0x02000000, 0\n to _d\n .long 0
        l_accessor: .byte 0xff, 7\n to _e\n .byte 0, 0
        .data\n .p2align 3\n l_table: .quad l_accessor + 1";
    assert_eq!(known(records), "abcde");
}

#[test]
fn key_paths_are_known_by_their_whole_form() {
    // A property of another library with what to do without, a stored one, and one with arguments.
    let pattern = "
        l_path: to l_once\n .long 0\n .long l_root + 1 - .\n .long l_value + 1 - .\n .long 0, 0x80000048
        .long 0x00000000\n .long l_pointer + 1 - .
        .long 0x02c00002\n .long l_pointer - .\n to _a\n to _b\n .long l_value + 1 - .
        .long 0x01000008\n .long l_root + 1 - .
        .long 0x03fffffd, 16\n .long l_value + 1 - .
        .long 0x02080000\n to _c\n to _d\n to _e\n .long 0\n to _f";
    let names = "
        section __swift5_typeref\nl_root: .asciz \"Sa\"\n .byte 0\nl_value: .asciz \"SS\"
        .data\n .p2align 3\nl_once: .quad 0\nl_pointer: .quad 0";
    assert_eq!(known(&format!("{names}\n section __const\n{pattern}")), "abcdef");
    // One byte off, and it is no pattern.
    for (right, wrong) in
        [("0x80000048", "0x80000044"), ("l_root + 1", "l_root + 2"), ("0x02080000", "0x05080000")]
    {
        let (found, _) =
            functions(&format!("{names}\n section __const\n{}", pattern.replacen(right, wrong, 1)));
        assert_eq!(found, "", "{wrong}");
    }
}

#[test]
fn what_no_record_explains_is_unknown() {
    let records = "
        section __swift5_entry\nl_main: .long _a + 4 - .
        section __const\nl_words: .long 7\n to _b\n .byte 1\n to _c\n .byte 0, 0, 0
        .section __TEXT,__cstring,cstring_literals\nl_text: .asciz \"not here\"";
    let (found, unknown) = functions(records);
    let mut unknown: Vec<char> = unknown.chars().collect();
    unknown.sort_unstable();
    assert_eq!((found.as_str(), unknown.as_slice()), ("", &['a', 'b', 'c'][..]));
    let without = "section __const\nl_words: to _b";
    assert_eq!(functions(without), (String::new(), String::new()), "an image without Swift");
}

proptest! {
    #[test]
    fn damage_is_survived_and_never_invents_functions(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        static LIBRARY: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = LIBRARY
            .get_or_init(|| {
                let records = "
                    section __swift5_types\nl_types: to l_class
                    section __swift5_proto\nl_conformances: to l_conformance
                    section __swift5_protos\nl_protocols: to l_protocol
                    section __swift5_typeref\nl_names: .asciz \"Sa\"\n .byte 1\n to l_class\n .byte 0
                    section __swift5_replace\nl_list: .long 0, 1\n to l_scope\n .long 0
                    section __const
                    l_class: .long 0xe00100d0, 0, 0\n to _a\n .long 0, 0, 0, 0, 0, 0, 0
                    .long 0\n to l_pattern\n .short 2, 1, 2, 0\n .byte 0x80, 0x80, 0, 0\n .long 0x80, 0, 0
                    .long 0, 0\n to l_pattern\n to _b\n .long 9, 2\n .long 0x10\n to _c\n .long 0x30\n to _d
                    .long 1, 0, 0\n to _e
                    l_pattern: to _f\n to _g\n .long 0\n to _h\n to _i
                    l_conformance: .long 1\n to l_class\n .long 0\n .long 0x00030140\n .long 0, 1, 0, 0
                    .long 1, 0\n to _j\n .short 3, 1\n to _k\n .long 0
                    l_protocol: .long 0x43\n to l_class\n .long 0, 1, 1, 0, 0x80, 0, 0, 0x11\n to _l
                    l_scope: .long 0, 1, 0\n to _a\n .long 0, 0";
                linked::library("arm64", "s", &format!("{FUNCTIONS}\n{records}\n"), &[], &[])
            })
            .clone();
        let places: Vec<(usize, usize)> = {
            let file = MachOFile::parse(&bytes).unwrap();
            let is_record = |name: &[u8]| name.starts_with(b"__swift") || name == b"__const";
            let sections = file.sections.iter().filter(|section| is_record(section.name));
            sections.map(|section| (section.offset, section.size as usize)).collect()
        };
        for (place, byte) in edits {
            let (offset, size) = places[place.index(places.len())];
            bytes[offset + place.index(size)] = byte;
        }
        let (found, starts) = read(&bytes);
        let file = MachOFile::parse(&bytes).unwrap();
        for field in &found.references {
            let distance = i64::from(file.word_at(field.place).unwrap() as i32);
            prop_assert_eq!(field.place.plus(distance as u64), field.target);
            prop_assert!(starts.contains_key(&field.target));
        }
        prop_assert!(found.references.is_sorted_by_key(|field| field.place));
    }
}
