//! Relocated Mach-O programs behave as before: in the emulator, with LLVM's unwinder reading the tables of the image.

use std::path::{Path, PathBuf};

use end_to_end::macho_fixtures::{CHAINED, Fixture, OPCODES, assembly, build, program, rust, zig};
use end_to_end::macho_tools::{Emulated, Run, published, run, seeds};
use end_to_end::workspace;
use reorder_base::tool_versions::llvm;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::function_starts::function_starts;

/// Relocates `image` and proves it by the command's own `verify`.
fn relocated(image: &Path, directory: &Path, flags: &[&str]) -> PathBuf {
    let output = directory.join("relocated");
    let _ = std::fs::remove_file(&output); // the first time there is none
    // In small programs a large share may have to stay.
    let outcome = run(workspace::reorder()
        .arg("apply")
        .arg(image)
        .args(flags)
        .args(["--most-pinned", "100", "-o"])
        .arg(&output));
    assert!(outcome.success(), "{} {flags:?}: {outcome}", image.display());
    let outcome = run(workspace::reorder().arg("verify").args([image, &output]));
    assert!(outcome.success(), "{} {flags:?}: {outcome}", image.display());
    output
}

/// Runs an image before and after random permutations and after an order by its own trace; gives the first and last run.
fn runs_alike(image: &Path, how: &Emulated<'_>) -> (Run, Run) {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let before = Emulated { trace: Some(&trace), ..*how }.run(image);
    for seed in seeds() {
        let shuffled =
            relocated(image, directory.path(), &["--strategy", "random", "--seed", &seed.to_string()]);
        assert_eq!(how.run(&shuffled).outcome, before.outcome, "seed {seed}");
    }
    let ordered =
        relocated(image, directory.path(), &["--strategy", "first-seen", "-t", trace.to_str().unwrap()]);
    let after = how.run(&ordered);
    assert_eq!(after.outcome, before.outcome, "ordered");
    (before, after)
}

fn fixture_runs_alike(fixture: &Fixture) {
    let how = Emulated { architecture: fixture.linked.architecture, ..Emulated::default() };
    runs_alike(&fixture.image, &how);
}

#[test]
fn c_with_every_optimisation() {
    for flags in ["-O0", "-O2", "-Os"] {
        fixture_runs_alike(&program(CHAINED.compiled(flags)));
        fixture_runs_alike(&program(OPCODES.compiled(flags)));
    }
}

#[test]
fn cxx_exceptions() {
    let links = [
        CHAINED,
        OPCODES,
        CHAINED.linked("--icf=all"),
        OPCODES.linked("-dead_strip"),
        CHAINED.linked("-S -x"),
    ];
    for how in links {
        fixture_runs_alike(&build(&[("exceptions.cpp", "")], how));
    }
}

#[test]
fn cxx_exceptions_of_dwarf() {
    fixture_runs_alike(&build(
        &[("exceptions.cpp", "-femit-dwarf-unwind=always -fno-omit-frame-pointer")],
        OPCODES,
    ));
}

#[test]
fn rust_panics() {
    fixture_runs_alike(&rust(CHAINED));
    fixture_runs_alike(&rust(OPCODES.linked("-dead_strip")));
}

#[test]
fn relaxed_code_is_expanded_again() {
    fixture_runs_alike(&build(&[("large.c", "")], CHAINED));
}

#[test]
fn methods() {
    fixture_runs_alike(&build(
        &[("methods.m", ""), ("methods_user.c", "")],
        CHAINED.linked("-undefined dynamic_lookup"),
    ));
}

#[test]
fn labels_in_tables() {
    for flags in ["-O0", "-O2"] {
        fixture_runs_alike(&build(&[("labels.c", "")], CHAINED.compiled(flags)));
    }
}

// case: Mach-O: stored distances from one function to others
/// Calls of a function's address plus a stored distance, of four and of eight bytes.
#[test]
fn stored_distances() {
    for architecture in ["arm64", "x86_64"] {
        for flags in ["-O1", "-O2"] {
            fixture_runs_alike(&build(&[("sums.c", "")], CHAINED.on(architecture).compiled(flags)));
        }
    }
}

#[test]
fn stripped() {
    let fixture = program(CHAINED);
    let outcome = run(std::process::Command::new(llvm("llvm-strip")).arg(&fixture.image));
    assert!(outcome.success(), "{outcome}");
    fixture_runs_alike(&fixture);
}

/// Zig's linker writes an empty list of function starts, so that only symbols tell where functions begin.
#[test]
fn linked_by_zig() {
    let directory = tempfile::tempdir().unwrap();
    let image = zig(directory.path());
    let bytes = std::fs::read(&image).unwrap();
    let file = MachOFile::parse(&bytes).unwrap();
    assert_eq!(function_starts(&file).unwrap(), []);
    let (before, _) = runs_alike(&image, &Emulated::default());
    assert!(before.outcome.stdout_text().contains("two15"), "{}", before.outcome);

    let outcome = run(std::process::Command::new(llvm("llvm-strip")).arg(&image));
    assert!(outcome.success(), "{outcome}");
    let outcome = run(workspace::reorder().arg("inspect").arg(&image));
    assert!(outcome.stdout_text().contains("refused (M5)"), "{outcome}");
}

/// A dylib moves, the program that calls it stays.
#[test]
fn dylib() {
    let install = "-dylib -install_name @rpath/library.dylib";
    for how in [CHAINED, OPCODES] {
        let library = build(&[("library.c", "")], how.linked(install));
        let user = build(&[("library_user.c", "")], how.linked("-undefined dynamic_lookup"));
        let directory = tempfile::tempdir().unwrap();
        let with = |library: &Path| {
            Emulated { library: Some(library), ..Emulated::default() }.run(&user.image).outcome
        };
        let before = with(&library.image);
        assert!(before.stdout_text().contains("squared 16"), "{before}");
        for seed in seeds() {
            let flags = ["--strategy", "random", "--seed", &seed.to_string()];
            let moved = relocated(&library.image, directory.path(), &flags);
            assert_eq!(with(&moved), before);
        }
    }
}

/// Code that the analysis must understand: each program exits with 42, moved or not.
#[test]
fn hand_written_assembly() {
    let names = [
        "anchored_branch",
        "anchored_table",
        "branch_island",
        "fall_through",
        "hoisted_page",
        "neighbouring_tables",
        "page_across_call",
        "shared_page",
        "short_branch_across",
        "table_as_function",
        "table_relative_table",
        "unbounded_table",
        "words_like_calls",
    ];
    let mut failures = Vec::new();
    for name in names {
        for strip in [false, true] {
            let fixture = assembly(name, CHAINED);
            if strip {
                let outcome = run(std::process::Command::new(llvm("llvm-strip")).arg(&fixture.image));
                assert!(outcome.success(), "{outcome}");
            }
            if let Err(failure) = stays_42(&fixture) {
                failures.push(format!("{name}, stripped {strip}: {failure}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A few orders of one small program; some may move no function, because pinned functions stay.
fn stays_42(fixture: &Fixture) -> Result<(), String> {
    let output = fixture.linked.directory.join("relocated");
    for seed in 0..8 {
        let outcome = run(workspace::reorder()
            .arg("apply")
            .arg(&fixture.image)
            .args(["--strategy", "random", "--most-pinned", "100", "--seed", &seed.to_string(), "-o"])
            .arg(&output));
        if !outcome.success() {
            return Err(format!("seed {seed}: {outcome}"));
        }
        let outcome = Emulated::default().run(&output).outcome;
        if outcome.ending != end_to_end::process::Ending::Exited(42) {
            return Err(format!("seed {seed}: {outcome}"));
        }
    }
    Ok(())
}

#[test]
fn x86_64() {
    for how in [CHAINED.on("x86_64"), OPCODES.on("x86_64")] {
        fixture_runs_alike(&program(how));
        fixture_runs_alike(&build(&[("exceptions.cpp", "")], how));
        fixture_runs_alike(&build(&[("labels.c", "")], how));
    }
}

/// The share of pages that a run no longer touches.
fn saves(image: &str, arguments: &[&str], wanted: f64) {
    let (before, after) = runs_alike(&published(image), &Emulated { arguments, ..Emulated::default() });
    assert!(before.outcome.success() && !before.outcome.stdout.is_empty(), "{}", before.outcome);
    let saved = 1.0 - after.text_pages as f64 / before.text_pages as f64;
    assert!(saved >= wanted, "{image}: {} pages, then {}", before.text_pages, after.text_pages);
}

#[test]
fn ruff() {
    saves("ruff", &["--version"], 0.75);
}

#[test]
fn ripgrep() {
    saves("rg", &["--help"], 0.75);
}

#[test]
fn biome() {
    saves("biome", &["--version"], 0.75);
}

#[test]
fn ninja() {
    let (before, _) =
        runs_alike(&published("ninja"), &Emulated { arguments: &["--help"], ..Emulated::default() });
    assert!(before.outcome.stderr_text().contains("usage: ninja"), "{}", before.outcome);
}

#[test]
fn capstone() {
    let (before, _) =
        runs_alike(&published("capstone"), &Emulated { scenario: Some("capstone"), ..Emulated::default() });
    assert!(before.outcome.stdout_text().contains("vzeroupper"), "{}", before.outcome);
}
