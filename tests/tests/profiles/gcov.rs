//! GCC's profiles compared with the output of gcov-dump.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::process::succeed;
use end_to_end::profiles::{DEMO_A, names, read_sample, sample};
use reorder::hints;
use reorder_base::tool_versions::{llvm, older_gcc};
use reorder_trace::{Companions, Evidence, Location, NameHash, Reading, Trace, gcc_profile_id, read_files};

fn notes(reading: &Reading) -> String {
    reading.notes.iter().map(|note| format!("{note}; {:?}\n", note.hint.as_ref().map(hints::text))).collect()
}

/// Rank by profile id as `gcov-dump -l` prints them, 0 for functions that never ran.
fn official(gcov_dump: &str, file: &Path) -> BTreeMap<u32, u64> {
    let text = succeed(Command::new(gcov_dump).arg("-l").arg(file));
    let (mut ranks, mut id, mut is_rank) = (BTreeMap::new(), 0, false);
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("FUNCTION ident=") {
            id = rest.split(',').next().unwrap().parse().unwrap();
            ranks.insert(id, 0);
        } else if line.contains("COUNTERS") {
            is_rank = line.contains("time_profiler");
        } else if is_rank {
            let value = line.rsplit(':').next().unwrap().trim();
            ranks.insert(id, value.parse().unwrap());
        }
    }
    ranks
}

/// Rank of each event by profile id; names are hashed again.
fn ranks(trace: &Trace, source: &str, base: &str) -> BTreeMap<u32, u64> {
    let id = |location: &Location| match location {
        Location::NameHash(NameHash::GccProfileId(id)) => *id,
        Location::Name(name) => {
            let is_local = LOCAL.iter().any(|local| local.as_bytes() == &**name);
            gcc_profile_id(name, is_local.then_some((source.as_bytes(), base.as_bytes())))
        }
        other => panic!("{other}"),
    };
    trace.events.iter().map(|event| (id(&event.location), event.tick.unwrap())).collect()
}

/// Local functions of the programs here.
const LOCAL: [&str; 2] = ["parse_args", "hidden"];

#[test]
fn samples_hold_the_orders_of_their_runs() {
    for (data, compiler_notes) in [
        ("gcc12-a.gcda", "gcc12.gcno"),
        ("gcc11-a.gcda", "gcc11.gcno"),
        ("gcc12-s390x-a.gcda", "gcc12-s390x.gcno"),
    ] {
        let reading = read_sample(&format!("gcov/{data}"), &[&format!("gcov/{compiler_notes}")]).unwrap();
        let [trace] = reading.traces.as_slice() else { panic!("{data}") };
        assert_eq!(names(trace), DEMO_A, "{data}");
        assert_eq!(trace.evidence, Evidence::Exact);
        assert_eq!(
            trace.events.iter().map(|event| event.tick).collect::<Vec<_>>(),
            (1..=8).map(Some).collect::<Vec<_>>()
        );
        assert_eq!(notes(&reading), "");

        let nameless = read_sample(&format!("gcov/{data}"), &[]).unwrap();
        assert_eq!(ranks(&nameless.traces[0], "", ""), ranks(trace, "demo.c", "demo"));
        assert!(notes(&nameless).contains("names of 8 functions are not known"), "{}", notes(&nameless));
        assert!(notes(&nameless).contains("--companion"), "{}", notes(&nameless));
    }
}

#[test]
fn several_runs_in_one_file_are_a_blend() {
    let reading = read_sample("gcov/gcc12-merged-a-b.gcda", &["gcov/gcc12.gcno"]).unwrap();
    let trace = &reading.traces[0];
    assert_eq!(trace.evidence, Evidence::Blended);
    assert_eq!(names(trace)[..4], DEMO_A[..4]);
    let ticks: Vec<_> = trace.events.iter().filter_map(|event| event.tick).collect();
    assert_eq!(ticks, [1, 2, 3, 4, 5, 5, 7, 7]);
    assert!(notes(&reading).contains("GCOV_PREFIX"), "{}", notes(&reading));
}

#[test]
fn names_of_another_compilation_are_told() {
    let reading = read_sample("gcov/gcc12-a.gcda", &["gcov/gcc11.gcno"]).unwrap();
    assert!(notes(&reading).contains("gcc11.gcno belongs to another compilation"), "{}", notes(&reading));
    assert!(reading.traces[0].events.iter().all(|event| event.symbol().is_none()));
}

/// Every GCC that is installed, with its gcov-dump. The older one is always among them: GCC 11 was the last that counted in words.
fn compilers() -> Vec<(String, String)> {
    let installed = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    let numbered = (5..30).map(|version| (format!("gcc-{version}"), format!("gcov-dump-{version}")));
    let mut compilers = vec![("gcc".to_owned(), "gcov-dump".to_owned())];
    compilers.extend(numbered.filter(|(compiler, _)| compiler == older_gcc() || installed(compiler)));
    compilers
}

const MAIN: &str = "
void second(void); void third(void);
__attribute__((noinline)) static void hidden(void) { __asm__(\"\"); }
__attribute__((noinline)) void first(void) { __asm__(\"\"); }
__attribute__((noinline)) void never(void) { __asm__(\"\"); }
int main(int count, char **arguments) {
    first();
    if (count > 1) third();
    second();
    hidden();
    if (count > 2) never();
    return 0;
}
";
const OTHER: &str = "
__attribute__((noinline)) static void hidden(void) { __asm__(\"\"); }
void first(void);
void second(void) { first(); hidden(); }
void third(void) { hidden(); }
";

/// A program of two objects, built in `directory` by `compiler` with `flags`.
fn build(directory: &Path, compiler: &str, flags: &[&str]) {
    fs::write(directory.join("main.c"), MAIN).unwrap();
    fs::write(directory.join("other.c"), OTHER).unwrap();
    for name in ["main", "other"] {
        let (source, object) = (format!("{name}.c"), format!("{name}.o"));
        succeed(
            Command::new(compiler)
                .current_dir(directory)
                .arg("-O1")
                .args(flags)
                .args(["-c", &source, "-o", &object]),
        );
    }
    succeed(
        Command::new(compiler)
            .current_dir(directory)
            .args(flags)
            .args(["main.o", "other.o", "-o", "program"]),
    );
}

/// Runs it with its data in `run`; the two data files.
fn execute(directory: &Path, run: &str, arguments: &[&str]) -> [PathBuf; 2] {
    let prefix = directory.join(run);
    let mut command = Command::new(directory.join("program"));
    succeed(command.args(arguments).env("GCOV_PREFIX", &prefix));
    let inside = directory.canonicalize().unwrap();
    let inside = prefix.join(inside.strip_prefix("/").unwrap());
    ["main.gcda", "other.gcda"].map(|name| inside.join(name))
}

const SHORT: [&str; 5] = ["main", "first", "second", "hidden", "hidden"];
const LONG: [&str; 6] = ["main", "first", "third", "hidden", "second", "hidden"];

#[test]
fn runs_in_directories_of_their_own_are_traces() {
    for (compiler, gcov_dump) in compilers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        build(path, &compiler, &["-fprofile-generate", "-ftest-coverage"]);
        let runs = [execute(path, "runs/1", &[]), execute(path, "runs/2", &["x"])];

        let reading = read_files(&[path.join("runs")], &Companions::default()).unwrap();
        assert_eq!(
            reading.traces.iter().map(names).collect::<Vec<_>>(),
            [SHORT.to_vec(), LONG.to_vec()],
            "{compiler}"
        );
        assert_eq!(reading.traces.iter().map(|trace| trace.run).collect::<Vec<_>>(), [1, 2]);
        assert!(reading.traces.iter().all(|trace| trace.evidence == Evidence::Exact), "{compiler}");
        assert_eq!(notes(&reading), "", "{compiler}");

        for (trace, files) in reading.traces.iter().zip(&runs) {
            let mut expected = BTreeMap::new();
            for (file, name) in files.iter().zip(["main", "other"]) {
                let official: BTreeMap<_, _> =
                    official(&gcov_dump, file).into_iter().filter(|(_, rank)| *rank > 0).collect();
                let alone = read_files(std::slice::from_ref(file), &Companions::default()).unwrap();
                assert_eq!(
                    ranks(&alone.traces[0], &format!("{name}.c"), name),
                    official,
                    "{compiler} {name}"
                );
                expected.extend(official.values().map(|rank| (*rank, ())));
            }
            let ticks: Vec<u64> = trace.events.iter().filter_map(|event| event.tick).collect();
            assert_eq!(ticks, expected.into_keys().collect::<Vec<_>>(), "{compiler}");
        }
    }
}

#[test]
fn without_names_the_hashes_are_those_of_the_symbols() {
    for (compiler, _) in compilers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        build(path, &compiler, &["-fprofile-generate"]);
        execute(path, "runs/1", &["x"]);
        let reading = read_files(&[path.join("runs")], &Companions::default()).unwrap();
        let hashes: Vec<Location> =
            reading.traces[0].events.iter().map(|event| event.location.clone()).collect();
        let of = |name: &str, local: Option<&str>| {
            let source = local.map(|base| format!("{base}.c"));
            let local = source.as_ref().zip(local).map(|(source, base)| (source.as_bytes(), base.as_bytes()));
            Location::NameHash(NameHash::GccProfileId(gcc_profile_id(name.as_bytes(), local)))
        };
        let expected = [
            of("main", None),
            of("first", None),
            of("third", None),
            of("hidden", Some("other")),
            of("second", None),
            of("hidden", Some("main")),
        ];
        assert_eq!(hashes, expected, "{compiler}");
        let [note] = reading.notes.as_slice() else { panic!("{}", notes(&reading)) };
        assert!(note.message.starts_with("in 2 of 2 files the names of 6 functions"), "{note}");
    }
}

#[test]
fn a_library_that_counts_for_itself_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("main.c"), "void inside(void);\nint main(void) { inside(); return 0; }\n").unwrap();
    fs::write(path.join("library.c"), "void inside(void) {}\n").unwrap();
    let flags = ["-fprofile-generate", "-ftest-coverage", "-fPIC"];
    let gcc = |rest: &[&str]| succeed(Command::new("gcc").current_dir(path).args(flags).args(rest));
    gcc(&["-c", "library.c"]);
    gcc(&["-c", "main.c"]);
    gcc(&["-shared", "library.o", "-o", "libinside.so"]);
    gcc(&["main.o", "-L.", "-linside", "-Wl,-rpath,$ORIGIN", "-o", "program"]);
    succeed(Command::new(path.join("program")).current_dir(path));
    let reading = read_files(&[path.to_path_buf()], &Companions::default()).unwrap();
    let [trace] = reading.traces.as_slice() else { panic!("{} traces", reading.traces.len()) };
    assert_eq!(trace.events.iter().map(|event| event.tick).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert_eq!(trace.evidence, Evidence::Blended);
    let [note] = reading.notes.as_slice() else { panic!("{}", notes(&reading)) };
    assert!(note.message.contains("1 functions of 2 files have the rank of another one"), "{note}");
    assert_eq!(note.file.as_deref(), Some(path));
}

#[test]
fn a_second_run_in_the_same_place_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    build(path, "gcc", &["-fprofile-generate", "-ftest-coverage"]);
    execute(path, "runs", &[]);
    let files = execute(path, "runs", &["x"]);
    let reading = read_files(&[path.join("runs")], &Companions::default()).unwrap();
    let [trace] = reading.traces.as_slice() else { panic!("{} traces", reading.traces.len()) };
    assert_eq!(trace.evidence, Evidence::Blended);
    let [note] = reading.notes.as_slice() else { panic!("{}", notes(&reading)) };
    assert!(note.message.starts_with("2 runs or processes"), "{note}");
    assert!(note.message.ends_with("(this file and 1 more)"), "{note}");
    let mut expected: Vec<u64> = files
        .iter()
        .flat_map(|file| official("gcov-dump", file).into_values())
        .filter(|rank| *rank > 0)
        .collect();
    expected.sort_unstable();
    assert_eq!(trace.events.iter().filter_map(|event| event.tick).collect::<Vec<_>>(), expected);
}

#[test]
fn coverage_without_ranks_gives_counts_and_flags() {
    for compiler in ["gcc", older_gcc(), &llvm("clang")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        build(path, compiler, &["--coverage"]);
        execute(path, "runs", &["x"]);
        let reading = read_files(&[path.join("runs")], &Companions::default()).unwrap();
        let [trace] = reading.traces.as_slice() else { panic!("{} traces", reading.traces.len()) };
        assert_eq!(trace.evidence, Evidence::Counts);
        let mut counted = names(trace);
        counted.sort_unstable();
        assert_eq!(counted, ["first", "hidden", "hidden", "main", "second", "third"], "{compiler}");
        assert!(trace.events.windows(2).all(|pair| pair[0].count >= pair[1].count));
        assert!(notes(&reading).contains("gcc -fprofile-generate"), "{}", notes(&reading));
    }
}

#[test]
fn objects_of_one_name_in_two_directories_are_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for (name, source) in [("a", "void b(void); int main(void) { b(); return 0; }"), ("b", "void b(void) {}")]
    {
        fs::create_dir(path.join(name)).unwrap();
        fs::write(path.join(name).join("same.c"), source).unwrap();
        let arguments = ["-fprofile-generate", "-ftest-coverage", "-c", "same.c", "-o", "same.o"];
        succeed(Command::new("gcc").current_dir(path.join(name)).args(arguments));
    }
    let link = ["-fprofile-generate", "a/same.o", "b/same.o", "-o", "program"];
    succeed(Command::new("gcc").current_dir(path).args(link));
    succeed(&mut Command::new(path.join("program")));
    let reading = read_files(&[path.to_path_buf()], &Companions::default()).unwrap();
    assert_eq!(reading.traces.iter().map(names).collect::<Vec<_>>(), [["main", "b"]]);
    assert_eq!(reading.traces[0].source.as_deref(), Some(path));
}

#[test]
fn names_are_found_where_the_data_s_name_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    build(&path, "gcc", &["-fprofile-generate=profiles", "-ftest-coverage"]);
    succeed(Command::new(path.join("program")).current_dir(&path));
    let reading = read_files(&[path.join("profiles")], &Companions::default()).unwrap();
    assert_eq!(reading.traces.iter().map(names).collect::<Vec<_>>(), [SHORT]);
    assert_eq!(notes(&reading), "");
    assert!(
        fs::read_dir(path.join("profiles")).unwrap().count() == 2,
        "no files but those with mangled names"
    );
}

#[test]
fn auto_fdo_files_of_gcc_are_another_format() {
    // `adcg`, version 2, no stamp, and the tag of the names.
    let bytes = [b"adcg".as_slice(), &2u32.to_le_bytes(), &0u32.to_le_bytes(), &0xaa00_0000u32.to_le_bytes()]
        .concat();
    let data = fs::read(sample("gcov/gcc12-a.gcda")).unwrap();
    let name = |bytes: &[u8]| reorder_trace::formats::detect(bytes).map(|format| format.name);
    assert_eq!(name(&data), Some("GCC .gcda"));
    assert_ne!(name(&bytes), Some("GCC .gcda"));
}
