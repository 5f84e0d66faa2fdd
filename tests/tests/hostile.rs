//! Truncated, damaged and hostile images: a clear error or a verified file, never a panic, a hang or a partial output.
//!
//! A program of its own: it limits the memory of its whole process.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on should say so where it stands"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use end_to_end::mutation::SeedImage;
use end_to_end::{process, workspace};
use nix::sys::resource::{Resource, setrlimit};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use reorder_base::tool_versions::tool;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;

/// Damaged copies of each seed image.
const CASES_PER_SEED: u64 = 3_500;
/// A sound seed image takes milliseconds.
const CASE_LIMIT: Duration = Duration::from_secs(300);
/// A file of some kilobytes does not justify more; an allocation beyond it ends the test program.
const MEMORY_LIMIT: u64 = 8 << 30;

/// Source, recipe and name of each seed image; together they have every table that the rewriter reads.
const SEEDS: [(&str, &str); 7] = [
    ("pie_bfd", "gcc -O2 -fPIE -pie -Wl,--emit-relocs plain_program/main.c"),
    ("jump_tables_lld", "clang$LLVM -O2 -fPIE -pie -fuse-ld=lld switch_tables/main.c"),
    ("shared_gold", "gcc -O2 -fPIC -shared -fuse-ld=gold shared_library/main.c"),
    ("exceptions_mold", "g++ -O1 -fPIE -pie -fuse-ld=mold identical_code_folding/main.cpp"),
    (
        "packed_relocations",
        "gcc -O1 -fPIE -pie -Wl,-z,pack-relative-relocs packed_relative_relocations/main.c",
    ),
    ("probes", "gcc -O1 -fPIE -pie static_probes/main.c"),
    ("stripped", "g++ -O2 -fPIE -pie -s exceptions/main.cpp"),
];

// case: core, object, truncated, overlapping, endless
#[test]
fn damaged_images_are_refused_or_relocated_correctly() {
    setrlimit(Resource::RLIMIT_AS, MEMORY_LIMIT, MEMORY_LIMIT).expect("a limit on memory");
    let seeds = build_seeds();
    let (relocated, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let watchdog = Watchdog::default();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| watchdog.watch(&finished));
        let cases: Vec<(usize, u64)> =
            (0..seeds.len()).flat_map(|seed| (0..CASES_PER_SEED).map(move |number| (seed, number))).collect();
        cases.into_par_iter().for_each(|(seed, number)| {
            let case = format!("{} {number}", seeds[seed].name);
            let bytes = seeds[seed].damaged(number);
            let ticket = watchdog.start(&case);
            let outcome = catch_unwind(AssertUnwindSafe(|| relocate(&bytes)));
            watchdog.end(ticket);
            match outcome {
                Ok(Ok(output)) if output.len() == bytes.len() => {
                    relocated.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Ok(_)) => failures.lock().unwrap().push(format!("{case}: the size changed")),
                Ok(Err(error)) if error.to_string().is_empty() => {
                    failures.lock().unwrap().push(format!("{case}: an error without a message"));
                }
                Ok(Err(_)) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => failures.lock().unwrap().push(format!("{case}: panic")),
            }
        });
        finished.store(true, Ordering::Relaxed);
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} cases, such as {:#?}",
        failures.len(),
        &failures[..failures.len().min(20)]
    );
    let (relocated, refused) = (relocated.into_inner(), refused.into_inner());
    println!("{relocated} relocated, {refused} refused");
    // Both outcomes must be common, or the damage is too light or too heavy to test anything.
    assert!(relocated > 1_000 && refused > 1_000, "{relocated} relocated, {refused} refused");
}

#[test]
fn the_command_leaves_no_files_when_it_fails() {
    let seeds = build_seeds();
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("input");
    let output_directory = scratch.path().join("out");
    fs::create_dir(&output_directory).unwrap();
    let output = output_directory.join("image");
    let mut failed = 0;
    for seed in &seeds {
        for number in 0..20 {
            fs::write(&input, seed.damaged(number)).unwrap();
            let mut command = workspace::reorder();
            command.arg("apply").arg(&input).args(["--strategy", "random", "--seed", "1", "-o"]).arg(&output);
            let outcome = process::run(&mut command, CASE_LIMIT).unwrap();
            let left: Vec<_> = fs::read_dir(&output_directory).unwrap().collect();
            if outcome.success() {
                assert_eq!(left.len(), 1, "{} {number}: {outcome}", seed.name);
                fs::remove_file(&output).unwrap();
            } else {
                assert!(left.is_empty(), "{} {number}: {left:?} after {outcome}", seed.name);
                let status = outcome.ending;
                let explained =
                    matches!(status, process::Ending::Exited(1 | 2)) && !outcome.stderr.is_empty();
                assert!(explained, "{} {number}: {outcome}", seed.name);
                failed += 1;
            }
        }
    }
    assert!(failed > 10, "only {failed} damaged images were refused");
}

/// Everything that the command does between reading the input and writing the output.
fn relocate(bytes: &[u8]) -> reorder_base::error::Result<Vec<u8>> {
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let analysis = Analysis::new(&file, &functions)?;
    let order =
        lay_out(&file, &functions.table, &[], Room::Linker, &LayoutRequest::of(Strategy::Random, 1))?.order;
    let applied = apply(&file, &functions, analysis, Arrangement::Order(&order), RelocateOptions::default())?;
    Ok(applied.bytes)
}

fn build_seeds() -> Vec<SeedImage> {
    let scratch = tempfile::tempdir().unwrap();
    let sources = workspace::root().join("tests/fixtures");
    SEEDS.iter().map(|(name, recipe)| build_seed(&sources, scratch.path(), name, recipe)).collect()
}

fn build_seed(sources: &Path, scratch: &Path, name: &str, recipe: &str) -> SeedImage {
    let image = scratch.join(name);
    let mut words = recipe.split(' ');
    let mut command = Command::new(tool(words.next().unwrap()));
    command.args(words).arg("-o").arg(&image).current_dir(sources);
    let outcome = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(outcome.success(), "{recipe}: {outcome}");
    SeedImage::new(name, fs::read(&image).unwrap()).unwrap()
}

/// Ends the test program when one case takes too long: a thread that hangs cannot be stopped from outside.
#[derive(Default)]
struct Watchdog {
    running: Mutex<Vec<Option<(String, Instant)>>>,
}

impl Watchdog {
    fn start(&self, case: &str) -> usize {
        let mut running = self.running.lock().unwrap();
        let free = running.iter().position(Option::is_none).unwrap_or(running.len());
        if free == running.len() {
            running.push(None);
        }
        running[free] = Some((case.to_owned(), Instant::now()));
        free
    }

    fn end(&self, ticket: usize) {
        self.running.lock().unwrap()[ticket] = None;
    }

    fn watch(&self, finished: &AtomicBool) {
        while !finished.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100));
            for (case, start) in self.running.lock().unwrap().iter().flatten() {
                if start.elapsed() > CASE_LIMIT {
                    eprintln!("{case} still runs after {CASE_LIMIT:?}");
                    std::process::abort();
                }
            }
        }
    }
}
