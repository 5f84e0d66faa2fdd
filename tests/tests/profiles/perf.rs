//! Linux perf: recordings and the output of `perf script` for them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use end_to_end::process::shell;
use end_to_end::profiles::{DEMO_A, DEMO_B, names, read_sample, sample};
use end_to_end::workspace::directory_on_disk;
use reorder_base::address::{Address, RuntimeAddress};
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_bytes, read_files};

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
fn samples_without_their_image_keep_places_in_memory() {
    let reading = read_sample("sampling/perf-cpu-clock.data", &[]).unwrap();
    let [trace] = of_image(&reading, "spin")[..] else { panic!("{:?}", reading.traces) };
    assert_eq!((trace.evidence, trace.process), (Evidence::Sampled, Some(15461)));
    assert!(has_note(&reading, "cannot be read any more"), "{:?}", reading.notes);
    // perf's text of the same file: all samples of the program.
    let text = fs::read_to_string(sample("sampling/perf-cpu-clock.script.txt")).unwrap();
    let mut seen = BTreeSet::new();
    let expected: Vec<Location> = text
        .lines()
        .filter(|line| line.ends_with("(./spin)"))
        .map(|line| u64::from_str_radix(line.split_whitespace().nth(4).unwrap(), 16).unwrap())
        .filter(|address| seen.insert(*address))
        .map(|address| Location::Runtime(RuntimeAddress(address)))
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
fn printed_faults_count_only_for_missing_code() {
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
fn recorded_probes_without_their_image_are_exact_names() {
    let reading = read_sample("sampling/perf-uprobes.data", &[]).unwrap();
    let [trace] = of_image(&reading, "demo.pie")[..] else { panic!("{:?}", reading.traces) };
    assert_eq!((names(trace), trace.evidence), (DEMO_A.map(str::to_owned).to_vec(), Evidence::Exact));
    assert!(has_note(&reading, "returns of functions"), "{:?}", reading.notes);
    // Offsets in a file that is gone cannot be used as addresses.
    assert!(trace.events.iter().all(|event| matches!(event.location, Location::Name(_))));
}

/// A program, built and recorded in a directory of its own.
struct Recorded {
    directory: tempfile::TempDir,
}

impl Recorded {
    fn new(options: &str) -> Self {
        let directory = directory_on_disk();
        let recorded = Self { directory };
        let source = sample("source/spin.c");
        // lld gives code addresses that differ from its offsets in the file.
        recorded.run(&format!("clang$LLVM -O1 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fuse-ld=lld -Wl,--build-id {} -o spin", source.display()));
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

/// A fault that perf prints as one of code: file, address in the image and time in nanoseconds.
type Fault = (PathBuf, Address, u64);

/// The faults at which the address is that of the instruction itself, as perf prints them, placed by the mappings that
/// perf prints and the segments of the files.
fn code_faults(recorded: &Recorded) -> Vec<Fault> {
    let text =
        recorded.run("perf script -i recording --ns --show-mmap-events -F comm,tid,time,event,addr,ip,dso");
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).unwrap();
    let (mut mappings, mut faults) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.contains("PERF_RECORD_MMAP2") {
            // `[start(size) @ offset device inode generation]: protection path`
            let (_, mapping) = line.split_once('[').unwrap();
            let (start, rest) = mapping.split_once('(').unwrap();
            let (size, rest) = rest.split_once(") @ ").unwrap();
            let offset = number(rest.split(' ').next().unwrap());
            mappings.push((number(start), number(size), offset, PathBuf::from(words.last().unwrap())));
        } else if let [.., time, event, data, _, instruction, file] = words[..]
            && event.starts_with("page-faults")
            && data == instruction
            && file.starts_with("(/")
        {
            let (seconds, nanoseconds) = time.trim_end_matches(':').split_once('.').unwrap();
            let time = seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanoseconds.parse::<u64>().unwrap();
            let address = number(instruction);
            let is_inside = |start: u64, size: u64| (start..start + size).contains(&address);
            let mapping = mappings.iter().rev().find(|(start, size, ..)| is_inside(*start, *size));
            let (start, _, offset, path) = mapping.unwrap();
            assert_eq!(file, format!("({})", path.display()));
            faults.push((path.clone(), address_of_offset(path, address - start + offset), time));
        }
    }
    faults
}

/// The address of the byte at `offset`, by the segments of the image at `path`.
fn address_of_offset(path: &Path, offset: u64) -> Address {
    use object::{Object as _, ObjectSegment as _};
    let bytes = fs::read(path).unwrap();
    let image = object::File::parse(bytes.as_slice()).unwrap();
    let segment = image.segments().find(|segment| {
        let (start, size) = segment.file_range();
        (start..start + size).contains(&offset)
    });
    let segment = segment.unwrap();
    Address(segment.address() + offset - segment.file_range().0)
}

/// Each event is a code fault that perf prints, at its time; of several in one function the first.
fn assert_faults(reading: &Reading, faults: &[Fault]) {
    let mut expected = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, address, time) in faults {
        let companions = Companions::open(std::slice::from_ref(path)).unwrap();
        let image = companions.images().next().unwrap();
        let start = image.function_containing(*address).map_or(*address, |(start, _)| start);
        if seen.insert((path.clone(), start)) {
            expected.push((path.clone(), Location::Inside(*address), Some(*time)));
        }
    }
    let pages = reading.traces.iter().filter(|trace| trace.evidence == Evidence::Pages);
    let of = |trace: &Trace| {
        let path = trace.image.path.clone().unwrap();
        trace
            .events
            .iter()
            .map(|event| (path.clone(), event.location.clone(), event.tick))
            .collect::<Vec<_>>()
    };
    let mut found: Vec<_> = pages.flat_map(of).collect();
    found.sort_by_key(|(_, _, time)| *time);
    assert_eq!(found, expected, "{:?}", reading.notes);
    assert!(expected.len() > 10, "{expected:?}");
}

#[test]
fn events_of_several_kinds_are_traces_of_their_own() {
    let recorded = Recorded::new("-e cpu-clock/freq=997/u,page-faults/period=1/u -d");
    let reading = read(&recorded.path("recording"));
    let faults = code_faults(&recorded);
    let traces = of_image(&reading, "spin");
    let [pages, sampled] = traces[..] else { panic!("{traces:?}") };
    assert_eq!((sampled.evidence, pages.evidence), (Evidence::Sampled, Evidence::Pages));
    assert_eq!(names(sampled), recorded.perf_order("cpu-clock/freq=997/u"));
    assert!(names(sampled).contains(&"phase_one".to_owned()), "{sampled:?}");
    assert_faults(&reading, &faults);
}

#[test]
fn code_faults_are_those_that_perf_prints() {
    let recorded = Recorded::new("-e page-faults:u -c 1 -d");
    let reading = read(&recorded.path("recording"));
    assert_faults(&reading, &code_faults(&recorded));
    let data = recorded.run("perf script -i recording -F addr,ip").lines().count();
    let note = reading.notes.iter().find(|note| note.message.contains("accesses to data")).unwrap();
    let left_out: usize = note.message.split(' ').next().unwrap().parse().unwrap();
    assert!(left_out > 0 && left_out < data, "{left_out} of {data}");
}

/// Probes are global to the kernel, in any namespace, so each test process has a group of its own.
/// The file system through which they are set is mounted for these commands alone.
#[test]
fn fresh_probes_are_the_entries_that_perf_prints() {
    let mount = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing";
    let permitted =
        format!("unshare --mount sh -c '{{ {mount}; }} && test -w /sys/kernel/tracing/uprobe_events'");
    if let Err(reason) = shell(&permitted, LIMIT) {
        // Written directly, because the harness captures the output of tests that pass: so only
        // `recorded_probes_are_exact_entries_at_addresses_of_the_image` mentions probes.
        let message =
            format!("fresh_probes: NOT RECORDED, no tracefs with a writable uprobe_events here: {reason}\n");
        std::io::stderr().write_all(message.as_bytes()).unwrap();
        return;
    }
    let directory = directory_on_disk();
    let run =
        |command: &str| shell(&format!("cd {} && {command}", directory.path().display()), LIMIT).unwrap();
    run(&format!("gcc -O1 {} -o demo", sample("source/demo.c").display()));
    let group = format!("reorder_test_{}", std::process::id());
    let functions = [&DEMO_A[..], &["never_called"]].concat().join(" ");
    let script = format!(
        "{mount}\n\
         trap \"perf probe -q -d '{group}:*'\" EXIT\n\
         for function in {functions}; do perf probe -q -x ./demo --add {group}:$function=$function || exit; done\n\
         for run in a b; do perf record -q -e '{group}:*' -o recording.$run -- ./demo $run || exit; done\n"
    );
    fs::write(directory.path().join("script"), script).unwrap();
    run("unshare --mount bash script");
    for (run_name, expected) in [("a", &DEMO_A[..]), ("b", &DEMO_B[..])] {
        let recording = format!("recording.{run_name}");
        let reading = read(&directory.path().join(&recording));
        let [trace] = of_image(&reading, "demo")[..] else { panic!("{:?}", reading.traces) };
        assert_eq!(
            (names(trace), trace.evidence),
            (expected.iter().map(|name| (*name).to_owned()).collect(), Evidence::Exact)
        );
        let text = run(&format!("perf script -i {recording} --ns -F time,event"));
        let mut seen = BTreeSet::new();
        let mut printed = Vec::new();
        for line in text.lines() {
            let (time, event) = line.trim().split_once(": ").unwrap();
            let name = event.trim().trim_end_matches(':').rsplit(':').next().unwrap().to_owned();
            if seen.insert(name.clone()) {
                printed.push((name, time.replace('.', "").parse::<u64>().unwrap()));
            }
        }
        let found: Vec<(String, u64)> =
            names(trace).into_iter().zip(trace.events.iter().map(|event| event.tick.unwrap())).collect();
        assert_eq!(found, printed, "{text}");
        for event in &trace.events {
            assert!(matches!(event.location, Location::Image(_)), "{event:?}");
        }
        run(&format!("perf script -i {recording} --ns --show-mmap-events --show-task-events > text"));
        let text = read(&directory.path().join("text"));
        let [from_text] = of_image(&text, "demo")[..] else { panic!("{:?}", text.traces) };
        assert_eq!((from_text.evidence, &from_text.events), (Evidence::Exact, &trace.events));
    }
}

#[test]
fn probes_of_any_name_are_known_by_what_they_print() {
    let text = "demo 8319 [001]  6172.469793:   mine:main: (556eb1b2c22c)\n\
                demo 8319 [001]  6172.469798:   mine:helper: (556eb1b2c1b6)\n\
                demo 8319 [001]  6172.469799:   mine:leave: (556eb1b2c240 <- 556eb1b2c1b6)\n";
    let reading = read_bytes(text.as_bytes(), Path::new("text"), &Companions::default()).unwrap();
    let [trace] = &reading.traces[..] else { panic!("{:?}", reading.traces) };
    assert_eq!(
        (names(trace), trace.evidence),
        (vec!["main".to_owned(), "helper".to_owned()], Evidence::Exact)
    );
    assert!(has_note(&reading, "returns of functions"), "{:?}", reading.notes);
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
