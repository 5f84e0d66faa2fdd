//! Linux perf: recordings and what `perf script` prints of them.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use end_to_end::process::shell;
use end_to_end::profiles::{DEMO_A, names, read_sample, sample};
use reorder::address::Address;
use reorder::trace::{Companions, Evidence, Location, Reading, Trace, read_bytes, read_files};

const LIMIT: Duration = Duration::from_secs(120);

/// The traces of the image whose path ends in `name`.
fn of_image<'reading>(reading: &'reading Reading, name: &str) -> Vec<&'reading Trace> {
    let is_it = |trace: &&Trace| trace.image.path.as_deref().is_some_and(|path| path.ends_with(name));
    reading.traces.iter().filter(is_it).collect()
}

fn read(path: &Path) -> Reading {
    read_files(&[path.to_path_buf()], &Companions::default()).unwrap()
}

fn has_note(reading: &Reading, words: &str) -> bool {
    reading.notes.iter().any(|note| note.message.contains(words))
}

#[test]
fn samples_without_their_image_keep_offsets_in_the_file() {
    let reading = read_sample("sampling/perf-cpu-clock.data", &[]).unwrap();
    let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
    assert_eq!((trace.evidence, trace.process), (Evidence::Sampled, Some(15461)));
    assert!(has_note(&reading, "cannot be read any more"), "{:?}", reading.notes);
    // perf's text of the same file: all samples of the program, and where it was mapped from offset 0x1000 on.
    let text = fs::read_to_string(sample("sampling/perf-cpu-clock.script.txt")).unwrap();
    let mut seen = BTreeSet::new();
    let expected: Vec<Location> = text
        .lines()
        .filter(|line| line.ends_with("(./spin)"))
        .map(|line| u64::from_str_radix(line.split_whitespace().nth(4).unwrap(), 16).unwrap())
        .filter(|address| seen.insert(*address))
        .map(|address| Location::Inside(Address(address - 0x55c7_8453_e000 + 0x1000)))
        .collect();
    let found: Vec<Location> = trace.events.iter().map(|event| event.location.clone()).collect();
    assert_eq!(found, expected);
}

#[test]
fn printed_samples_give_the_order_of_first_samples() {
    let reading = read_sample("sampling/perf-cpu-clock.script.txt", &[]).unwrap();
    let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
    assert_eq!(names(trace), ["phase_one", "phase_two", "phase_three"]);
    assert_eq!((trace.evidence, trace.events[0].tick), (Evidence::Sampled, Some(3_298_490_096_056)));
}

#[test]
fn printed_probes_are_exact_entries() {
    let reading = read_sample("sampling/perf-uprobes.script.txt", &[]).unwrap();
    let [trace] = &reading.traces[..] else { panic!("{:?}", reading.traces) };
    assert_eq!((names(trace), trace.evidence), (DEMO_A.map(str::to_owned).to_vec(), Evidence::Exact));
    assert!(!has_note(&reading, "short functions"));
}

#[test]
fn printed_faults_count_only_where_the_code_itself_was_missing() {
    let reading = read_sample("sampling/perf-page-faults.script.txt", &[]).unwrap();
    let text = fs::read_to_string(sample("sampling/perf-page-faults.script.txt")).unwrap();
    let faults: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split("page-faults:").nth(1).unwrap().split_whitespace().collect())
        .filter(|words: &Vec<&str>| {
            words.iter().filter(|word| **word == words[0]).count() == 2
                && words.last() == Some(&"(libc.so.6)")
        })
        .collect();
    let [trace] = of_image(&reading, "libc.so.6")[..] else { panic!("{:?}", reading.traces) };
    let mut seen = BTreeSet::new();
    let expected: Vec<String> = faults
        .iter()
        .map(|words| words[1].split("+0x").next().unwrap().to_owned())
        .filter(|name| seen.insert(name.clone()))
        .collect();
    assert_eq!((names(trace), trace.evidence), (expected, Evidence::Pages));
    assert!(has_note(&reading, "accesses to data"));
}

#[test]
fn recorded_probes_are_exact_entries_at_addresses_of_the_image() {
    let reading = read_sample("sampling/perf-uprobes.data", &[]).unwrap();
    let [trace] = of_image(&reading, "demo.pie")[..] else { panic!("{:?}", reading.traces) };
    assert_eq!((names(trace), trace.evidence), (DEMO_A.map(str::to_owned).to_vec(), Evidence::Exact));
    assert!(has_note(&reading, "returns of functions"), "{:?}", reading.notes);
    let starts = fs::read_to_string(sample("sampling/perf-uprobes.nm.txt")).unwrap();
    for event in &trace.events {
        let name = String::from_utf8(event.symbol().unwrap().to_vec()).unwrap();
        let line = starts.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        assert_eq!(event.location, Location::Image(Address(start)), "{name}");
    }
}

/// A program, built and recorded in a directory of its own.
struct Recorded {
    directory: tempfile::TempDir,
}

impl Recorded {
    fn new(options: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let recorded = Self { directory };
        let source = sample("source/spin.c");
        // lld gives code other addresses than it has offsets in the file.
        recorded.run(&format!("clang-22 -O1 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fuse-ld=lld -Wl,--build-id {} -o spin", source.display()));
        recorded.run(&format!("perf record -q {options} -o recording -- ./spin"));
        recorded
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, command: &str) -> String {
        shell(&format!("cd {} && {command}", self.directory.path().display()), LIMIT).unwrap()
    }

    /// perf's own view: for each sample of `event` the functions of the program, outermost first, each once.
    fn perf_order(&self, event: &str) -> Vec<String> {
        let text = self.run("perf script -i recording --no-demangle --ns -F event,ip,sym,symoff,dso");
        let mut order: Vec<String> = Vec::new();
        let mut samples: Vec<Vec<String>> = Vec::new();
        let mut is_wanted = false;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first().is_some_and(|word| word.ends_with(':')) {
                is_wanted = words[0].trim_end_matches(':').split(':').next() == Some(event);
                samples.push(Vec::new());
            }
            let Some(name) = words.iter().find(|word| word.contains("+0x")) else { continue };
            if is_wanted && words.last().is_some_and(|file| file.ends_with("/spin)")) {
                samples.last_mut().unwrap().push(name.split("+0x").next().unwrap().to_owned());
            }
        }
        for sample in samples {
            for name in sample.into_iter().rev() {
                if !order.contains(&name) {
                    order.push(name);
                }
            }
        }
        order
    }
}

#[test]
fn samples_and_callers_are_those_that_perf_prints() {
    let recorded = Recorded::new("-e cpu-clock:u -F 997 -g");
    let reading = read(&recorded.path("recording"));
    let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
    let order = recorded.perf_order("cpu-clock");
    assert_eq!(names(trace), order);
    let phases: Vec<&String> = order.iter().filter(|name| name.starts_with("phase")).collect();
    assert_eq!(phases, ["phase_one", "phase_two", "phase_three"]);
    let place = |wanted: &str| order.iter().position(|name| name == wanted).unwrap();
    assert!(place("main") < place("phase_one"), "{order:?}");
    assert!(trace.image.build_id.is_some());
    // The text with mappings holds the same events.
    recorded.run("perf script -i recording --no-demangle --ns --show-mmap-events --show-task-events > text");
    let text = read(&recorded.path("text"));
    let [printed] = of_image(&text, "spin")[..] else { panic!("{:?}", text.traces) };
    let places = |trace: &Trace| trace.events.iter().map(|event| event.location.clone()).collect::<Vec<_>>();
    assert_eq!(places(printed), places(trace));
}

#[test]
fn events_of_several_kinds_are_traces_of_their_own() {
    let recorded = Recorded::new("-e cpu-clock:u,page-faults:u -c 100000 -d");
    let reading = read(&recorded.path("recording"));
    let traces = of_image(&reading, "spin");
    let evidence: Vec<Evidence> = traces.iter().map(|trace| trace.evidence).collect();
    assert!(evidence.contains(&Evidence::Sampled), "{evidence:?}");
    assert_eq!(evidence.iter().filter(|evidence| **evidence == Evidence::Sampled).count(), 1);
}

#[test]
fn code_faults_are_those_that_perf_prints() {
    let recorded = Recorded::new("-e page-faults:u -c 1 -d");
    let reading = read(&recorded.path("recording"));
    let text = recorded.run("perf script -i recording -F addr,ip,dso");
    let mut expected = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let addresses: Vec<&&str> = words.iter().filter(|word| !word.starts_with('(')).collect();
        if let [fault, instruction] = addresses[..]
            && fault == instruction
            && words.last().is_some_and(|file| file.contains("libc.so"))
        {
            expected.insert((*fault).to_owned());
        }
    }
    let libc: Vec<&Trace> = reading
        .traces
        .iter()
        .filter(|trace| {
            trace.image.path.as_ref().is_some_and(|path| path.to_string_lossy().contains("libc.so"))
        })
        .collect();
    let events: usize = libc.iter().map(|trace| trace.events.len()).sum();
    assert!(!expected.is_empty() && events > 0 && events <= expected.len(), "{events} of {}", expected.len());
    assert!(libc.iter().all(|trace| trace.evidence == Evidence::Pages));
}

#[test]
fn pipes_and_compressed_recordings_hold_the_same() {
    for options in ["-e cpu-clock:u -F 997 -z", "-e cpu-clock:u -F 997"] {
        let recorded = Recorded::new(options);
        let reading = read(&recorded.path("recording"));
        let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
        assert_eq!(names(trace), recorded.perf_order("cpu-clock"), "{options}");
    }
    let recorded = Recorded::new("-e cpu-clock:u -F 997");
    recorded.run("perf record -q -e cpu-clock:u -F 997 -o - -- ./spin > piped");
    let reading = read(&recorded.path("piped"));
    let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
    let phases: Vec<String> = names(trace).into_iter().filter(|name| name.starts_with("phase")).collect();
    assert_eq!(phases, ["phase_one", "phase_two", "phase_three"]);
}

#[test]
fn cut_recordings_give_what_is_whole() {
    let bytes = fs::read(sample("sampling/perf-cpu-clock.data")).unwrap();
    let read = |bytes: &[u8]| read_bytes(bytes, Path::new("cut"), &Companions::default());
    let whole = read(&bytes).unwrap();
    let cut = read(&bytes[..bytes.len() / 2]).unwrap();
    assert!(has_note(&cut, "was not finished"), "{:?}", cut.notes);
    let (cut, whole) = (of_image(&cut, "spin")[0].clone(), of_image(&whole, "spin")[0].clone());
    assert!(!cut.events.is_empty() && cut.events.len() <= whole.events.len());
    assert_eq!(cut.events[..], whole.events[..cut.events.len()]);
    let error = read(&bytes[..64]).unwrap_err();
    assert_eq!(error.offset.map(|offset| offset <= 64), Some(true));
}

#[test]
fn another_build_at_the_same_path_is_not_believed() {
    let recorded = Recorded::new("-e cpu-clock:u -F 997 --buildid-mmap");
    recorded.run(&format!("cp spin kept && gcc -O2 -DOTHER {} -o spin", sample("source/spin.c").display()));
    let path = recorded.path("recording");
    let reading = read(&path);
    assert!(has_note(&reading, "is not the build that was recorded"), "{:?}", reading.notes);
    let companions = Companions::open(&[recorded.path("kept")]).unwrap();
    let reading = read_files(&[path], &companions).unwrap();
    let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
    assert!(names(trace).contains(&"phase_two".to_owned()));
}
