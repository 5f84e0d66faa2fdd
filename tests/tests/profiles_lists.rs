//! Lists of functions: order files, addresses, columns.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::path::Path;

use end_to_end::profiles::{DEMO_A, names, read_sample, sample};
use reorder::address::Address;
use reorder::trace::{Companions, Evidence, Location, Reading, Trace, read_bytes};

fn only(reading: Reading) -> Trace {
    let [trace] = <[Trace; 1]>::try_from(reading.traces).unwrap();
    trace
}

fn read(text: &str) -> Reading {
    read_bytes(text.as_bytes(), Path::new("list"), &Companions::default()).unwrap()
}

/// The functions that hold the addresses of `trace`, by the output of `nm` in the sample called `symbols`.
fn symbolized(trace: &Trace, symbols: &str) -> Vec<String> {
    let table = std::fs::read_to_string(sample(symbols)).unwrap();
    let starts: Vec<(u64, &str)> =
        table.lines().map(|line| (u64::from_str_radix(&line[..16], 16).unwrap(), &line[19..])).collect();
    let function = |address: Address| {
        starts
            .iter()
            .rev()
            .find(|(start, _)| *start <= address.0)
            .map_or("nothing", |(_, name)| name)
            .to_owned()
    };
    trace
        .events
        .iter()
        .map(|event| match event.location {
            Location::Inside(address) => function(address),
            ref other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn order_files_of_elf_linkers() {
    let trace = only(read_sample("lists/orderfile-elf.txt", &[]).unwrap());
    let expected = [
        "shutdown_all",
        "load_config",
        "main",
        "parse_args",
        "init_ui;x",
        "nope_missing",
        "file.c:util_log",
        "draw_frame",
    ];
    let spelled: Vec<String> = trace
        .events
        .iter()
        .map(|event| String::from_utf8_lossy(event.symbol().unwrap()).into_owned())
        .collect();
    assert_eq!(
        (spelled.as_slice(), trace.evidence),
        (expected.map(str::to_owned).as_slice(), Evidence::Listed)
    );
    let trace = only(read_sample("lists/v13-ab.order.txt", &[]).unwrap());
    assert_eq!(names(&trace).len(), 8);
    assert_eq!((names(&trace)[0].as_str(), names(&trace)[7].as_str()), ("main", "draw_frame"));
}

#[test]
fn order_files_of_apple_linkers() {
    let reading = read_sample("lists/orderfile-macho.txt", &[]).unwrap();
    assert!(reading.notes[0].message.contains("1 lines for other architectures"), "{}", reading.notes[0]);
    assert_eq!(names(&only(reading)), ["_d", "_c", "_b", "_a", "-[Foo bar:]", "nothere"]);
}

#[test]
fn addresses_alone_may_lie_inside_functions() {
    let trace = only(read_sample("lists/sancov-pc-guard.txt", &[]).unwrap());
    assert_eq!(symbolized(&trace, "lists/sancov-pc-guard.nm.txt"), DEMO_A);
}

#[test]
fn sections_of_gold_stand_for_their_functions() {
    assert_eq!(
        names(&only(read(".text.main\n.text.hot.draw\n.text.unlikely.fail\n"))),
        ["main", "draw", "fail"]
    );
}

#[test]
fn rising_numbers_are_a_clock_and_falling_ones_counts() {
    let rising = only(read("0.5 first\n0.75 second\n"));
    assert_eq!(rising.events[1].tick, Some(750_000_000));
    assert_eq!(rising.evidence, Evidence::Listed);
    let falling = read("  9 often\n  3 seldom\n");
    assert!(falling.notes[0].message.contains("counts"));
    assert_eq!((falling.traces[0].evidence, falling.traces[0].events[0].count), (Evidence::Counts, Some(9)));
    let unsorted = read("2000000002 second\n2000000001 first\n");
    assert_eq!(names(&only(unsorted)), ["first", "second"]);
}

#[test]
fn commas_separate_names_and_columns() {
    assert_eq!(names(&only(read("first,second,third\n"))), ["first", "second", "third"]);
    let columns = only(read("first,1\nsecond,2\n"));
    assert_eq!((names(&columns).len(), columns.events[1].tick), (2, Some(2)));
}

#[test]
fn odd_lines_are_counted_and_shown() {
    let reading = read("main\nno such thing at all\nother\n");
    let note = reading.notes[0].clone();
    assert_eq!((names(&only(reading)).len(), note.offset), (2, Some(5)));
    assert!(note.message.contains("line 2: no such thing at all"), "{note}");
}
