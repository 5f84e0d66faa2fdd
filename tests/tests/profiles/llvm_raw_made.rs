//! Raw profiles of LLVM made by the test, event for event compared with LLVM's own tools; where those are wrong, both
//! answers.

use end_to_end::llvm_profiles::{Workbench, is_written, many_functions};
use end_to_end::profiles::{DEMO_A, names};
use reorder::hints;
use reorder_base::tool_versions::llvm;
use reorder_trace::{Companions, Evidence, Location, Reading, Trace, read_files};

const TEMPORAL: &str = "-O1 -fprofile-generate -ftemporal-profile";

fn read(bench: &Workbench, profile: &str, companions: &[&str]) -> reorder_base::error::Result<Reading> {
    let companions: Vec<_> = companions.iter().map(|name| bench.path(name)).collect();
    read_files(&[bench.path(profile)], &Companions::open(&companions)?)
}

/// Names as LLVM's tools spell them, with the source file before local ones.
fn full_names(trace: &Trace) -> Vec<String> {
    let name = |event: &reorder_trace::Event| String::from_utf8(event.symbol().unwrap().to_vec()).unwrap();
    trace.events.iter().map(name).collect()
}

fn only_trace(reading: &Reading) -> &Trace {
    let [trace] = reading.traces.as_slice() else { panic!("{} traces", reading.traces.len()) };
    trace
}

/// A program of two translation units with 400 functions of their own and some in common.
fn large_program(bench: &Workbench, flags: &str) {
    for part in 0..2 {
        bench.write(&format!("part{part}.cpp"), many_functions(part, 100));
    }
    bench.write(
        "main.cpp",
        "volatile int sink;\nvoid run_part_0(int);\nvoid run_part_1(int);\n\
         int main(int, char **v) { run_part_1(v[1][0]); run_part_0(v[1][0] + 1); }\n",
    );
    bench.run(&llvm("clang++"), &format!("{flags} main.cpp part0.cpp part1.cpp -o program"));
}

/// The functions of `trace` at the address of the symbol of their name.
fn functions_at_their_symbols(bench: &Workbench, image: &str, trace: &Trace) -> usize {
    let symbols = bench.symbols(image);
    let is_right = |event: &&reorder_trace::Event| {
        let Location::Image(address) = event.location else { return false };
        let name = String::from_utf8_lossy(event.symbol().unwrap()).into_owned();
        let name = name.split_once(';').map_or(name.as_str(), |(_, bare)| bare);
        let found = symbols.iter().any(|(at, symbol)| *at == address.0 && symbol == name);
        assert!(found, "{name} is not at {address}");
        found
    };
    trace.events.iter().filter(is_right).count()
}

/// Flags, and how the official tool finds the names where the profile has none.
const MODES: [(&str, &str); 7] = [
    ("", ""),
    ("-mllvm -pgo-block-coverage", ""),
    ("-mllvm -pgo-instrument-entry", ""),
    ("-mllvm -pgo-instrument-loop-entries -fprofile-update=atomic", ""),
    ("-mllvm -enable-name-compression=false", ""),
    ("-g -mllvm -profile-correlate=debug-info -mllvm -disable-vp=1", "--debug-info=program"),
    ("-mllvm -profile-correlate=binary -mllvm -disable-vp=1", "--binary-file=program"),
];

#[test]
fn every_mode_gives_the_order_that_the_official_tool_gives() {
    let bench = Workbench::new();
    for (mode, official) in MODES {
        large_program(&bench, &format!("{TEMPORAL} {mode}"));
        for seed in ["a", "q"] {
            bench.profile("program", seed, "run.profraw");
            bench.run(&llvm("llvm-profdata"), &format!("merge run.profraw {official} -o run.profdata"));
            let expected = bench.official_traces("run.profdata");

            let reading = read(&bench, "run.profraw", &["program"]).unwrap();
            let trace = only_trace(&reading);
            assert_eq!(expected, [full_names(trace)], "{mode}");
            assert!(trace.events.len() > 200, "{mode}: {}", trace.events.len());
            assert_eq!(trace.evidence, Evidence::Exact);
            let ticks: Vec<u64> = trace.events.iter().map(|event| event.tick.unwrap()).collect();
            assert_eq!(ticks, (1..=trace.events.len() as u64).collect::<Vec<_>>(), "{mode}");
            assert!(reading.notes.is_empty(), "{mode}: {:?}", reading.notes);

            // The tool's own layout moves functions about, but has the same ones, without their files.
            let order = bench.run(&llvm("llvm-profdata"), "order run.profdata");
            let mut ordered: Vec<_> = order.lines().filter(|line| !line.starts_with('#')).collect();
            let mut ran = names(trace);
            ordered.sort_unstable();
            ran.sort_unstable();
            assert_eq!(ordered, ran, "{mode}");

            let with_address = functions_at_their_symbols(&bench, "program", trace);
            assert!(with_address > trace.events.len() / 4, "{mode}: {with_address}");
            if mode.contains("debug-info") {
                assert_eq!(with_address, trace.events.len());
            }
            if official.is_empty() {
                let alone = read(&bench, "run.profraw", &[]).unwrap();
                assert_eq!(full_names(only_trace(&alone)), full_names(trace), "{mode}");
            } else {
                let error = read(&bench, "run.profraw", &[]).unwrap_err();
                assert!(hints::text(error.hint.as_ref().unwrap()).contains("--companion FILE"));
            }
        }
    }
}

#[test]
fn counts_are_those_of_the_official_tool() {
    let bench = Workbench::new();
    large_program(&bench, &format!("{TEMPORAL} -mllvm -pgo-instrument-entry"));
    bench.profile("program", "q", "run.profraw");
    let shown = bench.run(&llvm("llvm-profdata"), "show --all-functions --counts run.profraw");
    let mut expected = std::collections::HashMap::new();
    let mut function = "";
    for line in shown.lines() {
        if let Some(name) = line
            .strip_prefix("  ")
            .and_then(|line| line.strip_suffix(':'))
            .filter(|line| !line.starts_with(' '))
        {
            function = name;
        } else if let Some(counts) = line.trim().strip_prefix("Block counts: [") {
            let entries = counts.split([',', ']']).next().unwrap().trim().parse::<u64>().unwrap();
            expected.insert(function.to_owned(), entries);
        }
    }
    let reading = read(&bench, "run.profraw", &[]).unwrap();
    let trace = only_trace(&reading);
    for (event, name) in trace.events.iter().zip(full_names(trace)) {
        assert_eq!(event.count, Some(expected[&name]), "{name}");
    }
}

#[test]
fn debug_files_serve_as_well_as_the_program() {
    let bench = Workbench::new();
    for (mode, _) in &MODES[5..] {
        large_program(&bench, &format!("{TEMPORAL} {mode}"));
        bench.profile("program", "k", "run.profraw");
        let expected = read(&bench, "run.profraw", &["program"]).unwrap();
        bench.run(&llvm("llvm-objcopy"), "--only-keep-debug program program.debug");
        bench.run(&llvm("llvm-objcopy"), "--compress-debug-sections=zlib program program.small");
        bench.run(&llvm("llvm-strip"), "program -o program.stripped");
        for companion in ["program.debug", "program.small"] {
            let found = read(&bench, "run.profraw", &["program.stripped", companion]).unwrap();
            assert_eq!(found.traces[0].events, expected.traces[0].events, "{mode} {companion}");
        }
        let error = read(&bench, "run.profraw", &["program.stripped"]).unwrap_err();
        assert!(error.message.contains("program.stripped has no"), "{error}");
    }
}

#[test]
fn companions_of_another_build_are_refused() {
    let bench = Workbench::new();
    bench.source("demo.c");
    let build = |mode: &str, output: &str| {
        bench.run(&llvm("clang"), &format!("{TEMPORAL} {mode} -mllvm -disable-vp=1 demo.c -o {output}"));
    };
    build("-g -mllvm -profile-correlate=debug-info", "in_debug_info");
    build("-g -mllvm -profile-correlate=binary", "in_sections");
    bench.profile("in_debug_info", "a", "debug_info.profraw");
    bench.profile("in_sections", "a", "sections.profraw");

    // Without the instrumented program: the official tool succeeds, with an empty profile.
    for profile in ["debug_info.profraw", "sections.profraw"] {
        bench.run(&llvm("llvm-profdata"), &format!("merge {profile} -o empty.profdata"));
        assert!(bench.official_traces("empty.profdata").is_empty());
        let error = read(&bench, profile, &[]).unwrap_err();
        assert!(error.message.contains("no image is given as a companion"), "{error}");
    }
    // Crossed.
    for (profile, companion) in [("debug_info.profraw", "in_sections"), ("sections.profraw", "in_debug_info")]
    {
        let error = read(&bench, profile, &[companion]).unwrap_err();
        assert!(error.message.contains("is another build"), "{error}");
    }
    // The same program with two functions exchanged, of which the official tool reports that one ran that did not.
    let source = std::fs::read_to_string(bench.path("demo.c")).unwrap();
    let exchanged = source
        .replace("NI void init_network(void)", "NI void exchanged(void)")
        .replace("NI void never_called(void)", "NI void init_network(void)")
        .replace("NI void exchanged(void)", "NI void never_called(void)");
    bench.write("demo.c", exchanged.replace("#define NI", "void init_network(void);\n#define NI"));
    build("-g -mllvm -profile-correlate=debug-info", "later");
    bench.run(&llvm("llvm-profdata"), "merge debug_info.profraw --debug-info=later -o wrong.profdata");
    assert!(bench.official_traces("wrong.profdata").concat().contains(&"never_called".to_owned()));
    let error = read(&bench, "debug_info.profraw", &["later"]).unwrap_err();
    assert!(error.message.contains("is another build"), "{error}");
    // Without build-ids only the kind and the size can be compared.
    build("-g -Wl,--build-id=none -mllvm -profile-correlate=debug-info", "in_debug_info");
    build("-g -Wl,--build-id=none -mllvm -profile-correlate=binary", "in_sections");
    bench.profile("in_debug_info", "a", "debug_info.profraw");
    bench.profile("in_sections", "a", "sections.profraw");
    let error = read(&bench, "debug_info.profraw", &["in_sections"]).unwrap_err();
    assert!(error.message.contains("it was built with -profile-correlate=binary"), "{error}");
    let error = read(&bench, "sections.profraw", &["in_debug_info"]).unwrap_err();
    assert!(error.message.contains("no section __llvm_covdata"), "{error}");
    let reading = read(&bench, "sections.profraw", &["in_debug_info", "in_sections"]).unwrap();
    assert_eq!(names(only_trace(&reading)), DEMO_A);
    assert!(reading.notes[0].message.contains("no build-id"), "{:?}", reading.notes);
}

#[test]
fn split_debug_information_is_named() {
    let bench = Workbench::new();
    bench.source("demo.c");
    bench.run(
        &llvm("clang"),
        &format!("{TEMPORAL} -g -gsplit-dwarf -mllvm -profile-correlate=debug-info -mllvm -disable-vp=1 demo.c -o demo"),
    );
    bench.profile("demo", "a", "run.profraw");
    let error = read(&bench, "run.profraw", &["demo"]).unwrap_err();
    assert!(error.message.contains("build without -gsplit-dwarf"), "{error}");
}

#[test]
fn continuous_mode_that_the_official_tool_refuses() {
    let bench = Workbench::new();
    bench.source("demo.c");
    bench.run(&llvm("clang"), &format!("{TEMPORAL} -fprofile-continuous demo.c -o demo"));
    bench.profile("demo", "a", "run%c.profraw");
    let official = bench.attempt(&llvm("llvm-profdata"), "show --temporal-profile-traces run.profraw");
    assert!(!official.success() && official.stderr_text().contains("truncated"), "{official}");
    let reading = read(&bench, "run.profraw", &["demo"]).unwrap();
    assert_eq!(names(only_trace(&reading)), DEMO_A);
}

/// A program with a library and a plugin, all three instrumented.
fn three_images(bench: &Workbench) {
    ["dsomain.c", "lib1.c", "plug.c"].iter().for_each(|source| bench.source(source));
    bench.run(&llvm("clang"), &format!("{TEMPORAL} -fPIC -shared lib1.c -o liblib1.so"));
    bench.run(&llvm("clang"), &format!("{TEMPORAL} -fPIC -shared plug.c -o libplug.so"));
    bench.run(&llvm("clang"), &format!("{TEMPORAL} -rdynamic dsomain.c -o dsomain -L. -llib1 -Wl,-rpath,."));
}

const IMAGES: [&str; 3] = ["libplug.so", "dsomain", "liblib1.so"];

/// Run, image and functions of each trace.
fn by_image(reading: &Reading) -> Vec<(u32, String, String)> {
    let of = |trace: &Trace| {
        let image = trace.image.path.as_ref().unwrap().file_name().unwrap();
        (trace.run, image.to_string_lossy().into_owned(), names(trace).join(" "))
    };
    reading.traces.iter().map(of).collect()
}

#[test]
fn images_stay_apart_where_the_official_tool_mixes_them() {
    let bench = Workbench::new();
    three_images(&bench);
    bench.profile("dsomain", "", "run.profraw");
    // One trace of three clocks, and names of one image only.
    let [official] = bench.official_traces("run.profraw").try_into().unwrap();
    assert_eq!((official.len(), official.iter().filter(|name| name.is_empty()).count()), (6, 5));

    let reading = read(&bench, "run.profraw", &IMAGES).unwrap();
    let expected = ["plug_ctor plug_entry", "main before cb", "lib1_a"];
    let expected: Vec<_> = IMAGES
        .iter()
        .zip(expected)
        .map(|(image, names)| (1, (*image).to_owned(), names.to_owned()))
        .collect();
    assert_eq!(by_image(&reading), expected);
    for (trace, image) in reading.traces.iter().zip(IMAGES) {
        functions_at_their_symbols(&bench, image, trace);
    }
}

#[test]
fn processes_stay_apart_where_the_official_tool_mixes_them() {
    let bench = Workbench::new();
    three_images(&bench);
    bench.profile("dsomain", "x", "run.profraw");
    let [official] = bench.official_traces("run.profraw").try_into().unwrap();
    assert_eq!(official.len(), 14);

    let found = by_image(&read(&bench, "run.profraw", &IMAGES).unwrap());
    assert_eq!(found.iter().map(|(run, ..)| *run).collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2]);
    assert_eq!(found[1].2, "main before cb child_only");
    assert_eq!(found[4].2, "main before cb parent_late");
}

#[test]
fn phases_between_resets_stay_apart() {
    let bench = Workbench::new();
    bench.write(
        "phases.c",
        "void __llvm_profile_reset_counters(void);\nint __llvm_profile_dump(void);\n\
         int __llvm_profile_write_file(void);\nvolatile int sink;\n\
         __attribute__((noinline)) void early(void) { sink++; }\n\
         __attribute__((noinline)) void late(void) { sink += 2; }\n\
         int main(void) { early(); __llvm_profile_write_file(); __llvm_profile_reset_counters(); late(); early(); }\n",
    );
    bench.run(&llvm("clang"), &format!("{TEMPORAL} phases.c -o phases"));
    bench.profile("phases", "", "run.profraw");
    let official = bench.official_traces("run.profraw");
    let reading = read(&bench, "run.profraw", &[]).unwrap();
    let found: Vec<_> = reading.traces.iter().map(|trace| (trace.run, names(trace).join(" "))).collect();
    assert_eq!(found, [(1, "main early".to_owned()), (2, "late early".to_owned())]);
    assert_eq!(official.iter().map(Vec::len).collect::<Vec<_>>(), [4]);
}

#[test]
fn rust_programs_have_the_order_that_the_official_tool_gives() {
    let bench = Workbench::new();
    bench.source("rdemo.rs");
    bench.run("rustc", "-O -Cprofile-generate -Cllvm-args=-pgo-temporal-instrumentation rdemo.rs");
    bench.profile("rdemo", "b", "run.profraw");
    let reading = read(&bench, "run.profraw", &["rdemo"]).unwrap();
    let trace = only_trace(&reading);
    assert_eq!(bench.official_traces("run.profraw"), [full_names(trace)]);
    functions_at_their_symbols(&bench, "rdemo", trace);
    let (net, ui) = ("8init_net", "7init_ui");
    let place = |part| full_names(trace).iter().position(|name| name.contains(part)).unwrap();
    assert!(place(net) < place(ui));

    bench.run("rustc", "-O -Cprofile-generate rdemo.rs");
    bench.profile("rdemo", "b", "run.profraw");
    let reading = read(&bench, "run.profraw", &[]).unwrap();
    assert_eq!(only_trace(&reading).evidence, Evidence::Counts);
    assert!(
        hints::text(reading.notes[0].hint.as_ref().unwrap())
            .contains("-Cllvm-args=-pgo-temporal-instrumentation")
    );
}

#[test]
fn other_instrumentation_says_why_it_has_no_order() {
    let bench = Workbench::new();
    bench.source("demo.c");
    for (flags, message) in [
        ("-fprofile-instr-generate", "source coverage"),
        ("-fprofile-instr-generate -fcoverage-mapping -fcoverage-mcdc", "source coverage"),
        ("-fprofile-generate", "no timestamps"),
        (
            "-fprofile-generate -ftemporal-profile -mllvm -pgo-function-entry-coverage",
            "-pgo-function-entry-coverage",
        ),
    ] {
        bench.run(&llvm("clang"), &format!("-O1 {flags} demo.c -o demo"));
        bench.profile("demo", "a", "run.profraw");
        let reading = read(&bench, "run.profraw", &["demo"]).unwrap();
        let trace = only_trace(&reading);
        assert_eq!(trace.evidence, Evidence::Counts, "{flags}");
        // The front end puts a colon after the file, the middle end a semicolon.
        let mut found: Vec<_> = full_names(trace)
            .iter()
            .map(|name| name.trim_start_matches("demo.c").trim_start_matches([':', ';']).to_owned())
            .collect();
        found.sort_unstable();
        let mut expected = DEMO_A;
        expected.sort_unstable();
        assert_eq!(found, expected, "{flags}");
        assert!(reading.notes[0].message.contains(message), "{flags}: {:?}", reading.notes);
        assert!(is_written(&bench.path("run.profraw")));
    }
}
