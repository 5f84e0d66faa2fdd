//! Callgrind, valgrind's blocks and QEMU's blocks: stored files, and fresh ones of the installed tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::succeed;
use end_to_end::profiles::{DEMO_A, DEMO_B, names, read_sample, sample};
use reorder::hints;
use reorder_base::tool_versions::llvm;
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_files};

/// Compiles `source` of the profiles with `compiler` and `flags`.
fn compile(compiler: &str, directory: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let program = directory.join("program");
    succeed(Command::new(compiler).args(flags).arg(sample(source)).arg("-o").arg(&program));
    program
}

fn read(path: &Path, companions: &[&Path]) -> Reading {
    let companions: Vec<PathBuf> = companions.iter().map(|path| path.to_path_buf()).collect();
    read_files(&[path.to_path_buf()], &Companions::open(&companions).unwrap()).unwrap()
}

fn trace_of<'traces>(reading: &'traces Reading, image: &str) -> &'traces Trace {
    let ends_so = |trace: &&Trace| trace.image.path.as_ref().is_some_and(|path| path.ends_with(image));
    reading.traces.iter().find(ends_so).unwrap_or_else(|| panic!("no trace of {image}: {:?}", reading.notes))
}

/// The names of a trace that are functions of `demo.c`.
fn demo_names(trace: &Trace) -> Vec<String> {
    names(trace).into_iter().filter(|name| DEMO_A.contains(&name.as_str())).collect()
}

/// Name and address of every function symbol, by the image itself.
fn symbols(program: &Path) -> Vec<(String, u64)> {
    use object::{Object as _, ObjectSymbol as _};
    let bytes = std::fs::read(program).unwrap();
    let object = object::File::parse(bytes.as_slice()).unwrap();
    let symbols = object.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    symbols.map(|symbol| (symbol.name().unwrap().to_owned(), symbol.address())).collect()
}

/// Every event with name and address agrees with the program's own symbols.
fn assert_addresses(trace: &Trace, program: &Path) {
    let symbols = symbols(program);
    let mut compared = 0;
    for event in &trace.events {
        let (Location::Image(address) | Location::Inside(address), Some(name)) =
            (&event.location, &event.name)
        else {
            continue;
        };
        let name = String::from_utf8_lossy(name).into_owned();
        assert!(symbols.contains(&(name.clone(), address.0)), "{name} is not at {address}");
        compared += 1;
    }
    assert!(compared >= DEMO_B.len(), "{compared} functions compared");
}

#[test]
fn stored_files_hold_order_a() {
    let callgrind = read_sample("emulators/callgrind.out", &[]).unwrap();
    let trace = trace_of(&callgrind, "demo.np");
    assert_eq!(demo_names(trace), DEMO_A);
    assert_eq!((trace.process, trace.evidence), (Some(15573), Evidence::Exact));
    assert_eq!(trace.command, [b"./demo.np".to_vec(), b"a".to_vec()]);
    assert_eq!(callgrind.notes, []);
    let util_log = trace.events.iter().find(|event| event.symbol() == Some(b"util_log")).unwrap();
    assert_eq!(util_log.count, Some(7));

    let valgrind = read_sample("emulators/valgrind-blocks.txt", &[]).unwrap();
    assert_eq!(demo_names(trace_of(&valgrind, "demo.np")), DEMO_A);
    assert!(valgrind.notes[0].message.contains("block headers alone"), "{:?}", valgrind.notes);

    let qemu = read_sample("emulators/qemu-blocks.txt", &[]).unwrap();
    assert_eq!(names(&qemu.traces[0]), DEMO_A);
    assert_eq!(qemu.notes, []);
}

#[test]
fn callgrind_gives_order_counts_and_addresses() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile("gcc", scratch.path(), "source/demo.c", &["-O1", "-g"]);
    for (argument, expected) in [("a", &DEMO_A[..]), ("b", &DEMO_B[..])] {
        let profile = scratch.path().join(argument);
        let callgrind = |flags: &[&str]| {
            let file = format!("--callgrind-out-file={}", profile.display());
            let mut command = Command::new("valgrind");
            succeed(command.args(["--tool=callgrind", &file]).args(flags).arg(&program).arg(argument));
            read(&profile, &[])
        };
        let plain = callgrind(&[]);
        assert_eq!(demo_names(trace_of(&plain, "program")), expected);

        let addressed = callgrind(&["--demangle=no", "--dump-instr=yes"]);
        let trace = trace_of(&addressed, "program");
        assert_eq!(demo_names(trace), expected);
        assert_addresses(trace, &program);

        let counted = callgrind(&["--compress-strings=no"]);
        let trace = trace_of(&counted, "program");
        assert_eq!(trace.evidence, Evidence::Counts);
        assert_eq!(demo_names(trace)[0], "util_log", "the most frequent is first");
        assert!(counted.notes[0].message.contains("no order"), "{:?}", counted.notes);
    }
}

#[test]
fn valgrind_blocks_give_order_unless_they_were_chased() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile("gcc", scratch.path(), "source/demo.c", &["-O1"]);
    for (argument, expected) in [("a", &DEMO_A[..]), ("b", &DEMO_B[..])] {
        let log = scratch.path().join(argument);
        let valgrind = |flags: &[&str]| {
            let file = format!("--log-file={}", log.display());
            let fixed = ["--tool=none", "--trace-flags=10000000", "--trace-notbelow=0", &file];
            succeed(Command::new("valgrind").args(fixed).args(flags).arg(&program).arg(argument));
            read(&log, &[])
        };
        let reading = valgrind(&["--vex-guest-chase=no"]);
        let trace = trace_of(&reading, "program");
        assert_eq!(demo_names(trace), expected);
        assert_addresses(trace, &program);
        assert_eq!(trace.command, [program.as_os_str().as_encoded_bytes().to_vec(), argument.into()]);
        assert!(trace.process.is_some());
        assert!(!reading.notes.iter().any(|note| note.message.contains("chase")), "{:?}", reading.notes);
        assert!(reading.traces.len() >= 3, "the program, its loader and the C library");

        let chased = valgrind(&[]);
        assert_ne!(demo_names(trace_of(&chased, "program")), expected, "valgrind no longer chases calls");
        let note = &chased.notes[0];
        assert!(note.message.contains("continue after a jump or a call"), "{note}");
        assert!(hints::text(note.hint.as_ref().unwrap()).contains("--vex-guest-chase=no"), "{note:?}");
    }
}

#[test]
fn valgrind_without_its_flags_is_told_which() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    succeed(
        Command::new("valgrind")
            .args(["--tool=none", &format!("--log-file={}", log.display())])
            .arg("/bin/true"),
    );
    let error = read_files(&[log], &Companions::default()).unwrap_err();
    assert!(error.message.contains("no line of a translated block"), "{error}");
    assert!(hints::text(error.hint.as_ref().unwrap()).contains("--trace-flags=10000000"));
}

/// The log of `program` run by QEMU's `emulator`.
fn emulate(emulator: &str, flags: &str, program: &Path, argument: &str) -> PathBuf {
    let log = program.with_extension("log");
    succeed(Command::new(emulator).args(["-d", flags, "-D"]).arg(&log).arg(program).arg(argument));
    log
}

#[test]
fn qemu_blocks_give_names_and_with_the_program_addresses() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile("gcc", scratch.path(), "source/demo.c", &["-O1"]);
    for (argument, expected) in [("a", &DEMO_A[..]), ("b", &DEMO_B[..])] {
        let log = emulate("qemu-x86_64", "in_asm,nochain", &program, argument);
        let alone = read(&log, &[]);
        assert_eq!(demo_names(&alone.traces[0]), expected);
        assert!(matches!(alone.traces[0].events[0].location, Location::Runtime(_)));
        assert!(alone.notes[0].message.contains("with a symbol and were left out"), "{:?}", alone.notes);

        let placed = read(&log, &[&program]);
        let trace = trace_of(&placed, "program");
        assert_eq!(demo_names(trace), expected);
        assert_addresses(trace, &program);

        let wrong = read(&log, &[Path::new("/bin/true")]);
        assert!(wrong.notes[0].message.contains("no companion fits"), "{:?}", wrong.notes);
        assert_eq!(demo_names(&wrong.traces[0]), expected);
    }
}

#[test]
fn qemu_places_a_program_without_symbols_by_its_own_words() {
    let scratch = tempfile::tempdir().unwrap();
    let program = compile("gcc", scratch.path(), "source/demo.c", &["-O1"]);
    let stripped = scratch.path().join("stripped");
    succeed(Command::new("strip").arg(&program).arg("-o").arg(&stripped));
    let expected: Vec<u64> = DEMO_A
        .iter()
        .map(|name| symbols(&program).iter().find(|(symbol, _)| symbol == name).unwrap().1)
        .collect();

    let log = emulate("qemu-x86_64", "in_asm,nochain,page", &stripped, "a");
    let reading = read(&log, &[&stripped]);
    let starts = |trace: &Trace| -> Vec<u64> {
        let address = |event: &reorder_trace::Event| match event.location {
            Location::Image(address) | Location::Inside(address) => address.0,
            _ => panic!("{event:?}"),
        };
        trace.events.iter().map(address).filter(|address| expected.contains(address)).collect()
    };
    assert_eq!(starts(trace_of(&reading, "stripped")), expected);
    // The program with its symbols fits as well, and then its names are known too.
    assert_eq!(demo_names(trace_of(&read(&log, &[&program]), "program")), DEMO_A);

    let log = emulate("qemu-x86_64", "in_asm,nochain", &stripped, "a");
    let lost = read(&log, &[]);
    assert!(lost.traces[0].events.iter().all(|event| matches!(event.location, Location::Runtime(_))));
    assert!(
        hints::text(lost.notes[0].hint.as_ref().unwrap()).contains("in_asm,nochain,page"),
        "{:?}",
        lost.notes
    );
}

#[test]
fn qemu_runs_programs_of_other_machines() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("program.c");
    let text = "__attribute__((noinline)) static int first(int x) { __asm__ volatile(\"\"); return x + 1; }\n\
                __attribute__((noinline)) static int second(int x) { __asm__ volatile(\"\"); return x * 3; }\n\
                __attribute__((noinline)) int never(int x) { __asm__ volatile(\"\"); return x - 1; }\n\
                void _start(void) {\n\
                  register long status __asm__(\"x0\") = second(first(2)) - 9;\n\
                  register long call __asm__(\"x8\") = 93;\n\
                  __asm__ volatile(\"svc 0\" :: \"r\"(status), \"r\"(call));\n\
                }\n";
    std::fs::write(&source, text).unwrap();
    for kind in ["-no-pie", "-Wl,-pie,--no-dynamic-linker"] {
        let program = scratch.path().join("program");
        let flags = [
            "--target=aarch64-linux-gnu",
            "-O1",
            "-nostdlib",
            &format!("-fuse-ld={}", llvm("lld")),
            "-fPIE",
            "-static",
            kind,
        ];
        succeed(Command::new(llvm("clang")).args(flags).arg(&source).arg("-o").arg(&program));
        let log = emulate("qemu-aarch64", "in_asm,nochain", &program, "");
        let expected = ["_start", "first", "second"];
        assert_eq!(names(&read(&log, &[]).traces[0]), expected);
        let placed = read(&log, &[&program]);
        let trace = trace_of(&placed, "program");
        assert_eq!(names(trace), expected);
        let symbols = symbols(&program);
        for event in &trace.events {
            let Location::Image(address) = event.location else { panic!("{event:?}") };
            let name = String::from_utf8_lossy(event.symbol().unwrap()).into_owned();
            assert!(symbols.contains(&(name, address.0)), "{event:?}");
        }
    }
}
