//! Tables of linked images that headers or symbols describe in unusual ways.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use super::finish::finish;
use crate::address_map::{AddressMap, Move};
use reorder_base::address::{Address, NewAddress};
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::function_starts::function_starts;
use reorder_image::macho::linked::library;
use reorder_image::macho::load_command::LinkEditPart;
use reorder_image::macho::section::kind::ZERO_FILL;
use reorder_image::macho::symbol_table::symbols;
use reorder_image::macho::unwind_info::UnwindInfo;

/// Three functions that unwind in three ways.
const SOURCE: &str = "int first(int); int second(int); int third(int);\n\
int f(int n) { return n * 3; }\n\
int g(int n) { return first(n) + 1; }\n\
int h(int n) { int s = first(n) + 1; for (int i = 0; i < n; i++) s += second(s) * third(n); return s; }\n\
const char text[] = \"text\";\n";

fn linked() -> Vec<u8> {
    library("arm64", "c", SOURCE, &["-O1", "-g"], &[])
}

/// The functions in reverse.
fn reversed(file: &MachOFile<'_>) -> AddressMap {
    let text = file.text().range();
    let mut starts = function_starts(file).unwrap();
    starts.retain(|start| text.contains(start));
    starts.push(text.end);
    let mut new = text.start;
    let ranges: Vec<(Address, u64)> =
        starts.windows(2).rev().map(|pair| (pair[0], pair[1].distance_from(pair[0]))).collect();
    AddressMap::new(ranges.into_iter().map(|(old, size)| {
        new = new.plus(size);
        Move { old, new: NewAddress(new.0 - size), size }
    }))
    .unwrap()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn a_symbol_of_another_section_stays_whatever_its_address() {
    let mut bytes = linked();
    let (field, value, number) = {
        let file = MachOFile::parse(&bytes).unwrap();
        let table = file.link_edit_range(LinkEditPart::Symbols).unwrap().offset;
        let mut all = symbols(&file).unwrap().enumerate();
        let (index, symbol) = all.find(|(_, symbol)| symbol.name == b"_f" && !symbol.is_debug()).unwrap();
        (table + 16 * index + 5, symbol.value, file.section(b"__TEXT", b"__const").unwrap().number)
    };
    let value_after = |bytes: &[u8]| {
        let file = MachOFile::parse(bytes).unwrap();
        let after = finish(&file, &reversed(&file), bytes.to_vec()).unwrap().bytes;
        let file = MachOFile::parse(&after).unwrap();
        let mut all = symbols(&file).unwrap();
        all.find(|symbol| symbol.name == b"_f" && !symbol.is_debug()).unwrap().value
    };
    assert_ne!(value_after(&bytes), value);
    // Such as a mark of that section's end.
    put(&mut bytes, field, &[number as u8]);
    assert_eq!(value_after(&bytes), value);
}

#[test]
fn unwind_information_is_found_by_its_name() {
    let mut bytes = linked();
    let expected = {
        let file = MachOFile::parse(&bytes).unwrap();
        finish(&file, &reversed(&file), bytes.clone()).unwrap().bytes
    };
    let (header, address, size) = {
        let file = MachOFile::parse(&bytes).unwrap();
        let unwind = UnwindInfo::section(&file).unwrap();
        (file.section(b"__TEXT", b"__const").unwrap().header_offset, unwind.address, unwind.size)
    };
    // Zeros before it that claim its place.
    put(&mut bytes, header + 32, &address.0.to_le_bytes());
    put(&mut bytes, header + 40, &size.to_le_bytes());
    put(&mut bytes, header + 64, &ZERO_FILL.to_le_bytes());
    let file = MachOFile::parse(&bytes).unwrap();
    assert!(file.section_at(address).is_some_and(|section| section.name == b"__const"));
    let after = finish(&file, &reversed(&file), bytes.clone()).unwrap().bytes;
    let parsed = |bytes: &[u8]| UnwindInfo::parse(&MachOFile::parse(bytes).unwrap()).unwrap();
    assert_eq!(parsed(&after), parsed(&expected));
    assert_ne!(parsed(&after), parsed(&bytes));
}
