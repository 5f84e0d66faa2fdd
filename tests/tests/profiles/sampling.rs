//! Sampling profilers: LLVM's and GCC's sample profiles, BOLT, Linux perf.

use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::process::shell;
use end_to_end::profiles::{DEMO_B, names, only, read_sample, sample};
use reorder::hints;
use reorder_trace::{Companions, Evidence, Location, NameHash, Trace, read_bytes};

const LIMIT: Duration = Duration::from_secs(120);

fn counts(trace: &Trace) -> Vec<(String, u64)> {
    names(trace).into_iter().zip(trace.events.iter().map(|event| event.count.unwrap())).collect()
}

const AUTOFDO: [(&str, u64); 4] = [("main", 184_019), ("_Z3bari", 1437), ("inline1", 1000), ("_Z3fooi", 610)];

/// The first eight bytes of the MD5 of each name, as LLVM's tools print them.
const AUTOFDO_HASHES: [(u64, u64); 4] = [
    (0xdb95_6436_e78d_d5fa, 184_019),
    (0x33bc_2915_4aca_5065, 1437),
    (0x407e_3782_2263_28c3, 1000),
    (0x110c_56e2_5952_6faa, 610),
];

#[test]
fn sample_profiles_give_counts_without_order() {
    for name in ["afdo-text.prof", "afdo-binary.prof", "afdo-ext.prof", "afdo-ext-compressed.prof"] {
        let reading = read_sample(&format!("sampling/{name}"), &[]).unwrap();
        let note = reading.notes[0].clone();
        let trace = only(reading);
        let expected: Vec<(String, u64)> =
            AUTOFDO.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!((counts(&trace), trace.evidence), (expected, Evidence::Counts), "{name}");
        assert!(note.message.contains("no order of execution"), "{note}");
        assert!(hints::text(note.hint.as_ref().unwrap()).contains("-ftemporal-profile"));
    }
}

#[test]
fn sample_profiles_with_hashes_give_hashes() {
    for name in ["afdo-ext-md5.prof", "afdo-compact-llvm16.prof"] {
        let trace = only(read_sample(&format!("sampling/{name}"), &[]).unwrap());
        let hashes: Vec<(u64, u64)> = trace
            .events
            .iter()
            .map(|event| match event.location {
                Location::NameHash(NameHash::Md5(hash)) => (hash, event.count.unwrap()),
                ref other => panic!("{name}: {other}"),
            })
            .collect();
        assert_eq!(hashes, AUTOFDO_HASHES, "{name}");
    }
}

#[test]
fn branches_to_function_starts_are_entries() {
    let trace = only(read_sample("sampling/bolt-instrumented.fdata", &[]).unwrap());
    let entered =
        |name: &str| counts(&trace).into_iter().find(|(other, _)| other == name).map(|(_, count)| count);
    // `draw_frame` logs three times, four others once.
    assert_eq!(entered("util_log"), Some(7));
    for name in ["parse_args", "load_config", "init_ui", "init_network", "draw_frame", "shutdown_all"] {
        assert_eq!(entered(name), Some(1), "{name}");
    }
    assert_eq!(entered("never_called"), None);
    assert_eq!(entered("memcpy@PLT"), None, "a stub is no function");
    assert_eq!(trace.evidence, Evidence::Counts);
}

#[test]
fn profiles_without_branches_count_samples() {
    let trace = only(read_sample("sampling/bolt-no-lbr.fdata", &[]).unwrap());
    let mut functions = names(&trace);
    functions.sort_unstable();
    assert_eq!(functions, ["phase_one", "phase_three", "phase_two"]);
    let text = fs::read_to_string(sample("sampling/bolt-no-lbr.fdata")).unwrap();
    let samples: u64 =
        text.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(counts(&trace).iter().map(|(_, count)| count).sum::<u64>(), samples);
}

const GCC_AUTOFDO: [(&str, u64); 3] = [("inlined", (1 << 32) + 5), ("bar", 12), ("main", 1)];

#[test]
fn gcc_profiles_of_every_version_give_counts() {
    for version in ["v1", "v2", "v3", "v2-big-endian"] {
        let reading = read_sample(&format!("sampling/gcc-autofdo-{version}.gcov"), &[]).unwrap();
        let note = reading.notes[0].clone();
        let trace = only(reading);
        let expected = GCC_AUTOFDO.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(
            (counts(&trace).as_slice(), trace.evidence),
            (&expected[..], Evidence::Counts),
            "{version}"
        );
        assert!(note.message.contains("no order of execution"), "{note}");
    }
}

/// GCC itself takes the stored profile, whose layout no converter here writes, and sees the same entries.
#[test]
fn gcc_compiles_with_the_profile_that_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let source = "int x;\n__attribute__((noinline)) void bar(int n) {\n for (int i = 0; i < n; i++)\n  x += i;\n}\n\
                  static inline int inlined(void) { return x; }\nint main(void) {\n bar(3);\n return inlined();\n}\n";
    fs::write(directory.path().join("demo.c"), source).unwrap();
    let compile = |version: &str| {
        let profile = sample(&format!("sampling/gcc-autofdo-{version}.gcov"));
        shell(
            &format!(
                "cd {} && gcc -O2 -g -fauto-profile={} -fdump-ipa-afdo=dump -c demo.c",
                directory.path().display(),
                profile.display()
            ),
            LIMIT,
        )
    };
    compile("v2").unwrap();
    let dump = fs::read_to_string(directory.path().join("dump")).unwrap();
    let entered = |declaration: &str| {
        let body = dump.split_once(declaration).unwrap().1;
        let count = body.split_once("[count: ").unwrap().1.split_once(']').unwrap().0;
        count.parse::<u64>().unwrap()
    };
    assert_eq!([entered("\nvoid bar ("), entered("\nint main (")], [12, 1], "{dump}");
}

#[test]
fn damaged_profiles_of_gcc_keep_what_is_whole() {
    let whole = fs::read(sample("sampling/gcc-autofdo-v2.gcov")).unwrap();
    let read = |bytes: &[u8]| read_bytes(bytes, Path::new("auto.gcov"), &Companions::default());
    let tag = whole.windows(4).position(|window| window == 0xac00_0000_u32.to_le_bytes()).unwrap();
    // After the tag, length and number of functions comes `bar` with two lines.
    let cut = read(&whole[..tag + 12 + 8 + 12 + 2 * 16 + 5]).unwrap();
    assert!(cut.notes[1].message.contains("the 1 functions before it are kept"), "{:?}", cut.notes);
    assert_eq!(counts(&only(cut)), [("bar".to_owned(), 12)]);
    let error = read(&whole[..tag + 12]).unwrap_err();
    assert!(hints::text(error.hint.as_ref().unwrap()).contains("perf.data"));
    let mut newer = whole;
    newer[4] = 9;
    let error = read(&newer).unwrap_err();
    assert_eq!(error.offset, Some(4));
    assert!(
        error.message.contains("version 9")
            && hints::text(error.hint.as_ref().unwrap()).contains("--gcov_version=2")
    );
}

/// What `llvm-profdata` writes today in each form is what it prints of it.
#[test]
fn forms_that_llvm_writes_agree_with_its_text() {
    let directory = tempfile::tempdir().unwrap();
    let text = sample("sampling/afdo-text.prof");
    for form in ["--binary", "--extbinary", "--extbinary --compress-all-sections", "--text"] {
        let output = directory.path().join("profile");
        let command =
            format!("llvm-profdata$LLVM merge --sample {form} {} -o {}", text.display(), output.display());
        shell(&command, LIMIT).unwrap();
        let bytes = fs::read(&output).unwrap();
        let trace = only(read_bytes(&bytes, &output, &Companions::default()).unwrap());
        let expected: Vec<(String, u64)> =
            AUTOFDO.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(counts(&trace), expected, "{form}");
    }
}

/// Counts of a context-sensitive profile add up over its contexts.
#[test]
fn contexts_stand_for_their_last_function() {
    let directory = tempfile::tempdir().unwrap();
    let text = sample("sampling/afdo-contexts.prof");
    let expected = [("_Z8funcLeafi".to_owned(), 31), ("main".to_owned(), 13)];
    assert_eq!(counts(&only(read_sample("sampling/afdo-contexts.prof", &[]).unwrap())), expected);
    for form in ["", "--compress-all-sections", "--use-md5"] {
        let output = directory.path().join("profile");
        let command = format!(
            "llvm-profdata$LLVM merge --sample --extbinary {form} {} -o {}",
            text.display(),
            output.display()
        );
        shell(&command, LIMIT).unwrap();
        let bytes = fs::read(&output).unwrap();
        let trace = only(read_bytes(&bytes, &output, &Companions::default()).unwrap());
        let found: Vec<u64> = trace.events.iter().map(|event| event.count.unwrap()).collect();
        assert_eq!(found, [31, 13], "{form}");
        if form != "--use-md5" {
            assert_eq!(counts(&trace), expected, "{form}");
        }
    }
}

/// What BOLT's own instrumentation counts in a program whose calls are known.
#[test]
fn programs_that_bolt_instrumented_count_their_calls() {
    let directory = tempfile::tempdir().unwrap();
    let source = sample("source/demo.c");
    let commands = format!(
        "cd {} && gcc -O1 -Wl,-q {} -o demo && llvm-bolt$LLVM --instrument demo -o instrumented \
         --instrumentation-file=$PWD/counts.fdata > log 2>&1 && ./instrumented b",
        directory.path().display(),
        source.display()
    );
    shell(&commands, LIMIT).unwrap();
    let path = directory.path().join("counts.fdata");
    let bytes = fs::read(&path).unwrap();
    let trace = only(read_bytes(&bytes, &path, &Companions::default()).unwrap());
    let found = counts(&trace);
    let entered = |name: &str| found.iter().find(|(other, _)| other == name).map(|(_, count)| *count);
    assert_eq!(entered("util_log"), Some(4));
    for name in DEMO_B.iter().filter(|name| !["main", "util_log"].contains(name)) {
        assert_eq!(entered(name), Some(1), "{name}");
    }
    assert_eq!(entered("draw_frame"), None);
}
