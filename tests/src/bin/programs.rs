//! Optimizes real programs as a user would, then compares them with the originals.
//!
//! Arguments: names of lists in `tests/programs`; all lists without arguments. Prints the table of `reorder optimize` for
//! each program. Exit status 1 when an answer differs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's summary is its output")]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs};

use end_to_end::invocations::Invocations;
use end_to_end::stage::Stage;
use end_to_end::{process, workspace};

/// Recording, relocating and measuring one program.
const OPTIMIZE_LIMIT: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let lists = match Invocations::read_all(&workspace::root().join("tests/programs")) {
        Ok(lists) => lists,
        Err(error) => {
            eprintln!("programs: {error}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for list in lists {
        let name = list.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        if !list.program.exists() {
            println!("{name}: not installed");
            continue;
        }
        match optimize_and_compare(&list) {
            Ok(report) => println!("{name}: {} invocations the same\n{report}", list.runs.len()),
            Err(message) => {
                failed += 1;
                println!("{name}: {message}");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The report of `reorder optimize`, if the optimized program has the original's size and answers.
fn optimize_and_compare(list: &Invocations) -> Result<String, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let stage = Stage::new(scratch.path(), &list.program).map_err(|error| error.to_string())?;
    list.prepare(&stage)?;
    let optimized = scratch.path().join("optimized");
    let mut command: Command = workspace::reorder();
    stage.set(&mut command);
    command.arg("optimize").arg(&stage.image).arg("-o").arg(&optimized);
    for arguments in &list.training {
        command.args(["--run", arguments]);
    }
    let outcome = process::run(&mut command, OPTIMIZE_LIMIT).map_err(|error| error.to_string())?;
    if !outcome.success() {
        return Err(outcome.to_string());
    }
    if size(&list.program)? != size(&optimized)? {
        return Err("the size changed".to_owned());
    }
    list.compare(&stage, &optimized)?;
    Ok(outcome.stdout_text())
}

fn size(path: &Path) -> Result<u64, String> {
    fs::metadata(path).map(|metadata| metadata.len()).map_err(|error| error.to_string())
}
