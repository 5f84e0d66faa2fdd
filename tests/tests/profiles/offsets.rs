//! Offsets that hooks in instrumented programs print, and coverage files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use end_to_end::process::shell;
use end_to_end::profiles::{DEMO_A, DEMO_B, names, only, read_sample, sample};
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_bytes, read_files};

const LIMIT: Duration = Duration::from_secs(120);

fn read(text: &str) -> Reading {
    read_bytes(text.as_bytes(), Path::new("text"), &Companions::default()).unwrap()
}

/// A program in a directory of its own.
struct Built {
    directory: tempfile::TempDir,
}

impl Built {
    /// `source/demo.c` with `options`; `{hooks}` stands for the source of the hooks.
    fn new(options: &str) -> Self {
        let built = Self { directory: tempfile::tempdir().unwrap() };
        let options = options.replace("{hooks}", &sample("source/entry_hooks.c").display().to_string());
        built.run(&format!("clang$LLVM -O1 {} {options} -o demo", sample("source/demo.c").display()));
        built
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, command: &str) -> String {
        shell(&format!("cd {} && {command}", self.directory.path().display()), LIMIT).unwrap()
    }

    /// The functions of the program that contain the events.
    fn functions(&self, trace: &Trace) -> Vec<String> {
        let companions = Companions::open(&[self.path("demo")]).unwrap();
        let image = companions.images().next().unwrap();
        let function = |location: &Location| match location {
            Location::Inside(address) => {
                let (_, name) = image.function_containing(*address).unwrap();
                name.to_string()
            }
            other => panic!("{other}"),
        };
        trace.events.iter().map(|event| function(&event.location)).collect()
    }
}

#[test]
fn decimal_offsets_lie_inside_the_functions_that_ran() {
    let reading = read_sample("lists/cyg-entry-bare.offsets.txt", &[]).unwrap();
    assert!(reading.notes[0].message.contains("loaded at 0"), "{}", reading.notes[0]);
    let trace = only(reading);
    assert_eq!((trace.events[0].location.clone(), trace.evidence), {
        (Location::Inside(reorder_base::address::Address(4641)), Evidence::Exact)
    });
    let symbols = fs::read_to_string(sample("lists/cyg-entry-bare.nm.txt")).unwrap();
    let containing = |location: &Location| {
        let Location::Inside(address) = location else { panic!("{location}") };
        let start = |line: &&str| u64::from_str_radix(&line[..16], 16).unwrap() <= address.0;
        symbols.lines().rfind(start).unwrap()[19..].to_owned()
    };
    let functions: Vec<String> = trace.events.iter().map(|event| containing(&event.location)).collect();
    assert_eq!(functions, DEMO_A);
    for (flags, image) in [("-pie", 0), ("-no-pie -fno-pie", 0x20_0000)] {
        let built = Built::new(&format!("-finstrument-function-entry-bare -fuse-ld=lld {flags} {{hooks}}"));
        built.run("./demo a > offsets");
        let companions = Companions::open(&[built.path("demo")]).unwrap();
        let reading = read_files(&[built.path("offsets")], &companions).unwrap();
        assert!(reading.notes.is_empty(), "{:?}", reading.notes);
        let trace = only(reading);
        assert_eq!(built.functions(&trace), DEMO_A, "{flags}");
        let Location::Inside(first) = trace.events[0].location else { panic!("no address inside") };
        assert!(first.0 >= image, "{first} in an image at {image:#x}");
        assert_eq!(trace.image.path, Some(built.path("demo").canonicalize().unwrap()));
    }
}

#[test]
fn addresses_of_a_coverage_callback_are_in_order() {
    let built = Built::new("-fsanitize-coverage=func,trace-pc-guard {hooks}");
    built.run("./demo b > addresses");
    let trace = only(read_files(&[built.path("addresses")], &Companions::default()).unwrap());
    assert_eq!(built.functions(&trace), DEMO_B);
}

#[test]
fn coverage_files_tell_what_ran_and_that_they_have_no_order() {
    let built = Built::new("-fsanitize=address -fsanitize-coverage=func,trace-pc-guard");
    built.run("mkdir coverage && ASAN_OPTIONS=coverage=1:coverage_dir=coverage ./demo b");
    let mut files: Vec<PathBuf> =
        fs::read_dir(built.path("coverage")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let [file] = &files[..] else { panic!("{files:?}") };
    let reading = read_files(std::slice::from_ref(file), &Companions::default()).unwrap();
    assert!(reading.notes[0].message.contains("not in which order"), "{}", reading.notes[0]);
    let trace = only(reading);
    let functions: BTreeSet<String> = built.functions(&trace).into_iter().collect();
    assert_eq!(functions, DEMO_B.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(trace.evidence, Evidence::Counts);
}

#[test]
fn call_graphs_are_ordered_by_index() {
    let text = r#"{"total_calls_count": "9", "call_graph": [
        {"index": "8", "callee_offset": "16", "caller_and_count": [{"caller_offset": "32", "count": "4"},
                                                                    {"caller_offset": "48", "count": "3"}]},
        {"index": "4", "callee_offset": "32", "caller_and_count": [{"caller_offset": "0", "count": "2"}]},
        {"callee_offset": "64"}]}"#;
    let reading = read(text);
    assert!(reading.notes.iter().any(|note| note.message.starts_with("1 entries")), "{:?}", reading.notes);
    let found: Vec<(String, Option<u64>)> =
        only(reading).events.iter().map(|event| (event.location.to_string(), event.count)).collect();
    assert_eq!(found, [("inside 0x20".to_owned(), Some(2)), ("inside 0x10".to_owned(), Some(7))]);
    let cut = &text.as_bytes()[..text.len() - 20];
    let error = read_bytes(cut, Path::new("cut"), &Companions::default()).unwrap_err();
    assert!(error.offset.unwrap() > 200 && error.message.contains("not JSON"), "{error}");
}

#[test]
fn dtrace_prints_entries_in_columns() {
    let text = "dtrace: script 's.d' matched 4 probes\nCPU     ID                    FUNCTION:NAME\n  \
                0  81234                       main:entry \n  0  81235               -[Foo bar:]:entry \n  \
                0  81235               -[Foo bar:]:return \n  0  81234                       main:entry \n";
    let reading = read(text);
    assert!(reading.notes[0].message.starts_with("1 firings"), "{:?}", reading.notes);
    let trace = only(reading);
    assert_eq!(
        (names(&trace), trace.evidence),
        (["main", "-[Foo bar:]"].map(str::to_owned).to_vec(), Evidence::Exact)
    );
}

#[test]
fn dtrace_of_several_processors_needs_times() {
    let timed = "CPU     ID   FUNCTION:NAME\n  1  7  second:entry 2000\n  0  6  first:entry 1000\n";
    let trace = only(read(timed));
    assert_eq!(
        (names(&trace), trace.events[0].tick),
        (["first", "second"].map(str::to_owned).to_vec(), Some(1000))
    );
    let untimed = read(
        "CPU     ID   FUNCTION:NAME\n  1  7  second:entry\n  0  6  first:entry\ndtrace: 3 drops on CPU 0\n",
    );
    assert!(untimed.notes[0].message.contains("lost events"), "{:?}", untimed.notes);
    assert!(untimed.notes[1].message.starts_with("2 processors"), "{:?}", untimed.notes);
}

#[test]
fn quiet_dtrace_scripts_print_lists() {
    assert_eq!(
        names(&only(read("300 -[Foo bar:]\n400 +[Foo make]\n500 main\n"))),
        ["-[Foo bar:]", "+[Foo make]", "main"]
    );
}
