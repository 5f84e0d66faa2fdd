//! Lists of functions: order files, addresses, columns.

use std::path::Path;
use std::time::Duration;

use end_to_end::process::shell;
use end_to_end::profiles::{DEMO_A, names, only, read_sample, sample};
use reorder_base::address::Address;
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_bytes};

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
    let expected = [
        "main",
        "parse_args",
        "util_log",
        "load_config",
        "init_ui",
        "init_network",
        "shutdown_all",
        "draw_frame",
    ];
    assert_eq!(names(&trace), expected);
}

#[test]
fn order_files_of_apple_linkers() {
    let reading = read_sample("lists/orderfile-macho.txt", &[]).unwrap();
    assert!(reading.notes[0].message.contains("1 lines for other architectures"), "{}", reading.notes[0]);
    assert_eq!(names(&only(reading)), ["_d", "_c", "_b", "_a", "-[Foo bar:]", "nothere"]);
}

/// Address, size and name of each event.
fn placed(trace: &Trace) -> Vec<(u64, u64, String)> {
    let address = |event: &reorder_trace::Event| match event.location {
        Location::Image(address) => address.0,
        ref other => panic!("{other}"),
    };
    let places = trace.events.iter().map(|event| (address(event), event.size.unwrap()));
    places.zip(names(trace)).map(|((address, size), name)| (address, size, name)).collect()
}

#[test]
fn link_maps_are_read_and_called_no_recordings() {
    let reading = read_sample("lists/link-map.txt", &[]).unwrap();
    let notes: Vec<String> = reading.notes.iter().map(ToString::to_string).collect();
    assert!(notes[0].contains("not as they ran"), "{notes:?}");
    assert!(notes[1].contains("2 symbols that are not code and 3 that the linker left out"), "{notes:?}");
    let trace = only(reading);
    let expected = [(0x1_0000_0388, 0x14, "_alpha"), (0x1_0000_039c, 0x14, "_beta")];
    assert_eq!(placed(&trace)[..2], expected.map(|(address, size, name)| (address, size, name.to_owned())));
    assert_eq!(
        (names(&trace)[2..].join(" ").as_str(), trace.evidence),
        ("_local_one _main", Evidence::Listed)
    );
    let objective = "# Path: /App\n# Arch: arm64\n# Sections:\n# Address\tSize\tSegment\tSection\n\
                     0x1000\t0x100\t__TEXT\t__text\n# Symbols:\n# Address\tSize\tFile  Name\n\
                     0x1000\t0x10\t[  1] -[Foo bar:]\nnonsense\n";
    let reading = read(objective);
    assert!(reading.notes[1].message.contains("1 lines"), "{:?}", reading.notes);
    assert_eq!(names(&only(reading)), ["-[Foo bar:]"]);
}

#[test]
fn fresh_link_maps_agree_with_the_symbols_of_their_image() {
    let directory = tempfile::tempdir().unwrap();
    let run = |command: &str| {
        let command = format!("cd {} && {command}", directory.path().display());
        shell(&command, Duration::from_secs(120)).unwrap()
    };
    let source = sample("source/mdemo.c");
    run(&format!("clang$LLVM --target=arm64-apple-macos11 -O1 -c {} -o demo.o", source.display()));
    run(
        "ld64.lld$LLVM -arch arm64 -platform_version macos 11.0 11.0 -map map -undefined dynamic_lookup demo.o -o demo",
    );
    let path = directory.path().join("map");
    let trace = only(read_bytes(&std::fs::read(&path).unwrap(), &path, &Companions::default()).unwrap());
    let symbols = run("llvm-nm$LLVM -n --format=posix demo | grep ' [tT] ' | grep -v __mh_execute_header");
    let expected: Vec<(u64, String)> = symbols
        .lines()
        .map(|line| line.split(' ').collect())
        .map(|words: Vec<&str>| (u64::from_str_radix(words[2], 16).unwrap(), words[0].to_owned()))
        .collect();
    let found: Vec<(u64, String)> =
        placed(&trace).into_iter().map(|(address, _, name)| (address, name)).collect();
    assert!(found.len() >= 4);
    assert_eq!(found, expected);
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
    assert_eq!(names(&only(read("first, second,\n"))), ["first", "second"]);
}

#[test]
fn commas_that_belong_to_a_name_do_not_divide_it() {
    let symbol = only(read("0a t A,a\n1040 T main\n"));
    assert_eq!(names(&symbol), ["A,a", "main"]);
    assert_eq!(symbol.events[0].location, Location::Image(Address(0xa)));
    assert_eq!(
        names(&only(read("main.Map[int,string]\n3 pair<int,char>\n"))),
        ["main.Map[int,string]", "pair<int,char>"]
    );
    let reading = read("main\nfirst, 12 0x1040 second\n");
    assert!(reading.notes[0].message.contains("line 2"), "{:?}", reading.notes);
    assert_eq!(names(&only(reading)), ["main"]);
}

#[test]
fn odd_lines_are_counted_and_shown() {
    let reading = read("main\nno such thing at all\nother\n");
    let note = reading.notes[0].clone();
    assert_eq!((names(&only(reading)).len(), note.offset), (2, Some(5)));
    assert!(note.message.contains("line 2: no such thing at all"), "{note}");
}
