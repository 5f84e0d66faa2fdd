//! XRay's logs: stored ones, and fresh ones compared with `llvm-xray`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::succeed;
use end_to_end::profiles::{DEMO_A, DEMO_B, names, read_sample, sample, ticks};
use end_to_end::workspace;
use reorder::hints;
use reorder_base::tool_versions::llvm;
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_files};

fn try_read(log: &Path, companions: &[&Path]) -> reorder_base::error::Result<Reading> {
    let companions: Vec<PathBuf> = companions.iter().map(|path| path.to_path_buf()).collect();
    read_files(&[log.to_path_buf()], &Companions::open(&companions)?)
}

fn read(log: &Path, companions: &[&Path]) -> Reading {
    try_read(log, companions).unwrap()
}

/// Functions of a stored log by `llvm-xray extract`: number, address and name.
fn extracted(yaml: &str) -> BTreeSet<(u32, u64, String)> {
    let field = |line: &str, name: &str| {
        let rest = line.split_once(&format!(" {name}: "))?.1;
        Some(rest.split([',', ' ']).next()?.to_owned())
    };
    let function = |line: &str| {
        let address = field(line, "function")?;
        let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
        Some((field(line, "id")?.parse().ok()?, address, field(line, "function-name")?))
    };
    yaml.lines().filter_map(function).collect()
}

/// An image that has the sections of a stored log at their addresses, and the symbols.
fn companion(directory: &Path, name: &str, map: u64, index: u64) -> PathBuf {
    let mut assembly = String::new();
    for (section, file) in [("xray_instr_map", "instr_map"), ("xray_fn_idx", "fn_idx")] {
        let file = sample(&format!("xray/{name}.{file}.bin"));
        writeln!(assembly, ".section {section},\"a\"\n.incbin \"{}\"", file.display()).unwrap();
    }
    writeln!(assembly, ".text\n.skip 4096").unwrap();
    let yaml = std::fs::read_to_string(sample(&format!("xray/{name}.yaml"))).unwrap();
    for (_, address, function) in extracted(&yaml) {
        writeln!(
            assembly,
            ".globl {function}\n.type {function}, @function\n.set {function}, .text + {address:#x} - 0x24000"
        )
        .unwrap();
    }
    let (source, object, image) = (directory.join("map.s"), directory.join("map.o"), directory.join(name));
    std::fs::write(&source, assembly).unwrap();
    succeed(Command::new("gcc").arg("-c").arg(&source).arg("-o").arg(&object));
    succeed(
        Command::new("ld.bfd")
            .args(["-e", "0", "-Ttext=0x24000"])
            .args([
                format!("--section-start=xray_instr_map={map:#x}"),
                format!("--section-start=xray_fn_idx={index:#x}"),
            ])
            .arg(&object)
            .arg("-o")
            .arg(&image),
    );
    image
}

#[test]
fn stored_logs_hold_their_orders() {
    let scratch = tempfile::tempdir().unwrap();
    let after_main: Vec<&str> = ["demo_main"].into_iter().chain(DEMO_A.into_iter().skip(1)).collect();
    let threads = ["demo_main", "hot", "th_c", "run", "th_b"];
    let logs = [
        ("basic", 0x2c958, 0x2cb98, &DEMO_A[..]),
        ("fdr", 0x2c9c3, 0x2cc08, &after_main),
        ("fdr-threads", 0x2c9c3, 0x2cb08, &threads),
    ];
    for (name, map, index, expected) in logs {
        let image = companion(scratch.path(), name, map, index);
        let log = sample(&format!("xray/{name}.log"));
        let reading = read(&log, &[&image]);
        let [trace] = &reading.traces[..] else { panic!("{name}: {} traces", reading.traces.len()) };
        assert_eq!(names(trace), expected, "{name}");
        assert_eq!(trace.evidence, Evidence::Exact);
        let yaml = std::fs::read_to_string(sample(&format!("xray/{name}.yaml"))).unwrap();
        let truth = extracted(&yaml);
        for (event, name) in trace.events.iter().zip(names(trace)) {
            let Location::Image(address) = event.location else { panic!("{event:?}") };
            assert!(
                truth.iter().any(|(_, start, function)| (*start, function) == (address.0, &name)),
                "{event:?}"
            );
        }
        let lost = reading.notes.iter().any(|note| note.message.contains("exits have no entry"));
        assert_eq!(lost, name == "fdr-threads", "{name}: {:?}", reading.notes);
    }
}

#[test]
fn logs_need_the_program_that_wrote_them() {
    let log = sample("xray/basic.log");
    let error = try_read(&log, &[]).unwrap_err();
    assert!(
        hints::text(error.hint.as_ref().unwrap()).contains("--companion INSTRUMENTED_PROGRAM"),
        "{}",
        error.message
    );
    let error = try_read(&log, &[Path::new("/bin/true")]).unwrap_err();
    assert!(error.message.contains("functions by number"), "{error}");
    let scratch = tempfile::tempdir().unwrap();
    let other = companion(scratch.path(), "fdr-threads", 0x2c9c3, 0x2cb08);
    let error = try_read(&log, &[&other]).unwrap_err();
    assert!(error.message.contains("has 5 instrumented functions and the log has number 9"), "{error}");
}

#[test]
fn an_object_file_names_its_programs_functions() {
    let object = sample("xray/relocatable.o");
    let reading = read(&sample("xray/basic.log"), &[&object]);
    assert_eq!(names(&reading.traces[0]), DEMO_A);
    let official = succeed(Command::new(llvm("llvm-xray")).args(["extract", "--symbolize"]).arg(&object));
    assert_eq!(extracted(&official).len(), 1, "llvm-xray now sees more than the first section: {official}");
}

#[test]
fn coverage_lists_have_addresses_of_their_own() {
    let reading = read_sample("xray/coverage.txt", &[]).unwrap();
    let symbols = std::fs::read_to_string(sample("xray/coverage.nm.txt")).unwrap();
    let address_of = |name: &&str| {
        let line = symbols.lines().find(|line| line.split(' ').nth(2) == Some(*name)).unwrap();
        Location::Image(reorder_base::address::Address(u64::from_str_radix(&line[..16], 16).unwrap()))
    };
    let expected: Vec<Location> = DEMO_A.iter().map(address_of).collect();
    let found: Vec<Location> = reading.traces[0].events.iter().map(|event| event.location.clone()).collect();
    assert_eq!(found, expected);
}

/// A basic log in which the functions with these numbers are entered one after the other.
fn log_of(functions: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = vec![3, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(1_000_000_000u64.to_le_bytes());
    bytes.extend([0; 16]);
    for (tick, function) in (1000u64..).zip(functions) {
        bytes.extend([0; 4]);
        bytes.extend(function.to_le_bytes());
        bytes.extend(tick.to_le_bytes());
        bytes.extend([1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes
}

/// Every function that `llvm-xray extract` finds in `image` has the same number, address and name for us.
fn assert_map(image: &Path) {
    let truth =
        extracted(&succeed(Command::new(llvm("llvm-xray")).args(["extract", "--symbolize"]).arg(image)));
    assert!(truth.len() >= 2, "{}", image.display());
    let log = image.with_extension("log");
    std::fs::write(&log, log_of(truth.iter().rev().map(|(number, ..)| *number))).unwrap();
    let reading = read(&log, &[image]);
    let address = |event: &reorder_trace::Event| match event.location {
        Location::Image(address) => address.0,
        _ => panic!("{event:?}"),
    };
    let trace = &reading.traces[0];
    let found: Vec<(u64, String)> = trace.events.iter().map(address).zip(names(trace)).collect();
    let expected: Vec<(u64, String)> =
        truth.into_iter().rev().map(|(_, address, name)| (address, name)).collect();
    assert_eq!(found, expected, "{:?}", reading.notes);
    assert_eq!(reading.notes, []);
}

#[test]
fn maps_of_all_processors_agree_with_llvm_xray() {
    let scratch = tempfile::tempdir().unwrap();
    for target in ["armv7-linux-gnueabihf", "aarch64-linux-gnu"] {
        let (object, image) = (scratch.path().join("demo.o"), scratch.path().join(target));
        let source = scratch.path().join("source.c");
        let function =
            |name: &str| format!("int {name}(int x) {{ __asm__ volatile(\"\"); return x + 1; }}\n");
        std::fs::write(&source, function("one") + &function("two") + &function("three")).unwrap();
        compile(
            &llvm("clang"),
            &object,
            &[&source],
            &["-c", "-ffreestanding", &format!("--target={target}")],
        );
        let flags = ["-e", "one", "--unresolved-symbols=ignore-all", "-o"];
        succeed(Command::new(llvm("ld.lld")).args(flags).arg(&image).arg(&object));
        assert_map(&image);
    }
}

#[test]
fn maps_with_absolute_addresses_are_read_through_relocations() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, object) = (scratch.path().join("map.s"), scratch.path().join("map.o"));
    let mut assembly = ".text\n".to_owned();
    for name in ["one", "two"] {
        writeln!(assembly, ".globl {name}\n.type {name}, @function\n{name}: nop").unwrap();
    }
    assembly += ".section xray_instr_map, \"aw\"\n";
    for (name, kind) in [("one", 0), ("one", 1), ("two", 0)] {
        writeln!(assembly, ".quad {name}, {name}\n.byte {kind}, 0, 0\n.zero 13").unwrap();
    }
    assembly += ".globl _start\n_start = one\n";
    std::fs::write(&source, assembly).unwrap();
    succeed(Command::new("gcc").arg("-c").arg(&source).arg("-o").arg(&object));
    for kind in ["-pie", "-no-pie"] {
        let image = scratch.path().join(kind);
        succeed(
            Command::new(llvm("ld.lld")).args([kind, "--no-dynamic-linker", "-o"]).arg(&image).arg(&object),
        );
        let truth = succeed(Command::new(llvm("llvm-readelf")).arg("-r").arg(&image));
        assert_eq!(truth.contains("R_X86_64_RELATIVE"), kind == "-pie", "{truth}");
        let log = scratch.path().join("log");
        std::fs::write(&log, log_of([2, 1])).unwrap();
        let reading = read(&log, &[&image]);
        assert_eq!(names(&reading.traces[0])[0], "two", "{:?}", reading.notes);
        assert_eq!(reading.traces[0].events.len(), 2);
        if kind == "-pie" {
            let extracted = extracted(&succeed(
                Command::new(llvm("llvm-xray")).arg("extract").arg("--symbolize").arg(&image),
            ));
            let two = extracted.iter().find(|(number, ..)| *number == 2).unwrap();
            assert_eq!(
                reading.traces[0].events[0].location,
                Location::Image(reorder_base::address::Address(two.1))
            );
        }
    }
}

/// Compiles with clang's XRay and no threshold.
fn compile(compiler: &str, output: &Path, sources: &[&Path], flags: &[&str]) -> PathBuf {
    succeed(
        Command::new(compiler)
            .args(["-O1", "-fxray-instrument", "-fxray-instruction-threshold=1"])
            .args(flags)
            .args(sources)
            .arg("-o")
            .arg(output),
    );
    output.to_path_buf()
}

/// The log that `command` writes in the basic mode; several processes write several.
fn basic_logs(directory: &Path, command: &mut Command, threshold: u32) -> Vec<PathBuf> {
    let base = directory.join("xray.");
    let mode = format!("patch_premain=true xray_mode=xray-basic xray_logfile_base={}", base.display());
    let options = format!("func_duration_threshold_us={threshold} max_stack_depth=1024");
    succeed(command.env("XRAY_OPTIONS", mode).env("XRAY_BASIC_OPTIONS", options));
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("xray.") {
            let kept = directory.join(format!("log{}", logs.len()));
            std::fs::rename(&path, &kept).unwrap();
            logs.push(kept);
        }
    }
    logs
}

/// First entries by clock, as `llvm-xray convert` shows them: name, or number of what it cannot name, and clock.
fn converted(log: &Path, program: &Path) -> Vec<(String, u64)> {
    let text = succeed(
        Command::new(llvm("llvm-xray"))
            .args(["convert", "--symbolize", "--output-format=yaml", "--instr_map"])
            .args([program, log]),
    );
    let field = |line: &str, name: &str| {
        let rest = line.split_once(&format!(" {name}: "))?.1;
        Some(rest.split_once(", ").map_or(rest, |(value, _)| value).to_owned())
    };
    let record = |line: &str| {
        let kind = field(line, "kind")?;
        let tick: u64 = field(line, "tsc")?.parse().ok()?;
        kind.starts_with("function-enter").then(|| (tick, field(line, "function").unwrap_or_default()))
    };
    let mut entries: Vec<(u64, String)> = text.lines().filter_map(record).collect();
    entries.sort_by_key(|(tick, _)| *tick);
    let mut seen = BTreeSet::new();
    entries
        .into_iter()
        .filter(|(_, name)| seen.insert(name.clone()))
        .map(|(tick, name)| (name, tick))
        .collect()
}

#[test]
fn basic_logs_agree_with_llvm_xray_event_for_event() {
    let scratch = tempfile::tempdir().unwrap();
    for flags in [&["-fPIE", "-pie"][..], &["-fno-PIE", "-no-pie"]] {
        let program =
            compile(&llvm("clang"), &scratch.path().join("program"), &[&sample("source/demo.c")], flags);
        for (argument, expected) in [("a", &DEMO_A[..]), ("b", &DEMO_B[..])] {
            let logs = basic_logs(scratch.path(), Command::new(&program).arg(argument), 0);
            let [log] = &logs[..] else { panic!("{logs:?}") };
            let reading = read(log, &[&program]);
            let trace = &reading.traces[0];
            assert_eq!(names(trace), expected);
            assert_eq!(ticks(trace), converted(log, &program));
            assert_eq!(reading.notes, []);
            assert_eq!(trace.events[0].nanoseconds, Some(0));
        }
    }
}

#[test]
fn the_default_filter_of_short_calls_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    // No machine takes so long for the short call, nor less for the others.
    let source = scratch.path().join("calls.c");
    let calls = "#include <unistd.h>\n\
        __attribute__((noinline)) int quick(int x) { return x + 1; }\n\
        __attribute__((noinline)) int slow(void) { return usleep(40000) + 1; }\n\
        int main(void) { return quick(slow() - 2); }\n";
    std::fs::write(&source, calls).unwrap();
    let program = compile(&llvm("clang"), &scratch.path().join("program"), &[&source], &[]);
    let logs = basic_logs(scratch.path(), &mut Command::new(&program), 20_000);
    let reading = read(&logs[0], &[&program]);
    assert_eq!(names(&reading.traces[0]), ["main", "slow"]);
    let note = reading.notes.iter().find(|note| note.message.contains("no call took less than")).unwrap();
    assert!(hints::text(note.hint.as_ref().unwrap()).contains("func_duration_threshold_us=0"), "{note:?}");
}

#[test]
fn cut_logs_give_what_is_complete_and_llvm_xray_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile(&llvm("clang"), &scratch.path().join("program"), &[&sample("source/demo.c")], &[]);
    let logs = basic_logs(scratch.path(), Command::new(&program).arg("a"), 0);
    let whole = std::fs::read(&logs[0]).unwrap();
    let cut = scratch.path().join("cut");
    std::fs::write(&cut, &whole[..32 + 5 * 32 + 7]).unwrap();
    let reading = read(&cut, &[&program]);
    assert_eq!(names(&reading.traces[0]), DEMO_A[..3]);
    let note = &reading.notes[0];
    assert_eq!(note.offset, Some(32 + 5 * 32));
    assert!(note.message.contains("7 of 32 bytes"), "{note}");
    let official = Command::new(llvm("llvm-xray"))
        .args(["convert", "--output-format=yaml", "--instr_map"])
        .args([&program, &cut])
        .output()
        .unwrap();
    assert!(!official.status.success(), "llvm-xray reads cut logs now");
}

#[test]
fn recorder_logs_agree_with_llvm_xray_event_for_event() {
    let scratch = tempfile::tempdir().unwrap();
    let driver = sample("source/xmain.c");
    for (source, expected) in [("source/demo.c", Some(&DEMO_A[1..])), ("source/xthreads.c", None)] {
        let renamed = if expected.is_some() { "-Dmain=demo_main" } else { "-DUNUSED" };
        let (object, driver_object) = (scratch.path().join("part.o"), scratch.path().join("driver.o"));
        compile(&llvm("clang"), &object, &[&sample(source)], &["-c", renamed]);
        compile(&llvm("clang"), &driver_object, &[&driver], &["-c"]);
        let program =
            compile(&llvm("clang"), &scratch.path().join("program"), &[&object, &driver_object], &[]);
        let base = format!("patch_premain=false xray_logfile_base={}/fdr.", scratch.path().display());
        succeed(Command::new(&program).arg("a").env("XRAY_OPTIONS", base));
        let mut files = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
        let written =
            files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("fdr.")).unwrap();
        let log = scratch.path().join("log");
        std::fs::rename(written, &log).unwrap();
        let reading = read(&log, &[&program]);
        let trace = &reading.traces[0];
        assert_eq!(ticks(trace), converted(&log, &program), "{source}");
        match expected {
            Some(expected) => assert_eq!(names(trace)[1..], *expected),
            None => assert!(names(trace).iter().any(|name| name == "hot"), "{:?}", names(trace)),
        }

        let whole = std::fs::read(&log).unwrap();
        std::fs::write(&log, &whole[..whole.len() - 5]).unwrap();
        let cut = read(&log, &[&program]);
        assert!(cut.notes.iter().any(|note| note.offset.is_some()), "{:?}", cut.notes);
        assert!(!cut.traces[0].events.is_empty());
    }
}

#[test]
fn processes_are_apart() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("fork.c");
    let text = "#include <sys/wait.h>\n#include <unistd.h>\n\
                __attribute__((noinline)) int in_child(int x) { __asm__ volatile(\"\"); return x; }\n\
                __attribute__((noinline)) int in_parent(int x) { __asm__ volatile(\"\"); return x; }\n\
                int main(void) { int child = fork(); if (!child) return in_child(0); wait(0); return in_parent(0); }\n";
    std::fs::write(&source, text).unwrap();
    let program = compile(&llvm("clang"), &scratch.path().join("program"), &[&source], &[]);
    let logs = basic_logs(scratch.path(), &mut Command::new(&program), 0);
    let traces: Vec<Trace> = logs.iter().flat_map(|log| read(log, &[&program]).traces).collect();
    let with =
        |name: &str| traces.iter().filter(|trace| names(trace).iter().any(|other| other == name)).collect();
    let (children, parents): (Vec<&Trace>, Vec<&Trace>) = (with("in_child"), with("in_parent"));
    assert_eq!((children.len(), parents.len()), (1, 1), "{traces:?}");
    assert_ne!(children[0].process, parents[0].process);
}

#[test]
fn libraries_are_separate_objects() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let function = |name: &str, body: &str| {
        format!("__attribute__((noinline)) int {name}(int x) {{ __asm__ volatile(\"\"); {body} }}\n")
    };
    std::fs::write(
        at("one.c"),
        function("one_inner", "return x + 1;") + &function("one", "return one_inner(x) * 2;"),
    )
    .unwrap();
    std::fs::write(at("two.c"), function("two", "return x + 3;")).unwrap();
    let main = "int one(int); int two(int); int main(void) { return two(one(1)) - 7; }\n";
    std::fs::write(at("main.c"), main).unwrap();
    let shared = ["-fxray-shared", "-fPIC", "-shared"];
    let one = compile(&llvm("clang"), &at("libone.so"), &[&at("one.c")], &shared);
    let two = compile(&llvm("clang"), &at("libtwo.so"), &[&at("two.c")], &shared);
    let origin = format!("-Wl,-rpath,{}", scratch.path().display());
    let program =
        compile(&llvm("clang"), &at("program"), &[&at("main.c"), &one, &two], &["-fPIE", "-pie", &origin]);
    let logs = basic_logs(scratch.path(), &mut Command::new(&program), 0);
    let [log] = &logs[..] else { panic!("{logs:?}") };

    let alone = read(log, &[&program]);
    assert_eq!(names(&alone.traces[0]), ["main"]);
    let note = alone.notes.iter().find(|note| note.message.contains("a shared library")).unwrap();
    assert!(hints::text(note.hint.as_ref().unwrap()).contains("--companion FIRST.so"), "{note:?}");
    assert!(
        converted(log, &program).iter().any(|(name, _)| name.contains('#')),
        "llvm-xray names libraries now"
    );

    // The loader initialises the program's dependencies in reverse order.
    let given_as_loaded = read(log, &[&program, &two, &one]);
    let of = |reading: &Reading, image: &Path| -> Vec<String> {
        let trace = reading.traces.iter().find(|trace| trace.image.path.as_deref() == Some(image)).unwrap();
        names(trace)
    };
    assert_eq!(of(&given_as_loaded, &one), ["one", "one_inner"], "{:?}", given_as_loaded.notes);
    assert_eq!(of(&given_as_loaded, &two), ["two"]);
    assert!(given_as_loaded.notes.iter().any(|note| note.message.contains("is taken to be")));
    // In the other order a number is out of range, which is reported.
    let swapped = read(log, &[&program, &one, &two]);
    assert!(swapped.notes.iter().any(|note| note.message.contains("another build")), "{:?}", swapped.notes);
}

/// Eight threads that enter the same functions at once, signals in between, templates, a static destructor.
const THREADS: &str = r#"
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>
std::atomic<int> sum;
template <int N> __attribute__((noinline)) int work(int x) {
  sum++;
  if constexpr (N > 0) return work<N - 1>(x) + N; else return x;
}
__attribute__((noinline)) void hot(int i) { sum += i; }
static void on_signal(int) { hot(1); }
struct Late { __attribute__((noinline)) ~Late() { hot(2); } };
static Late late;
int main() {
  hot(0);
  std::signal(SIGUSR1, on_signal);
  work<20>(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; t++) threads.emplace_back([t] { for (int i = 0; i < 20000; i++) hot(i); sum += work<100>(t); });
  for (int i = 0; i < 1000; i++) std::raise(SIGUSR1);
  for (auto &thread : threads) thread.join();
}
"#;

/// A C++ program with the shipped handler, and one without.
fn with_handler(directory: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let handler = workspace::root().join("scripts/xray-coverage/reorder_xray_coverage.c");
    let object = directory.join("handler.o");
    succeed(
        Command::new(llvm("clang"))
            .args(["-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-c"])
            .arg(handler)
            .arg("-o")
            .arg(&object),
    );
    compile(&llvm("clang++"), &directory.join("covered"), &[source, &object], flags)
}

#[test]
fn coverage_lists_agree_with_logs_and_recordings() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, list) = (scratch.path().join("threads.cpp"), scratch.path().join("list"));
    std::fs::write(&source, THREADS).unwrap();
    for flags in [&["-fPIE", "-pie"][..], &["-fno-PIE", "-no-pie"]] {
        let program = with_handler(scratch.path(), &source, flags);
        let mut known = BTreeSet::new();
        for _ in 0..5 {
            succeed(Command::new(&program).env("REORDER_XRAY_FILE", &list));
            let reading = read(&list, &[&program]);
            assert_eq!(reading.notes, []);
            known.extend(names(&reading.traces[0]));
        }
        let reading = read(&list, &[&program]);
        let covered = names(&reading.traces[0]);
        assert!(reading.traces[0].process.is_some());
        assert_eq!(read(&list, &[]).traces[0].image.path.as_deref(), Some(&*program));

        // One thread until `work<20>` has returned: that part has one order for every observer.
        let single: Vec<&String> = covered.iter().take_while(|name| *name != "_Z4workILi0EEii").collect();
        assert!(single.len() >= 22, "{covered:?}");
        let plain = compile(&llvm("clang++"), &scratch.path().join("plain"), &[&source], flags);
        let logs = basic_logs(scratch.path(), &mut Command::new(&plain), 0);
        let basic = read(&logs[0], &[&plain]);
        let basic = names(&basic.traces[0]);
        let shared = |names: &[String]| -> Vec<String> {
            let single = |name: &&String| single.contains(name);
            names.iter().filter(single).cloned().collect()
        };
        assert_eq!(shared(&basic), shared(&covered));
        // The basic mode stops before static destructors; the handler does not.
        assert!(basic.iter().all(|name| known.contains(name)), "{basic:?} {known:?}");

        // The recorder's breakpoints are at XRay's patch points, so it gets the program without patching.
        let traces = scratch.path().join("traces");
        succeed(workspace::reorder().arg("record").arg("-o").arg(&traces).arg("--").arg(&plain));
        let recorded = read(&traces, &[]);
        let own = recorded.traces.iter().find(|trace| trace.image.path.as_deref() == Some(&*plain)).unwrap();
        assert_eq!(shared(&names(own)), shared(&covered));
        std::fs::remove_dir_all(&traces).unwrap();
    }
}

#[test]
fn learning_mode_counts() {
    let scratch = tempfile::tempdir().unwrap();
    let list = scratch.path().join("list");
    let program = with_handler(scratch.path(), &sample("source/demo.c"), &[]);
    succeed(Command::new(&program).arg("a").env("REORDER_XRAY_FILE", &list).env("REORDER_XRAY_HITS", "3"));
    let reading = read(&list, &[&program]);
    let counts: Vec<u64> = reading.traces[0].events.iter().map(|event| event.count.unwrap()).collect();
    assert_eq!(counts, [1, 1, 3, 1, 1, 1, 1, 1], "{:?}", names(&reading.traces[0]));
}
