//! LLVM's merged profiles compared with the output of LLVM's own tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::succeed;
use end_to_end::profiles::{DEMO_A, DEMO_B, names, read_sample, sample};
use reorder::hints;
use reorder_base::tool_versions::llvm;
use reorder_trace::{Companions, Evidence, Location, NameHash, Reading, Trace, read_files};

fn profdata(arguments: &[&str], files: &[&Path]) -> String {
    succeed(Command::new(llvm("llvm-profdata")).args(arguments).args(files))
}

/// Weight and names of each trace as `llvm-profdata show` prints them; blank where it knows no name.
fn official(profile: &Path) -> Vec<(u64, Vec<String>)> {
    let text = profdata(&["show", "--temporal-profile-traces"], &[profile]);
    let mut traces: Vec<(u64, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("  Temporal Profile Trace ") {
            let (_, weight) = heading.split_once("weight=").unwrap();
            traces.push((weight.split(' ').next().unwrap().parse().unwrap(), Vec::new()));
        } else if let (Some(name), Some((_, names))) = (line.strip_prefix("    "), traces.last_mut()) {
            names.push(name.to_owned());
        }
    }
    traces
}

fn read(path: &Path) -> Reading {
    read_files(&[path.to_path_buf()], &Companions::default()).unwrap()
}

/// Weights and names in full of traces of which every name is known.
fn spelled(traces: &[Trace]) -> Vec<(u64, Vec<String>)> {
    let name = |location: &Location| match location {
        Location::Name(name) => String::from_utf8(name.to_vec()).unwrap(),
        other => panic!("{other} is no name"),
    };
    let names = |trace: &Trace| trace.events.iter().map(|event| name(&event.location)).collect();
    traces.iter().map(|trace| (trace.weight, names(trace))).collect()
}

fn notes(reading: &Reading) -> String {
    reading.notes.iter().map(|note| format!("{note}\n")).collect()
}

fn hints(reading: &Reading) -> String {
    reading.notes.iter().filter_map(|note| note.hint.as_ref().map(hints::text)).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_version_reads_as_llvm_reads_it() {
    let files = [
        ("v13-ab.profdata", 2),
        ("v13-weighted.profdata", 2),
        ("v13-vtable.profdata", 1),
        ("v13-rust.profdata", 1),
        ("v12-clang19.profdata", 1),
        ("v11-prev.profdata", 1),
        ("v9-rust.profdata", 1),
        ("v8-rust.profdata", 1),
        ("ab.proftext", 2),
    ];
    for (file, count) in files {
        let path = sample("llvm_merged").join(file);
        let reading = read(&path);
        assert_eq!(spelled(&reading.traces), official(&path), "{file}");
        assert_eq!(reading.traces.len(), count, "{file}");
        assert!(reading.traces.iter().all(|trace| trace.evidence == Evidence::Exact), "{file}");
        assert!(reading.traces.iter().zip(1..).all(|(trace, run)| trace.run == run), "{file}");
        assert_eq!(notes(&reading), "", "{file}");
    }
}

#[test]
fn orders_and_weights_are_those_of_the_runs() {
    for (file, weights) in
        [("v13-ab.profdata", [1, 1]), ("v13-weighted.profdata", [3, 1]), ("ab.proftext", [1, 1])]
    {
        let reading = read_sample(&format!("llvm_merged/{file}"), &[]).unwrap();
        let [a, b] = reading.traces.as_slice() else { panic!("{file}: {} traces", reading.traces.len()) };
        assert_eq!(
            (names(a), names(b)),
            (DEMO_A.map(String::from).to_vec(), DEMO_B.map(String::from).to_vec())
        );
        assert_eq!([a.weight, b.weight], weights, "{file}");
    }
    let rust = read_sample("llvm_merged/v8-rust.profdata", &[]).unwrap();
    assert_eq!(rust.traces[0].events.len(), 11);
}

#[test]
fn odd_text_is_read_as_llvm_reads_it() {
    let reading = read_sample("llvm_merged/odd-syntax.proftext", &[]).unwrap();
    let traces =
        [(1, vec!["a", "b", "c", "d"]), (16, vec!["b", "a", "x.c;stat"]), (2, vec!["zzz_not_a_record", "a"])];
    let traces =
        traces.map(|(weight, names)| (weight, names.into_iter().map(String::from).collect::<Vec<_>>()));
    assert_eq!(spelled(&reading.traces), traces);
    assert!(notes(&reading).contains("3 of the 7 runs"), "{}", notes(&reading));
}

#[test]
fn what_is_complete_before_damage_is_kept() {
    let read = |file: &str| read_sample(&format!("llvm_merged/corrupt/{file}.profdata"), &[]).unwrap();
    let (a, b) = (DEMO_A.map(String::from).to_vec(), DEMO_B.map(String::from).to_vec());

    let cut = read("traces-cut");
    assert_eq!(cut.traces.iter().map(names).collect::<Vec<_>>(), [a.clone(), b[..6].to_vec()]);
    assert!(notes(&cut).contains("trace 2 is damaged"), "{}", notes(&cut));

    let many = read("trace-count-too-big");
    assert_eq!(many.traces.iter().map(names).collect::<Vec<_>>(), [a.clone(), b.clone()]);
    assert!(notes(&many).contains("trace 3 is damaged"), "{}", notes(&many));

    let long = read("function-count-overflow");
    assert!(notes(&long).contains("cannot be in any file"), "{}", notes(&long));
    assert_eq!(long.traces[0].evidence, Evidence::Counts, "its first trace is the damaged one");

    let nameless = read("hash-offset-out-of-file");
    assert_eq!(nameless.traces.iter().map(|trace| trace.events.len()).collect::<Vec<_>>(), [8, 7]);
    let is_hash = |location: &Location| matches!(location, Location::NameHash(NameHash::Md5(_)));
    assert!(nameless.traces.iter().flat_map(|trace| &trace.events).all(|event| is_hash(&event.location)));
    assert!(notes(&nameless).contains("outside of the file"), "{}", notes(&nameless));
    assert!(notes(&nameless).contains("15 events are of functions without a record"), "{}", notes(&nameless));
}

#[test]
fn unknown_and_repeated_functions_are_told() {
    let unknown = read_sample("llvm_merged/corrupt/unknown-nameref.profdata", &[]).unwrap();
    let official = official(&sample("llvm_merged/corrupt/unknown-nameref.profdata"));
    for (trace, (_, official)) in unknown.traces.iter().zip(official) {
        for (event, official) in trace.events.iter().zip(official) {
            match event.symbol() {
                Some(name) => assert_eq!(String::from_utf8_lossy(name), official),
                None => assert_eq!(official, "", "llvm-profdata has no name for {}", event.location),
            }
        }
    }
    assert!(notes(&unknown).contains("1 events are of functions without a record"), "{}", notes(&unknown));

    let repeated = read_sample("llvm_merged/corrupt/duplicate-nameref.profdata", &[]).unwrap();
    assert!(notes(&repeated).contains("1 events repeat"), "{}", notes(&repeated));
}

#[test]
fn profiles_without_traces_give_counts_and_flags() {
    for file in ["temporal-bit-clear", "temporal-offset-out-of-file"] {
        let reading = read_sample(&format!("llvm_merged/corrupt/{file}.profdata"), &[]).unwrap();
        let [trace] = reading.traces.as_slice() else { panic!("{file}") };
        assert_eq!(trace.evidence, Evidence::Counts);
        assert_eq!(names(trace).first().map(String::as_str), Some("util_log"), "it ran most often");
        assert_eq!(trace.events.len(), 8, "never_called is not among them");
        assert!(trace.events.windows(2).all(|pair| pair[0].count >= pair[1].count));
    }
    let reading = read_sample("llvm_merged/corrupt/temporal-bit-clear.profdata", &[]).unwrap();
    assert!(notes(&reading).contains("no timestamps"), "{}", notes(&reading));
    for flag in ["-ftemporal-profile", "-Cllvm-args=-pgo-temporal-instrumentation"] {
        assert!(hints(&reading).contains(flag), "{}", hints(&reading));
    }
}

#[test]
fn newer_versions_are_refused_with_a_way_out() {
    let error = read_sample("llvm_merged/corrupt/version-14.profdata", &[]).unwrap_err();
    assert!(error.to_string().contains("version 14"), "{error}");
    assert_eq!(error.offset, Some(8));
    assert!(hints::text(error.hint.as_ref().unwrap()).contains("merge --text"));
}

/// `demo.c` built with `flags`, run with each of `arguments`; the raw profiles.
fn record(directory: &Path, flags: &[&str], arguments: &[&str]) -> Vec<PathBuf> {
    let program = directory.join("demo");
    succeed(Command::new(llvm("clang")).args(flags).arg(sample("source/demo.c")).arg("-o").arg(&program));
    let run = |argument: &&str| {
        let raw = directory.join(format!("{argument}.profraw"));
        succeed(Command::new(&program).arg(argument).env("LLVM_PROFILE_FILE", &raw));
        raw
    };
    arguments.iter().map(run).collect()
}

const TEMPORAL: [&str; 3] = ["-O1", "-fprofile-generate", "-ftemporal-profile"];

#[test]
fn fresh_profiles_read_as_llvm_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let raw = record(directory.path(), &TEMPORAL, &["a", "b"]);
    let weighted: Vec<String> = [5, 2]
        .iter()
        .zip(&raw)
        .map(|(weight, raw)| format!("--weighted-input={weight},{}", raw.display()))
        .collect();
    for (name, flags) in [
        ("x.profdata", [].as_slice()),
        ("x.proftext", &["--text"]),
        ("y.profdata", &["--write-prev-version"]),
    ] {
        let merged = directory.path().join(name);
        let output = format!("--output={}", merged.display());
        let mut arguments = vec!["merge", output.as_str()];
        arguments.extend(flags);
        arguments.extend(weighted.iter().map(String::as_str));
        profdata(&arguments, &[]);
        let reading = read(&merged);
        assert_eq!(spelled(&reading.traces), official(&merged), "{name}");
        assert_eq!(reading.traces.iter().map(|trace| trace.weight).collect::<Vec<_>>(), [5, 2], "{name}");
        assert_eq!(names(&reading.traces[1]), DEMO_B, "{name}");
    }
}

#[test]
fn entry_counts_are_the_numbers_of_executions() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [
        ["-O1", "-fprofile-generate", "-mllvm", "-pgo-instrument-entry"].as_slice(),
        &["-O0", "-fprofile-instr-generate"],
    ] {
        let raw = record(directory.path(), flags, &["a"]);
        for (name, extra) in [("x.profdata", "--sparse=false"), ("x.proftext", "--text")] {
            let merged = directory.path().join(name);
            profdata(&["merge", extra, "-o"], &[&merged, &raw[0]]);
            let reading = read(&merged);
            let count = |function: &str| {
                let index = names(&reading.traces[0]).iter().position(|name| name == function);
                reading.traces[0].events[index.unwrap()].count
            };
            assert_eq!(
                (count("main"), count("util_log"), count("init_ui")),
                (Some(1), Some(7), Some(1)),
                "{flags:?}"
            );
            assert_eq!(reading.traces[0].evidence, Evidence::Counts);
            assert!(!notes(&reading).contains("most frequent block"), "{}", notes(&reading));
        }
    }
}

#[test]
fn what_llvm_left_out_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (text, merged) = (directory.path().join("x.proftext"), directory.path().join("x.profdata"));
    let mut profile = String::from(":ir\n:temporal_prof_traces\n101\n101\n");
    let long: String = (0..10_001).map(|index| format!("f{index},")).collect();
    (0..101).for_each(|_| profile.push_str(&format!("1\n{long}\n")));
    (0..10_001).for_each(|index| profile.push_str(&format!("f{index}\n1\n1\n1\n")));
    fs::write(&text, profile).unwrap();

    profdata(&["merge", "-o"], &[&merged, &text]);
    let sampled = read(&merged);
    assert!(notes(&sampled).contains("a random sample of 100 of 101 runs"), "{}", notes(&sampled));
    assert!(notes(&sampled).contains("100 traces of exactly 10000 functions"), "{}", notes(&sampled));
    assert!(notes(&sampled).contains("1 functions ran but are in no trace"), "{}", notes(&sampled));
    assert!(hints(&sampled).contains("--temporal-profile-trace-reservoir-size=101"), "{}", hints(&sampled));

    let all = [
        "merge",
        "--temporal-profile-trace-reservoir-size=101",
        "--temporal-profile-max-trace-length=4294967295",
    ];
    profdata(&[all.as_slice(), &["-o"]].concat(), &[&merged, &text]);
    let whole = read(&merged);
    assert_eq!(notes(&whole), "");
    assert_eq!(spelled(&whole.traces), official(&merged));
    assert_eq!(whole.traces.len() * whole.traces[0].events.len(), 101 * 10_001);

    profdata(&["merge", "--temporal-profile-trace-reservoir-size=0", "-o"], &[&merged, &text]);
    let empty = read(&merged);
    assert_eq!(empty.traces[0].evidence, Evidence::Counts);
    assert!(notes(&empty).contains("merged from 101 runs"), "{}", notes(&empty));
}
