//! What commands print, compared whole with the snapshots in `tests/reports/snapshots`.
//!
//! The images are in the repository (`tests/reports/make`), so a report changes only if reorder does. Every command runs in
//! a folder with `program`, `next` (the next version of it, whose startup runs one more function), their traces and a few
//! other files. [CONTRIBUTING.md](../../CONTRIBUTING.md) says how to accept a change.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use end_to_end::process::{Ending, Outcome};
use end_to_end::profiles::sample;
use end_to_end::{process, workspace};
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// Name of the snapshot, and the commands: all must succeed, and what the last one prints is kept, whatever its status.
const REPORTS: &[(&str, &[&str])] = &[
    ("inspect", &["inspect program"]),
    ("inspect-json", &["inspect program --format json"]),
    ("inspect-mach-o", &["inspect mach-o"]),
    ("inspect-mach-o-json", &["inspect mach-o --format json"]),
    ("inspect-fixed", &["inspect fixed"]),
    ("inspect-fixed-json", &["inspect fixed --format json"]),
    ("order", &["order program -t traces"]),
    ("order-json", &["order program -t traces -o order --format json"]),
    ("order-gold", &["order program -t traces --linker gold"]),
    ("simulate", &["simulate program -t traces"]),
    ("simulate-json", &["simulate program -t traces --model linux-4k --format json"]),
    ("simulate-pair", &[APPLY, "simulate program moved -t traces"]),
    ("simulate-pair-json", &[APPLY, "simulate program moved -t traces --model linux-4k --format json"]),
    ("report-measured", &[APPLY, "report program moved -t traces --measured process.json -o report.html"]),
    ("report-sizes", &[APPLY, "report program moved -t traces --sizes -o report.html"]),
    (
        "report-measured-json",
        &[
            APPLY,
            "report program moved -t traces --model linux-4k --measured process.json -o report.html --format json",
        ],
    ),
    ("report-measured-other", &["report next -t next-traces --measured process.json -o report.html"]),
    ("report-measured-other-new", &["report program next -t traces --measured process.json -o report.html"]),
    ("report-measured-no-measurement", &["report program -t traces --measured conflict.json -o report.html"]),
    ("explain", &["explain program read_settings print_help search anchored -t traces"]),
    ("explain-json", &["explain program read_settings print_help search anchored -t traces --format json"]),
    ("explain-moved", &[APPLY, "explain program read_settings anchored --new moved -t traces"]),
    (
        "explain-moved-json",
        &[APPLY, "explain program read_settings anchored --new moved -t traces --format json"],
    ),
    ("explain-misspelt", &["explain program read_setings -t traces"]),
    ("explain-no-function", &["explain program 0x1 -t traces"]),
    ("explain-no-traces", &["explain program draw"]),
    ("explain-no-program", &["explain program draw -t traces --new traces/help.trace"]),
    ("explain-no-model", &["explain program draw -t traces --model linux-3k"]),
    ("apply", &["apply program -t traces -o moved"]),
    ("apply-json", &["apply program -t traces -o moved --format json"]),
    ("apply-fixed", &["apply fixed -t traces -o moved"]),
    ("apply-no-traces", &["apply program -t mach-o -o moved"]),
    ("verify", &[APPLY, "verify program moved"]),
    ("verify-json", &[APPLY, "verify program moved --format json"]),
    ("verify-wrong", &["verify program wrong"]),
    ("verify-wrong-json", &["verify program wrong --format json"]),
    ("traces-show", &["traces show traces"]),
    ("traces-show-json", &["traces show traces --format json"]),
    ("traces-show-forked", &["traces show forked.profraw"]),
    ("traces-show-weighted", &["traces show weighted.profdata"]),
    ("traces-show-counts", &["traces show counts.gcov"]),
    ("traces-show-missing", &["traces show missing"]),
    ("traces-show-program", &["traces show program"]),
    ("traces-show-no-traces", &["traces show sources"]),
    ("traces-stats", &["traces stats traces forked.profraw"]),
    ("traces-stats-json", &["traces stats traces forked.profraw --format json"]),
    ("traces-convert-list", &["traces convert --to list traces"]),
    ("traces-convert-llvm", &["traces convert --to llvm-text --image program traces"]),
    ("traces-convert-unnamed", &["traces convert --to list counted.gcda"]),
    ("traces-merge-json", &["traces merge -o merged.trace --format json traces next-traces"]),
    ("gate-baseline", &["gate program -t traces --update-baseline"]),
    ("gate-no-baseline", &["gate program -t traces"]),
    ("gate-pass", &[BASELINE, "gate program -t traces"]),
    ("gate-pass-json", &[BASELINE, "gate program -t traces --format json"]),
    ("gate-fail", &[BASELINE, "gate next -t next-traces"]),
    ("gate-fail-json", &[BASELINE, "gate next -t next-traces --format json"]),
    ("gate-fail-markdown", &[BASELINE, "gate next -t next-traces --export markdown=-"]),
    ("gate-fail-github", &[BASELINE, "gate next -t next-traces --export github=-"]),
    ("gate-fail-sarif", &[BASELINE, "gate next -t next-traces --export sarif=-"]),
    ("gate-fail-junit", &[BASELINE, "gate next -t next-traces --export junit=-"]),
    ("gate-pass-all", &[BASELINE, "gate program -t traces --all"]),
    ("gate-fail-all", &[BASELINE, "gate next -t next-traces --all"]),
    ("gate-update", &[BASELINE, "gate next -t next-traces --update-baseline"]),
    ("gate-update-same", &[BASELINE, "gate program -t traces --update-baseline"]),
    ("gate-conflict", &["gate program -t traces --baseline conflict.json"]),
    ("gate-conflict-update", &["gate program -t traces --baseline conflict.json --update-baseline"]),
    ("traces-show-other-text", &["traces show users"]),
    ("inspect-refused", &["inspect refused"]),
    ("inspect-refused-json", &["inspect refused --format json"]),
    ("inspect-no-image", &["inspect program.S"]),
    ("apply-map", &["apply program -t traces -o moved --map moved.map"]),
    ("apply-refused", &["apply refused -t traces -o moved"]),
    ("apply-arch", &["apply program -t traces -o moved --arch arm64"]),
    ("apply-mach-o", &["apply mach-o --strategy random --seed 1 -o moved"]),
    ("apply-mach-o-json", &["apply mach-o --strategy random --seed 1 -o moved --format json"]),
    ("optimize-mach-o", &["optimize mach-o -o moved --run x"]),
    ("record-mach-o", &["record -o recorded -- ./mach-o"]),
    ("measure-mach-o", &["measure mach-o"]),
    ("measure-mach-o-pair", &["measure mach-o mach-o"]),
    ("measure-mach-o-agreement", &["measure mach-o -t traces --agreement"]),
    ("simulate-no-image", &["simulate program.S -t traces"]),
    ("verify-no-image", &["verify program.S program.S"]),
    ("traces-show-empty", &["traces show empty.profraw"]),
    ("traces-show-packed", &["traces show packed"]),
    ("traces-convert-odd", &["traces convert --to list odd.trace"]),
    ("traces-convert-odd-json", &["traces convert --to list odd.trace -o list --format json"]),
    ("traces-convert-samples", &["traces convert --to list samples.data"]),
    ("traces-convert-nowhere", &["traces convert --to nowhere traces"]),
    ("traces-merge-none", &["traces merge --sample 0 traces"]),
    ("traces-merge-no-file", &["traces merge --format json traces"]),
    ("gate-gone", &[BASELINE, "gate program -t traces/window.trace"]),
    ("gate-warn-only", &[BASELINE, "gate next -t next-traces --warn-only"]),
    ("gate-warn-only-github", &[BASELINE, "gate next -t next-traces --warn-only --export github=-"]),
    ("gate-warn-only-sarif", &[BASELINE, "gate next -t next-traces --warn-only --export sarif=-"]),
];

const APPLY: &str = "apply program -t traces -o moved";
const BASELINE: &str = "gate program -t traces --update-baseline";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = REPORTS
        .iter()
        .map(|&(name, commands)| {
            Trial::test(name, move || {
                check(name, commands);
                Ok(())
            })
        })
        .collect();
    trials.push(Trial::test("each snapshot is of a report", || {
        each_snapshot_is_of_a_report();
        Ok(())
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn snapshots() -> PathBuf {
    workspace::root().join("tests/reports/snapshots")
}

fn check(name: &str, commands: &[&str]) {
    let workplace = workplace();
    let (last, earlier) = commands.split_last().unwrap();
    for command in earlier {
        let outcome = run(workplace.path(), command);
        assert!(outcome.success(), "{command}: {outcome}");
    }
    let before = names(workplace.path());
    let mut text = shown(&run(workplace.path(), last)).replace(env!("CARGO_PKG_VERSION"), "VERSION");
    for name in names(workplace.path()).difference(&before) {
        text += &format!("-- wrote {name}\n");
    }
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(snapshots());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_description(format!("reorder {last}"));
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The gate's messages about progress have times.
fn run(directory: &Path, command: &str) -> Outcome {
    let quiet = command.starts_with("gate").then_some("--quiet");
    let words = command.split(' ').chain(quiet);
    process::run(workspace::reorder().args(words).current_dir(directory), LIMIT).unwrap()
}

/// Standard output; after it the status unless it is 0, and standard error. The caller adds the files that it wrote.
fn shown(outcome: &Outcome) -> String {
    let mut text = outcome.stdout_text();
    if outcome.ending != Ending::Exited(0) {
        text += &format!("-- {:?}\n", outcome.ending);
    }
    if !outcome.stderr.is_empty() {
        text += &format!("-- stderr\n{}", outcome.stderr_text());
    }
    text
}

fn workplace() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (reports, images) =
        (workspace::root().join("tests/reports"), workspace::root().join("tests/fuzz/images"));
    let place = |from: PathBuf, name: &str| {
        let to = directory.path().join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    place(reports.join("program"), "program");
    place(reports.join("program.next"), "next");
    for name in ["help.trace", "window.trace"] {
        place(reports.join("traces").join(name), &format!("traces/{name}"));
        place(reports.join("next").join(name), &format!("next-traces/{name}"));
    }
    place(images.join("macho-arm64-13-program"), "mach-o");
    place(reports.join("program.fixed"), "fixed");
    place(sample("llvm_raw/v10-fork.profraw"), "forked.profraw");
    place(sample("llvm_merged/v13-weighted.profdata"), "weighted.profdata");
    place(sample("sampling/gcc-autofdo-v2.gcov"), "counts.gcov");
    place(sample("gcov/gcc12-a.gcda"), "counted.gcda");
    place(sample("sampling/perf-cpu-clock.data"), "samples.data");
    place(reports.join("program.S"), "program.S");
    place(reports.join("process.json"), "process.json");
    place(reports.join("program.S"), "sources/program.S");
    let odd = "# reorder trace 1\n- 0x1040 - -\n- inside:0x1144 - -\n- md5:0x77 - -\n- - - two\\x0alines\n- - - main\n";
    let conflict = "{\n\"schema\": \"reorder-baseline/1\",\n<<<<<<< HEAD\n\"figures\": [],\n=======\n\"figures\": [],\n>>>>>>> other\n";
    let users = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n";
    for (name, contents) in [
        ("odd.trace", odd.as_bytes()),
        ("empty.profraw", b""),
        ("packed", b"\x1f\x8b\x08\0\0"),
        ("conflict.json", conflict.as_bytes()),
        ("users", users.as_bytes()),
    ] {
        fs::write(directory.path().join(name), contents).unwrap();
    }
    damaged(directory.path());
    directory
}

/// `wrong` is the program with one instruction of a function replaced by another of its size; `refused` is said to be for a
/// processor that reorder does not know.
fn damaged(directory: &Path) {
    const NOP: u8 = 0x90;
    const INT3: u8 = 0xcc;
    const MACHINE: usize = 18;
    const RISC_V: u8 = 243;
    let program = fs::read(directory.join("program")).unwrap();
    let nops = program.windows(500).position(|window| window.iter().all(|&byte| byte == NOP)).unwrap();
    for (name, place, byte) in [("wrong", nops + 100, INT3), ("refused", MACHINE, RISC_V)] {
        let mut bytes = program.clone();
        bytes[place] = byte;
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// A report that was renamed or removed must not leave its snapshot.
fn each_snapshot_is_of_a_report() {
    let files =
        fs::read_dir(snapshots()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = files.filter(|name| name.ends_with(".snap")).collect();
    let expected: BTreeSet<String> = REPORTS.iter().map(|(name, _)| format!("{name}.snap")).collect();
    let stale: Vec<&String> = found.difference(&expected).collect();
    assert!(stale.is_empty(), "remove {stale:?} from {}", snapshots().display());
}
