//! Recordings of uftrace, made here and compared with `uftrace dump`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::succeed;
use end_to_end::profiles::{DEMO_A, DEMO_B, names, sample, ticks};
use reorder::hints;
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_files};

fn compile(compiler: &str, directory: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let program = directory.join("program");
    succeed(Command::new(compiler).arg("-O1").args(flags).arg(source).arg("-o").arg(&program));
    program
}

/// The directory that `uftrace record` writes for a run of `program`.
fn record(program: &Path, flags: &[&str], arguments: &[&str]) -> PathBuf {
    let directory = program.with_extension("uftrace");
    succeed(
        Command::new("uftrace")
            .arg("record")
            .arg("-d")
            .arg(&directory)
            .args(flags)
            .arg(program)
            .args(arguments),
    );
    directory
}

fn read(directory: &Path) -> Reading {
    read_files(&[directory.to_path_buf()], &Companions::default()).unwrap()
}

/// Name and address of every function of an image.
fn symbols(program: &Path) -> BTreeSet<(String, u64)> {
    use object::{Object as _, ObjectSymbol as _};
    let bytes = std::fs::read(program).unwrap();
    let object = object::File::parse(bytes.as_slice()).unwrap();
    let functions =
        object.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition());
    functions.map(|symbol| (symbol.name().unwrap().to_owned(), symbol.address())).collect()
}

/// First entries of the program's own functions in one process, as `uftrace dump` shows them.
fn dumped(directory: &Path, program: &Path, threads: &[u32]) -> Vec<(String, u64)> {
    let text = succeed(Command::new("uftrace").args(["dump", "--no-pager", "-d"]).arg(directory));
    let own: BTreeSet<String> = symbols(program).into_iter().map(|(name, _)| name).collect();
    let entry = |line: &str| {
        let (time, rest) = line.trim_start().split_once(' ')?;
        let (thread, rest) = rest.trim_start().split_once(':')?;
        let (name, _) = rest.trim_start().strip_prefix("[entry] ")?.split_once('(')?;
        let thread: u32 = thread.parse().ok()?;
        let time: u64 = time.replace('.', "").parse().ok()?;
        (threads.contains(&thread) && own.contains(name)).then(|| (time, name.to_owned()))
    };
    let mut entries: Vec<(u64, String)> = text.lines().filter_map(entry).collect();
    entries.sort();
    let mut seen = BTreeSet::new();
    entries
        .into_iter()
        .filter(|(_, name)| seen.insert(name.clone()))
        .map(|(time, name)| (name, time))
        .collect()
}

fn assert_addresses(trace: &Trace, program: &Path) {
    let symbols = symbols(program);
    for (event, name) in trace.events.iter().zip(names(trace)) {
        let Location::Image(address) = event.location else { panic!("{event:?}") };
        assert!(symbols.contains(&(name, address.0)), "{event:?}");
    }
}

#[test]
fn recordings_agree_with_uftrace_event_for_event() {
    let scratch = tempfile::tempdir().unwrap();
    let kinds: [(&[&str], &[&str]); 3] = [
        (&["-pg", "-fPIE", "-pie"], &[]),
        (&["-pg", "-fno-PIE", "-no-pie"], &[]),
        (&["-fpatchable-function-entry=5", "-fPIE", "-pie"], &["-P", "."]),
    ];
    for (flags, options) in kinds {
        let program = compile("gcc", scratch.path(), &sample("source/demo.c"), flags);
        for (argument, expected) in [("a", &DEMO_A[..]), ("b", &DEMO_B[..])] {
            let directory = record(&program, options, &[argument]);
            let reading = read(&directory);
            let trace =
                reading.traces.iter().find(|trace| trace.image.path.as_deref() == Some(&*program)).unwrap();
            assert_eq!(names(trace), expected, "{flags:?} {:?}", reading.notes);
            assert_eq!(ticks(trace), dumped(&directory, &program, &[trace.process.unwrap()]));
            assert_addresses(trace, &program);
            assert_eq!(trace.evidence, Evidence::Exact);
            assert!(trace.image.build_id.is_some());
            assert!(
                reading.notes[0].message.contains("stubs of calls into libraries"),
                "{:?}",
                reading.notes
            );
        }
    }
}

const FORK: &str = r#"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define NI __attribute__((noinline))
NI int in_child(int x) { __asm__ volatile(""); return x; }
NI int in_parent(int x) { __asm__ volatile(""); return x; }
NI int after_exec(int x) { __asm__ volatile(""); return x; }
NI int in_thread(int x) { __asm__ volatile(""); return x; }
static void *run(void *argument) { in_thread(1); return argument; }
int main(int count, char **arguments) {
  if (count > 1 && !strcmp(arguments[1], "again")) return after_exec(0);
  pthread_t thread;
  pthread_create(&thread, 0, run, 0);
  pthread_join(thread, 0);
  if (!fork()) {
    in_child(0);
    execl("/proc/self/exe", arguments[0], "again", (char *)0);
  }
  wait(0);
  return in_parent(0);
}
"#;

#[test]
fn threads_are_together_and_processes_and_programs_apart() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("fork.c");
    std::fs::write(&source, FORK).unwrap();
    let program = compile("gcc", scratch.path(), &source, &["-pg", "-pthread"]);
    let directory = record(&program, &[], &[]);
    let reading = read(&directory);
    let own = reading.traces.iter().filter(|trace| trace.image.path.as_deref() == Some(&*program));
    let found: Vec<(Vec<String>, u32)> = own.clone().map(|trace| (names(trace), trace.run)).collect();
    let expected = [
        (&["main", "run", "in_thread", "in_parent"][..], 1),
        (&["in_child"], 1),
        (&["main", "after_exec"], 2),
    ];
    let expected: Vec<(Vec<String>, u32)> =
        expected.map(|(names, run)| (names.iter().map(ToString::to_string).collect(), run)).into();
    assert_eq!(found, expected, "{:?}", reading.notes);
    let processes: BTreeSet<u32> = own.clone().map(|trace| trace.process.unwrap()).collect();
    assert_eq!(processes.len(), 2);
    own.for_each(|trace| assert_addresses(trace, &program));
}

#[test]
fn cut_recordings_and_recordings_without_calls_are_told() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile("gcc", scratch.path(), &sample("source/demo.c"), &["-pg"]);
    let directory = record(&program, &[], &["a"]);
    let thread = read(&directory).traces[0].process.unwrap();
    let file = directory.join(format!("{thread}.dat"));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2 / 16 * 16 + 5]).unwrap();
    let cut = read(&directory);
    assert!(names(&cut.traces[0]).len() >= 3);
    assert!(DEMO_A.iter().zip(names(&cut.traces[0])).all(|(expected, found)| found == *expected));
    assert!(
        cut.notes.iter().any(|note| note.message.contains("is cut: its last 5 bytes")),
        "{:?}",
        cut.notes
    );

    // Without the list of tasks a thread's session is unknown, and then its addresses cannot be resolved.
    std::fs::rename(directory.join("task.txt"), directory.join("kept")).unwrap();
    let error = read_files(std::slice::from_ref(&directory), &Companions::default()).unwrap_err();
    assert!(error.to_string().contains("task.txt"), "{error}");

    std::fs::remove_file(&file).unwrap();
    let error = read_files(&[directory], &Companions::default()).unwrap_err();
    assert!(error.message.contains("no thread of the recording has a call"), "{error}");
    assert!(hints::text(error.hint.as_ref().unwrap()).contains("gcc -pg"));
}

#[test]
fn values_of_arguments_between_records_are_skipped() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile("gcc", scratch.path(), &sample("source/demo.c"), &["-pg"]);
    let flags = ["-A", "util_log@arg1,arg2,arg3", "-R", "main@retval", "-A", "strcmp@arg1/s,arg2/s"];
    let directory = record(&program, &flags, &["a"]);
    let reading = read(&directory);
    assert_eq!(names(&reading.traces[0]), DEMO_A, "{:?}", reading.notes);
    assert!(!reading.notes.iter().any(|note| note.message.contains("no record")), "{:?}", reading.notes);
}
