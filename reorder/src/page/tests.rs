//! A whole page of a made-up image: what names can do to it.

use reorder_base::address::Address;
use reorder_image::functions::FunctionTable;

use super::names::{names, printable};

fn functions<'data>(names: &[&'data [u8]]) -> FunctionTable<'data> {
    let range = |(index, &name): (usize, &&'data [u8])| (Address(index as u64 * 16), 16, name);
    FunctionTable::from_named_ranges(names.iter().enumerate().map(range))
}

#[test]
fn a_name_is_one_line_of_text() {
    let long = "x".repeat(5000);
    let shown: Vec<String> =
        ["a\nb\tc", "\u{202e}back\u{2066}", "\0\u{7f}\u{feff}", &long].map(printable).into();
    assert_eq!(shown[..3], ["a\\u{a}b\\u{9}c", "\\u{202e}back\\u{2066}", "\\u{0}\\u{7f}\\u{feff}"]);
    assert_eq!((shown[3].chars().count(), shown[3].ends_with('…')), (401, true));
}

#[test]
fn there_is_a_line_for_each_function() {
    let table = functions(&[
        b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
        b"plain",
        b"\xff\n\xfe",
        b"_ZN5space4callEv",
        b"file.c;static",
    ]);
    let names = names(&table);
    let readable: Vec<&str> = names.readable.lines().collect();
    assert_eq!(
        readable,
        ["core::fmt::Write::write_fmt", "plain", "\u{fffd}\\u{a}\u{fffd}", "space::call()", "file.c;static"]
    );
    let raw: Vec<&str> = names.raw.lines().collect();
    let mangled = ["_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "_ZN5space4callEv"];
    assert_eq!(raw, [mangled[0], "", "", mangled[1], ""]);
}

#[test]
fn other_names_are_kept() {
    let ranges: [(Address, u64, &[u8]); 3] =
        [(Address(16), 4, b"b"), (Address(16), 4, b"a"), (Address(32), 4, b"")];
    let names = names(&FunctionTable::from_named_ranges(ranges));
    assert_eq!((names.readable.as_str(), names.raw.as_str()), ("a\n\n", "a\tb\n\n"));
}
