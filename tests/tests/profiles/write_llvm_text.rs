//! Traces written for LLVM, through LLVM's real tools.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::process::{self, succeed};
use end_to_end::profiles::{DEMO_A, DEMO_B, sample};
use object::{Object, ObjectSymbol};
use reorder::hints;
use reorder_base::address::Address;
use reorder_base::tool_versions::llvm;
use reorder_trace::{
    Companions, Event, Evidence, Location, Name, NameHash, Trace, read_files, write_llvm_text,
};

const LIMIT: Duration = Duration::from_secs(300);

fn trace(weight: u64, names: &[&str]) -> Trace {
    let event = |name: &&str| Event::at(Location::Name(Name::from(*name)));
    Trace { weight, events: names.iter().map(event).collect(), ..Trace::default() }
}

/// Weights and locations, the only contents of LLVM's profiles.
fn essence(traces: &[Trace]) -> Vec<(u64, Vec<Location>)> {
    let locations = |trace: &Trace| trace.events.iter().map(|event| event.location.clone()).collect();
    traces.iter().map(|trace| (trace.weight, locations(trace))).collect()
}

/// How the real tools read the text: directly, indexed, and as text again.
fn read_back(text: &[u8], directory: &Path) -> [Vec<(u64, Vec<Location>)>; 3] {
    let files = ["x.proftext", "x.profdata", "y.proftext"].map(|name| directory.join(name));
    fs::write(&files[0], text).unwrap();
    let merge = |flags: &[&str], from: &Path, to: &Path| {
        succeed(Command::new(llvm("llvm-profdata")).arg("merge").args(flags).arg(from).arg("-o").arg(to));
    };
    merge(&[], &files[0], &files[1]);
    merge(&["--text"], &files[1], &files[2]);
    files.map(|file| essence(&read_files(&[file], &Companions::default()).unwrap().traces))
}

#[test]
fn weights_orders_and_names_survive_the_real_tools() {
    let traces = [
        trace(3, &["main", "demo.c;parse_args", "_ZN3foo3barEv", "$s4main3fooyyF", "+[Foo bar:]"]),
        trace(
            1,
            &["main", "$s4main3fooyyF", "name with space", "_RNvCs1234_7mycrate3foo", "x.llvm.123", "0x10"],
        ),
    ];
    let written = write_llvm_text(&traces).unwrap();
    assert!(written.notes.is_empty(), "{:?}", written.notes);
    let directory = tempfile::tempdir().unwrap();
    for read in read_back(&written.text, directory.path()) {
        assert_eq!(read, essence(&traces));
    }

    let ordered =
        succeed(Command::new(llvm("llvm-profdata")).arg("order").arg(directory.path().join("x.profdata")));
    let mut ordered: Vec<&str> = ordered.lines().filter(|line| !line.starts_with('#')).collect();
    ordered.sort_unstable();
    let mut names: Vec<&str> = vec!["main", "parse_args", "_ZN3foo3barEv", "$s4main3fooyyF", "+[Foo bar:]"];
    names.extend(["name with space", "_RNvCs1234_7mycrate3foo", "x.llvm.123", "0x10"]);
    names.sort_unstable();
    assert_eq!(ordered, names);
}

#[test]
fn without_empty_bitmaps_llvm_cannot_read_swift_names() {
    let directory = tempfile::tempdir().unwrap();
    let traces = [trace(1, &["main", "$s4main3fooyyF"])];
    let written = write_llvm_text(&traces).unwrap();
    read_back(&written.text, directory.path());
    let theirs = fs::read_to_string(directory.path().join("y.proftext")).unwrap();
    assert!(!theirs.contains("$0"), "llvm-profdata writes no empty bitmaps: {theirs}");

    let without = directory.path().join("z.proftext");
    fs::write(&without, String::from_utf8(written.text).unwrap().replace("\n$0\n", "\n")).unwrap();
    let mut merge = Command::new(llvm("llvm-profdata"));
    merge.arg("merge").arg(&without).arg("-o").arg(directory.path().join("z.profdata"));
    let outcome = process::run(&mut merge, LIMIT).unwrap();
    assert!(!outcome.success() && outcome.stderr_text().contains("bitmap"), "{outcome}");
    let reading = read_files(&[without], &Companions::default()).unwrap();
    assert_eq!(essence(&reading.traces), essence(&traces));
    assert!(reading.notes.is_empty(), "{:?}", reading.notes);
}

#[test]
fn lld_lays_out_by_the_written_profile() {
    let directory = tempfile::tempdir().unwrap();
    let [object, linked, profile] =
        ["demo.o", "demo.so", "demo.proftext"].map(|name| directory.path().join(name));
    let compile = ["-c", "-O1", "-fPIC", "-ffunction-sections"];
    succeed(Command::new(llvm("clang")).args(compile).arg(sample("source/demo.c")).arg("-o").arg(&object));
    let order = |flags: &[String]| -> Vec<String> {
        succeed(Command::new(llvm("ld.lld")).arg("-shared").args(flags).arg(&object).arg("-o").arg(&linked));
        let bytes = fs::read(&linked).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let is_function = |symbol: &object::Symbol<'_, '_>| {
            symbol.kind() == object::SymbolKind::Text && symbol.is_definition()
        };
        let mut symbols: Vec<(u64, String)> = file
            .symbols()
            .filter(is_function)
            .map(|symbol| (symbol.address(), symbol.name().unwrap().to_owned()))
            .collect();
        symbols.sort_unstable();
        symbols.into_iter().map(|(_, name)| name).collect()
    };
    let before = order(&[]);
    assert_ne!(before.last().map(String::as_str), Some("never_called"), "the compiler's order: {before:?}");

    let spelled = DEMO_A.map(|name| if name == "parse_args" { "demo.c;parse_args" } else { name });
    fs::write(&profile, write_llvm_text(&[trace(1, &spelled), trace(1, &DEMO_B)]).unwrap().text).unwrap();
    let flags = [format!("--irpgo-profile={}", profile.display()), "--bp-startup-sort=function".to_owned()];
    let after = order(&flags);
    assert_eq!(
        after.last().map(String::as_str),
        Some("never_called"),
        "functions that no trace ran are last: {after:?}"
    );
    assert_eq!(after.first().map(String::as_str), Some("main"), "{after:?}");
}

#[test]
fn what_cannot_be_written_is_told() {
    let mut first = trace(1, &["main", "a,b", "", "12", "#x", ":ir", " x", "line\nbreak"]);
    first.events.push(Event::at(Location::NameHash(NameHash::Md5(1))));
    first.events.push(Event::at(Location::Image(Address(1))));
    first.events.push(Event { name: Some("named".into()), ..Event::at(Location::Image(Address(2))) });
    let counts = Trace { evidence: Evidence::Counts, ..trace(1, &["counted"]) };
    let sampled = Trace { evidence: Evidence::Sampled, ..trace(1, &["main"]) };
    let written = write_llvm_text(&[first, counts.clone(), trace(1, &[""]), sampled]).unwrap();
    let notes: String = written.notes.iter().map(|note| format!("{note}\n")).collect();
    for expected in [
        "1 traces hold counts",
        "2 events are known by address or hash only",
        "8 events have names that LLVM's text cannot spell, \"a,b\"",
        "1 traces have no event",
        "some orders are sampled",
    ] {
        assert!(notes.contains(expected), "{expected} in {notes}");
    }
    let directory = tempfile::tempdir().unwrap();
    for read in read_back(&written.text, directory.path()) {
        assert_eq!(read, essence(&[trace(1, &["main", "named"]), trace(1, &["main"])]));
    }
    let error = write_llvm_text(&[counts]).unwrap_err();
    assert!(error.to_string().contains("hold counts"), "{error}");
}

#[test]
fn flags_that_keep_all_are_told_where_they_are_needed() {
    let names: Vec<String> = (0..10_001).map(|index| format!("f{index}")).collect();
    let long = trace(1, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut traces = vec![trace(1, &["main"]); 100];
    assert!(write_llvm_text(&traces).unwrap().notes.is_empty());
    traces.push(long);
    let [note] = write_llvm_text(&traces).unwrap().notes.try_into().unwrap();
    let hint = hints::text(note.hint.as_ref().unwrap());
    assert!(hint.contains("-reservoir-size=101") && hint.contains("-max-trace-length=10001"), "{hint}");
}
