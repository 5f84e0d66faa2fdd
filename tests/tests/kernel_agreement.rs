//! Predicted text pages compared with those that the kernel really faulted in, on installed programs.
//!
//! Each program is copied, recorded, and run again with each page of its text as a mapping of its own, so that every
//! page that it touches is a separate fault: cold, with read-ahead and fault-around off. The page table, the page cache
//! and the kernel's own samples of page faults must give the same pages, which must be the predicted ones, except for
//! 5 % at most and for pages without functions, which are named.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use end_to_end::process::copy_executable;
use end_to_end::workspace::{reorder, root};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::simulate::touched_pages;
use reorder_run::measure::agreement::{AgreementReport, Cause, Prediction, RealPages, compare, real_pages};
use reorder_run::measure::{MeasureRequest, Reach};
use reorder_run::record::{RecordRequest, record};
use reorder_system::PAGE_BYTES;
use reorder_trace::{ImageIdentity, ResolvedTrace, Trace, resolve};
use tempfile::TempDir;

/// The largest difference that is accepted, in per cent of the touched pages.
const ACCEPTED_PERCENT: f64 = 5.0;

/// A copy of an installed program that only the test runs, on a real disk.
struct Program {
    _directory: TempDir,
    path: PathBuf,
}

impl Program {
    fn installed(name: &str) -> Self {
        let folders = std::env::var_os("PATH").unwrap();
        let found =
            std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
        let found = found.unwrap_or_else(|| panic!("{name} is missing: scripts/install-tools installs it"));
        // Next to the test program: the system's temporary directory may be a file system in memory.
        let beside = std::env::current_exe().unwrap();
        let directory = TempDir::new_in(beside.parent().unwrap()).unwrap();
        let path = directory.path().join(name);
        copy_executable(&found, &path).unwrap();
        Self { _directory: directory, path }
    }

    fn request(&self, arguments: &[&str]) -> MeasureRequest {
        let arguments = arguments.iter().map(OsString::from).collect();
        MeasureRequest { old: self.path.clone(), arguments, ..MeasureRequest::default() }
    }

    /// The program's own trace of one run, without its children.
    fn recorded(&self, arguments: &[&str]) -> Trace {
        let outcome = record(&RecordRequest {
            program: self.path.clone().into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            runs: 1,
            first_run: 1,
            discard_output: true,
            ..RecordRequest::default()
        });
        outcome.unwrap().traces.into_iter().next().unwrap().trace
    }

    /// Runs the program with `arguments` and compares with `trace`, of which `keep` leaves out functions.
    fn compared(&self, arguments: &[&str], keep: impl Fn(usize) -> bool) -> AgreementReport {
        let bytes = std::fs::read(&self.path).unwrap();
        let file = ElfFile::parse(&bytes).unwrap();
        let functions = ElfFunctions::collect(&file).unwrap().table;
        // Work that only a first run does, such as writing caches, is done before.
        let request = self.request(arguments);
        real_pages(&request, Reach::OnePage).unwrap();
        let trace = self.recorded(arguments);
        let identity = ImageIdentity::of(&self.path, file.build_id());
        let resolved = resolve(&[trace], &functions, &identity).unwrap();
        let [trace] = resolved.traces.as_slice() else { panic!("one trace") };
        let kept = trace.functions.iter().enumerate().filter(|(index, _)| keep(*index));
        let kept = kept.map(|(_, function)| *function).collect();
        let trace = ResolvedTrace { functions: kept, nanoseconds: Vec::new(), ..trace.clone() };
        let mut real = touched(&request);
        // Where memory is short, the system reclaims pages before the end; the samples still list them.
        real.mapped.extend(real.faulted.iter().flatten());
        let pages = touched_pages(&functions, &trace, None, None, PAGE_BYTES);
        let prediction =
            Prediction { trace: &trace, functions: &functions, pages: &pages, is_in_parts: false };
        compare(&request, &file, &functions, &prediction, &real)
    }
}

/// The pages of a run, for which all three records of the kernel must exist and agree.
fn touched(request: &MeasureRequest) -> RealPages {
    let before = taken_back();
    let real = real_pages(request, Reach::OnePage).unwrap();
    let cached = real.cached.as_ref().expect("the copy can be made cold");
    let faulted =
        real.faulted.as_ref().expect("the kernel's counters are permitted (kernel.perf_event_paranoid)");
    // Mapped pages are cached, and cached pages had a fault: otherwise more was read than touched.
    assert!(real.mapped.is_subset(cached), "{request:?}: {:?}", real.mapped.difference(cached));
    assert!(cached.is_subset(faulted), "{request:?}: {:?}", cached.difference(faulted));
    if taken_back() == before {
        assert_eq!(real.mapped, *faulted, "{request:?}");
    }
    real
}

/// How many pages of files the system has reclaimed so far: proc_vmstat(5).
fn taken_back() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap();
    let taken = counters.lines().filter(|line| line.starts_with("pgsteal_"));
    taken.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// A directory with a repository for git, and a project for cmake.
fn work_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = "git init -q r && cd r && git config user.name a && git config user.email a@b && \
                  for n in 1 2 3; do echo $n > f$n && git add . && git commit -qm $n; done && git status";
    let made =
        std::process::Command::new("sh").args(["-c", script]).current_dir(&directory).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    directory
}

/// The report agrees with the kernel's records.
fn assert_witnesses(report: &AgreementReport) {
    let text = reorder_report::Report::text(report, reorder_report::Width::UNLIMITED);
    let samples = report.fault_samples.expect("they are there");
    assert_eq!((samples.pages, samples.differing_pages), (report.touched_pages, 0), "{text}");
    // Each page is explained by what it holds.
    let pages = report.predicted_only.iter().chain(&report.touched_only);
    assert!(pages.clone().all(|page| !page.holds.is_empty()), "{text}");
    assert_eq!(report.pages_in_both + report.predicted_only.len() as u64, report.predicted_pages, "{text}");
}

#[test]
fn predicted_pages_are_those_that_the_kernel_faults_in() {
    let work = work_directory();
    let repository = work.path().join("r");
    let repository = repository.to_str().unwrap();
    let starts: [(&str, &[&[&str]]); 5] = [
        (
            "git",
            &[
                &["version"],
                &["-C", repository, "log", "--oneline", "-2"],
                &["-C", repository, "diff", "HEAD~1"],
                &["--no-optional-locks", "-C", repository, "status"],
            ],
        ),
        (
            "bash",
            &[&["-c", ":"], &["-c", "for i in 1 2 3; do x=$((i * 3)); done; echo ${x/9/8}; [[ a =~ a ]]"]],
        ),
        (
            "perl",
            &[&["-e", "1"], &["-MPOSIX", "-MData::Dumper", "-e", "print Dumper(strftime('%Y', localtime))"]],
        ),
        ("cmake", &[&["--version"], &["-E", "capabilities"], &["--help-command-list"]]),
        ("gdb", &[&["--version"], &["-nx", "-batch", "-ex", "print 1 + 1"]]),
    ];
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    for (name, all_arguments) in starts {
        let program = Program::installed(name);
        for arguments in all_arguments {
            let report = program.compared(arguments, |_| true);
            assert_witnesses(&report);
            let line = format!(
                "{name} {}: predicted {}, touched {}, both {}, difference {:.1} %",
                arguments.join(" "),
                report.predicted_pages,
                report.touched_pages,
                report.pages_in_both,
                report.difference_percent
            );
            if report.difference_percent >= ACCEPTED_PERCENT {
                failures.push(reorder_report::Report::text(&report, reorder_report::Width::UNLIMITED));
            }
            lines.push(line);
        }
    }
    eprintln!("{}", lines.join("\n"));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Interpreters have functions of ten pages and more of which one run executes a part, and in small runs single pages are
/// many per cent. readelf's compiler has split off parts that no trace has. No other differences are accepted.
#[test]
fn beyond_that_only_parts_of_large_functions_differ() {
    for (name, arguments) in [
        (
            "perl",
            ["-e", "my %h; $h{$_ % 7} .= \"x$_\" for 1 .. 99; print map { s/x(\\d)/$1$1/gr } sort values %h"],
        ),
        ("sqlite3", [":memory:", ".tables"]),
        ("readelf", ["-lW", "/bin/sh"]),
    ] {
        let report = Program::installed(name).compared(&arguments, |_| true);
        assert_witnesses(&report);
        let text = reorder_report::Report::text(&report, reorder_report::Width::UNLIMITED);
        assert!(report.predicted_only.iter().all(|page| page.cause == Cause::PartNotReached), "{text}");
        assert!(report.touched_only.iter().all(|page| page.cause.is_untraced_code()), "{text}");
        eprintln!("{name} {}: difference {:.1} %", arguments.join(" "), report.difference_percent);
    }
}

#[test]
fn a_trace_that_lacks_functions_is_found_out() {
    let program = Program::installed("git");
    let report = program.compared(&["version"], |index| index % 2 == 0);
    assert!(report.difference_percent > ACCEPTED_PERCENT, "{report:?}");
    let lacking = report.touched_only.iter().filter(|page| page.cause == Cause::FunctionsNotInTrace).count();
    assert!(lacking >= 5, "{report:?}");
    // A trace of another run has functions that this one does not execute.
    let other = program.recorded(&["--exec-path"]);
    let bytes = std::fs::read(&program.path).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let log = program.recorded(&["log", "-1"]);
    let resolved =
        resolve(&[log, other], &functions, &ImageIdentity::of(&program.path, file.build_id())).unwrap();
    let request = program.request(&["--exec-path"]);
    let real = real_pages(&request, Reach::OnePage).unwrap();
    let trace = &resolved.traces[0];
    let pages = touched_pages(&functions, trace, None, None, PAGE_BYTES);
    let prediction = Prediction { trace, functions: &functions, pages: &pages, is_in_parts: false };
    let report = compare(&request, &file, &functions, &prediction, &real);
    assert!(report.predicted_only.iter().any(|page| page.cause == Cause::NotRun), "{report:?}");
    assert!(report.difference_percent > ACCEPTED_PERCENT, "{report:?}");
}

/// Originals that pointers, tables and exits of copies lead to run beside the copies, and are predicted. So is what runs outside
/// of functions.
#[test]
fn pages_of_copies_and_of_originals_that_run_are_predicted() {
    let work = work_directory();
    let repository = work.path().join("r");
    let starts: [(&str, &[&[&str]]); 5] = [
        ("git", &[&["version"], &["log", "--oneline", "-2"], &["diff", "HEAD~1"]]),
        // Two pages of nine have no function. cmake's stubs are on three pages.
        ("sqlite3", &[&[":memory:", "select 1"], &[":memory:", ".tables"]]),
        ("cmake", &[&["--version"], &["-E", "capabilities"]]),
        (
            "bash",
            &[&["-c", ":"], &["-c", "for i in 1 2 3; do x=$((i * 3)); done; echo ${x/9/8}; [[ a =~ a ]]"]],
        ),
        (
            "perl",
            &[
                &["-e", "1"],
                &[
                    "-e",
                    "my %h; $h{$_ % 7} .= \"x$_\" for 1 .. 99; print map { s/x(\\d)/$1$1/gr } sort values %h",
                ],
            ],
        ),
    ];
    let mut failures = Vec::new();
    for (name, all_arguments) in starts {
        let program = Program::installed(name);
        let path = as_text(&program.path);
        let new = format!("{path}.blocks");
        let run = |arguments: &[&str]| {
            let output = reorder().args(arguments).current_dir(&repository).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
        };
        let traces = tempfile::tempdir().unwrap();
        let folder = |number: usize| traces.path().join(number.to_string());
        for (number, arguments) in all_arguments.iter().enumerate() {
            let folder = folder(number);
            let asked = ["record", "-q", "--blocks", "-o", as_text(&folder), "--", path];
            let (status, text) = run(&[&asked[..], *arguments].concat());
            assert_eq!(status, Some(0), "{text}");
        }
        // The last startup is one that no layout was made from.
        let first = folder(0);
        let asked = ["apply", path, "-t", as_text(&first), "--layout", "blocks", "-o", new.as_str()];
        let (status, text) = run(&asked);
        assert_eq!(status, Some(0), "{text}");
        for (number, arguments) in all_arguments.iter().enumerate() {
            let folder = folder(number);
            let asked = ["measure", path, new.as_str(), "-t", as_text(&folder), "--agreement", "--"];
            let (status, text) = run(&[&asked[..], *arguments].concat());
            eprintln!("{text}");
            if status != Some(0) || text.contains(Cause::StartupAndStubs.title()) {
                failures.push(text);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_command_says_so_with_its_exit_status() {
    let program = Program::installed("git");
    let traces = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = reorder().args(arguments).current_dir(root()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (path, folder) = (as_text(&program.path), as_text(traces.path()));
    assert_eq!(run(&["record", "-q", "-o", folder, "--", path, "version"]).0, Some(0));
    let asked = ["measure", path, "-t", folder, "--agreement"];
    let (status, text) = run(&[&asked[..], &["--", "version"]].concat());
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("by the page cache: the same") && text.contains("difference"), "{text}");
    let (status, json) = run(&[&asked[..], &["--within", "0", "--format", "json", "--", "version"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let difference = json["difference_percent"].as_f64().unwrap();
    assert_eq!(status, Some(i32::from(difference > 0.0)), "{json}");
    assert_eq!(json["command"], "measure-agreement");
    assert_eq!(run(&["measure", path, "-t", folder, "--", "version"]).0, Some(2), "traces need --agreement");
}

fn as_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
