//! Both layouts, both modes, several link units, and merged files; damaged ones never panic.
//!
//! No tool that writes these files is available: they are made here, after the layout that the modules describe.

use std::path::Path;

use proptest::prelude::*;

use crate::formats::{damage, llvm_names::name_hash};
use crate::{Companions, Evidence, Reading, read_bytes};
use reorder_base::hint::Hint;

const FORMAT: &str = "Machine IR Profile";

proptest! {
    #[test]
    fn damaged_profiles_never_panic(
        raw in damage::damaged(damage::sample("machine_ir/mip-synthetic.mipraw")),
        map in damage::damaged(damage::sample("machine_ir/mip-synthetic.mipmap")),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.mipraw");
        std::fs::write(path.with_extension("mipmap"), map).unwrap();
        damage::check(FORMAT, &raw, &path)?;
    }

    #[test]
    fn damaged_merged_profiles_never_panic(bytes in damage::damaged(merged(0))) {
        damage::check(FORMAT, &bytes, Path::new("/nowhere/x.mip"))?;
    }
}

/// A header of either layout.
fn header(length: u32, file_type: u16, profile_type: u32, module: u32, base: i64) -> Vec<u8> {
    let mut bytes = b"\xfbMIP\x08\0".to_vec();
    bytes.extend(file_type.to_le_bytes());
    bytes.extend(profile_type.to_le_bytes());
    bytes.extend(module.to_le_bytes());
    if length == 0x20 {
        bytes.extend(base.to_le_bytes());
    }
    bytes.extend([0; 4]);
    bytes.extend(length.to_le_bytes());
    bytes
}

/// A map of functions with records of `size` bytes each, in order.
fn map(header: Vec<u8>, names: &[&str], size: i64, is_64_bit: bool, is_old: bool) -> Vec<u8> {
    let base = if is_old { 0 } else { i64::from_le_bytes(header[16..24].try_into().unwrap()) };
    let start = header.len() as i64;
    let mut bytes = header;
    for (index, name) in (0i64..).zip(names) {
        let distance = if is_old { 0 } else { base - bytes.len() as i64 };
        let raw = distance + start + size * index;
        if is_64_bit {
            [raw, -1].iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
        } else {
            [raw as i32, -1].iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
        }
        [32, 7, 0, name.len() as u32].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(name.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(if is_64_bit { 8 } else { 4 }), 0);
    }
    bytes
}

/// A merged profile of functions `a` with mean 2.5 and `b` with mean 2, and one that never ran.
fn merged(edges: u32) -> Vec<u8> {
    let mut bytes = header(0x20, 0x12, 0xc, 5, 0);
    bytes.extend(3u64.to_le_bytes());
    for (name, runs, order) in [("a", 2u32, 5u64), ("b", 3, 6), ("c", 0, 0)] {
        [name_hash(name.as_bytes()), 0, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        [32, 7, 1, runs].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        [9, order].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend([0; 5]);
        bytes.extend(edges.to_le_bytes());
    }
    bytes.extend(3u64.to_le_bytes());
    bytes.extend(b"a\0b\0c\0");
    bytes
}

fn read(raw: &[u8], map: &[u8]) -> reorder_base::error::Result<Reading> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.mipraw");
    std::fs::write(path.with_extension("mipmap"), map).unwrap();
    read_bytes(raw, &path, &Companions::default())
}

fn names(reading: &Reading) -> Vec<String> {
    let events = reading.traces.iter().flat_map(|trace| &trace.events);
    events.map(|event| event.location.to_string()).collect()
}

fn words(words: &[u32]) -> impl Iterator<Item = u8> + '_ {
    words.iter().flat_map(|word| word.to_le_bytes())
}

const NEVER: u32 = u32::MAX;

#[test]
fn layouts_and_widths_hold_the_same() {
    let calls = [1, 3, NEVER, NEVER, 5, 1];
    for (length, raw_type, map_type, is_64_bit) in
        [(0x20, 0x11, 0x14, true), (0x20, 0x21, 0x24, false), (0x18, 0x1, 0x2, true)]
    {
        let base = -0x18000;
        let map = map(
            header(length, map_type, 0xc, 5, base),
            &["late", "never", "early"],
            8,
            is_64_bit,
            length == 0x18,
        );
        let mut raw = header(length, raw_type, 0xc, 5, 0);
        raw.extend(words(&calls));
        let reading = read(&raw, &map).unwrap();
        assert_eq!(names(&reading), ["early", "late"], "{length:#x} {raw_type:#x}");
        assert_eq!(reading.traces[0].evidence, Evidence::Exact);
        let events = &reading.traces[0].events;
        assert_eq!((events[0].tick, events[0].count), (Some(1), Some(5)));
        assert!(reading.notes.is_empty());
    }
}

#[test]
fn coverage_holds_no_order() {
    let map = map(header(0x20, 0x14, 1, 5, 0x100), &["a", "b", "c"], 1, true, false);
    let mut raw = header(0x20, 0x11, 1, 5, 0);
    raw.extend([0, 0xff, 0]);
    let reading = read(&raw, &map).unwrap();
    assert_eq!(names(&reading), ["a", "c"]);
    assert_eq!(reading.traces[0].evidence, Evidence::Counts);
    assert!(reading.notes[0].to_string().contains("no order"));
}

#[test]
fn link_units_of_one_program_are_one_trace() {
    let first = map(header(0x20, 0x14, 0xc, 5, 0x100), &["a", "b"], 8, true, false);
    let mut raw = header(0x20, 0x11, 0xc, 5, 0);
    raw.extend(words(&[1, 1, 1, 3]));
    raw.extend(header(0x20, 0x11, 0xc, 6, 0));
    raw.extend(words(&[1, 2]));

    let part = read(&raw, &first).unwrap();
    assert_eq!(names(&part), ["a", "b"]);
    assert!(part.notes[0].to_string().contains("module 0x00000006"), "{}", part.notes[0]);

    let directory = tempfile::tempdir().unwrap();
    let second = directory.path().join("second.mipmap");
    std::fs::write(&second, map(header(0x20, 0x14, 0xc, 6, 0x200), &["c"], 8, true, false)).unwrap();
    let path = directory.path().join("run.mipraw");
    std::fs::write(path.with_extension("mipmap"), first).unwrap();
    let both = read_bytes(&raw, &path, &Companions::open(&[second]).unwrap()).unwrap();
    assert_eq!(names(&both), ["a", "c", "b"]);
    assert!(both.notes.is_empty());
}

#[test]
fn merged_profiles_stand_by_mean_time() {
    let read = |bytes: &[u8]| read_bytes(bytes, Path::new("/nowhere/x.mip"), &Companions::default());
    let reading = read(&merged(0)).unwrap();
    assert_eq!(names(&reading), ["b", "a"]);
    assert_eq!(reading.traces[0].evidence, Evidence::Blended);
    let error = read(&merged(2)).unwrap_err();
    assert!(error.to_string().contains("call edges"), "{error}");
}

#[test]
fn a_missing_or_wrong_map_is_told() {
    let raw = damage::sample("machine_ir/mip-synthetic.mipraw");
    let error = read(&raw, b"").unwrap_err();
    assert!(error.to_string().contains("no map is given"), "{error}");
    assert!(matches!(error.hint, Some(Hint::Companion { .. })));
    let wrong = map(header(0x20, 0x14, 0xc, 5, 0x100), &["a"], 8, true, false);
    let error = read(&raw, &wrong).unwrap_err();
    assert!(error.to_string().contains("none of the maps"), "{error}");
}

#[test]
fn unknown_types_are_refused() {
    for (length, file_type) in [(0x20, 0x10), (0x20, 0x13), (0x20, 0x1f), (0x18, 0x3)] {
        let error = read(&header(length, file_type, 0xc, 5, 0), b"").unwrap_err();
        assert!(error.to_string().contains(&format!("unknown type ({file_type:#x})")), "{error}");
        assert_eq!(error.offset, Some(6));
    }
}

#[test]
fn functions_without_a_name_are_told() {
    let map = map(header(0x20, 0x14, 0xc, 5, 0x100), &["", "b"], 8, true, false);
    let mut raw = header(0x20, 0x11, 0xc, 5, 0);
    raw.extend(words(&[1, 1, 1, 3]));
    let reading = read(&raw, &map).unwrap();
    assert_eq!(names(&reading), ["b"]);
    assert!(
        reading.notes[0].to_string().contains("1 functions that ran have no name"),
        "{}",
        reading.notes[0]
    );
}

#[test]
fn a_link_unit_is_read_once() {
    let map = map(header(0x20, 0x14, 0xc, 5, 0x100), &["a", "b"], 8, true, false);
    let mut unit = header(0x20, 0x11, 0xc, 5, 0);
    unit.extend(words(&[1, 1, 1, 3]));
    let reading = read(&unit.repeat(100), &map).unwrap();
    assert_eq!(names(&reading), ["a", "b"]);
    assert!(reading.notes[0].to_string().contains("99 parts repeat"), "{}", reading.notes[0]);
}
