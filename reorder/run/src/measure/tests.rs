//! Real programs, really started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use reorder_base::error::ErrorKind;

/// A program with 64 functions, one on each page, that calls as many as its first argument says and ends with the
/// status that the second one gives.
const SOURCE: &str = r#"
#include <stdlib.h>
#define F(n) __attribute__((noinline, aligned(4096))) int f##n(int x) { return x * 31 + n; }
#define F8(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
F8(1) F8(2) F8(3) F8(4) F8(5) F8(6) F8(7) F8(8)
F(90) /* the C library's own code may follow the last function on its page */
#define P(n) f##n,
#define P8(n) P(n##0) P(n##1) P(n##2) P(n##3) P(n##4) P(n##5) P(n##6) P(n##7)
int (*const pages[])(int) = { P8(1) P8(2) P8(3) P8(4) P8(5) P8(6) P8(7) P8(8) };
int main(int count, char **arguments) {
    int sum = 0;
    for (int i = 0; i < atoi(arguments[1]); i++) sum += pages[i * 37 % 64](i);
    return count > 2 ? atoi(arguments[2]) : sum == 1;
}
"#;

/// Builds the program in a directory of a real file system: the target directory, not a file system in memory.
fn build() -> (TempDir, PathBuf) {
    let test = std::env::current_exe().expect("the test knows itself");
    let directory =
        TempDir::new_in(test.parent().expect("a directory")).expect("the target directory is writable");
    let (source, program) = (directory.path().join("pages.c"), directory.path().join("pages"));
    fs::write(&source, SOURCE).expect("writable");
    let status = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).status();
    assert!(status.expect("a C compiler is installed").success());
    (directory, program)
}

fn request(old: &Path, new: &Path, arguments: &[&str]) -> MeasureRequest {
    MeasureRequest {
        old: old.to_path_buf(),
        new: Some(new.to_path_buf()),
        arguments: arguments.iter().map(OsString::from).collect(),
        rounds: 3,
        time_limit: Duration::from_secs(20),
        ..MeasureRequest::default()
    }
}

/// Median over both copies of one program, which must agree.
fn median(measurement: &Measurement, kind: FigureKind) -> f64 {
    let comparison = measurement.figures.comparison(kind).expect("ptrace is permitted");
    comparison.old.median
}

#[test]
fn each_page_that_is_called_counts_once() {
    let (_directory, program) = build();
    for start in [StartKind::Cold, StartKind::Warm] {
        let touched = |calls: &str| {
            let asked = MeasureRequest { start, ..request(&program, &program, &[calls]) };
            let report = measure(&asked, &|| ()).expect("it runs");
            assert_eq!(report.cold && report.private_copies, start == StartKind::Cold, "{report:?}");
            let pages = report.figures.comparison(FigureKind::TextPagesTouched).expect("ptrace is permitted");
            assert_eq!(pages.old, pages.new, "two copies of one program");
            pages.old.median
        };
        let none = touched("0");
        assert_eq!([touched("1") - none, touched("10") - none, touched("64") - none], [1.0, 10.0, 64.0]);
    }
}

#[test]
fn a_cold_start_reads_from_the_disk_and_a_warm_one_does_not() {
    let (directory, program) = build();
    let before: Vec<_> = fs::read_dir(directory.path()).expect("readable").collect();
    let mut asked = request(&program, &program, &["8"]);
    let cold = measure(&asked, &|| ()).expect("it runs");
    assert!(median(&cold, FigureKind::MajorFaults) >= 1.0);
    assert!(median(&cold, FigureKind::TextPagesMapped) >= 8.0);
    let effect = cold.effects.first().expect("touched pages are known");
    assert!(effect.cached_pages.expect("cold") >= effect.touched_pages, "{effect:?}");
    assert!(effect.mapped_pages.expect("traced") >= effect.touched_pages, "{effect:?}");
    asked.start = StartKind::Warm;
    let warm = measure(&asked, &|| ()).expect("it runs");
    // Where memory is short, the system may evict libraries between runs.
    assert_eq!(warm.figures.sample(FigureKind::MajorFaults, 0).expect("always known").minimum, 0.0);
    assert!(!warm.cold && warm.figures.get(FigureKind::TextPagesCached).is_none());
    let after: Vec<_> = fs::read_dir(directory.path()).expect("readable").collect();
    assert_eq!(before.len(), after.len(), "the private copies are gone");
}

#[test]
fn one_program_has_figures_without_a_comparison() {
    let (_directory, program) = build();
    let mut asked = request(&program, &program, &["8"]);
    asked.new = None;
    asked.environment = vec![("REORDER_TEST".into(), "1".into())];
    asked.directory = Some(PathBuf::from("/"));
    let alone = measure(&asked, &|| ()).expect("it runs");
    assert!(alone.figures.comparison(FigureKind::MajorFaults).is_none());
    let faults = alone.figures.sample(FigureKind::MajorFaults, 0).expect("always known");
    assert_eq!(faults.values.len(), asked.rounds);
    let report = report(Surroundings::default(), vec![alone]);
    let text = reorder_report::Report::text(&report, reorder_report::Width::UNLIMITED);
    assert!(text.contains("text pages touched") && text.contains("program: pages touched"), "{text}");
}

#[test]
fn programs_that_end_differently_are_not_compared() {
    let (_directory, program) = build();
    let error = measure(&request(&program, Path::new("/bin/false"), &["1", "0"]), &|| ());
    let error = error.expect_err("0 is not 1");
    assert!(matches!(error.kind, ErrorKind::Verification), "{error}");
    // A status that is not zero is fine as long as both agree.
    let report = measure(&request(&program, &program, &["1", "7"]), &|| ()).expect("both end with 7");
    assert_eq!(report.status, "exit status 7");
}

#[test]
fn a_program_that_does_not_end_is_stopped() {
    let mut asked = request(Path::new("/bin/sleep"), Path::new("/bin/sleep"), &["30"]);
    asked.time_limit = Duration::from_millis(200);
    let error = measure(&asked, &|| ()).expect_err("too late");
    assert!(error.to_string().contains("still running"), "{error}");
}

#[test]
fn what_is_no_program_is_refused() {
    for path in ["/etc/passwd", "/nonexistent", "/tmp"] {
        assert!(measure(&request(Path::new(path), Path::new("/bin/true"), &[]), &|| ()).is_err(), "{path}");
    }
    let mut none = request(Path::new("/bin/true"), Path::new("/bin/true"), &[]);
    none.rounds = 0;
    assert!(matches!(measure(&none, &|| ()).expect_err("no runs").kind, ErrorKind::Usage));
}
