//! Optimizes real programs as a user would, then compares them with the originals.
//!
//! Arguments: `[--blocks [--seed N]…]`, then names of lists in `tests/programs`; all lists without names. Prints the table of
//! `reorder optimize` for each program. With `--blocks` nothing is recorded: a random half of all basic blocks is copied, with
//! each seed, by default 1. Exit status 1 when an answer differs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's summary is its output")]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs};

use end_to_end::distribution::{Permutation, Permuted, permute};
use end_to_end::invocations::Invocations;
use end_to_end::stage::Stage;
use end_to_end::{process, workspace};
use serde_json::Value;

/// Recording, relocating and measuring one program.
const OPTIMIZE_LIMIT: Duration = Duration::from_secs(900);

/// What is done to the programs.
#[derive(Default)]
struct Options {
    /// Names of the lists; all if there are none.
    wanted: Vec<String>,
    is_by_block: bool,
    seeds: Vec<u64>,
}

fn main() -> ExitCode {
    let read = options(env::args().skip(1)).and_then(|options| {
        let lists = Invocations::read_all(&workspace::root().join("tests/programs"));
        Ok((options, lists.map_err(|error| error.to_string())?))
    });
    let (options, lists) = match read {
        Ok(read) => read,
        Err(message) => {
            eprintln!("programs: {message}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for list in lists {
        let name = list.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !options.wanted.is_empty() && !options.wanted.contains(&name) {
            continue;
        }
        if !list.program.exists() {
            println!("{name}: not installed");
            continue;
        }
        let compared = match options.is_by_block {
            true => copy_blocks_and_compare(&list, &options.seeds),
            false => optimize_and_compare(&list),
        };
        match compared {
            Ok(report) => println!("{name}: {} invocations the same\n{report}", list.runs.len()),
            Err(message) => {
                failed += 1;
                println!("{name}: {message}");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--blocks" => options.is_by_block = true,
            "--seed" => {
                let value = arguments.next().ok_or("--seed needs a number")?;
                options.seeds.push(value.parse().map_err(|_| format!("not a number: {value}"))?);
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            name => options.wanted.push(name.to_owned()),
        }
    }
    if !options.is_by_block && !options.seeds.is_empty() {
        return Err("--seed is for --blocks".to_owned());
    }
    if options.seeds.is_empty() {
        options.seeds.push(1);
    }
    Ok(options)
}

/// How much was copied with each seed, if the program with the copies has the original's answers.
fn copy_blocks_and_compare(list: &Invocations, seeds: &[u64]) -> Result<String, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let stage = Stage::new(scratch.path(), &list.program).map_err(|error| error.to_string())?;
    list.prepare(&stage)?;
    let copied = scratch.path().join("copied");
    let mut report = String::new();
    for &seed in seeds {
        let permutation = Permutation { what: Permuted::Blocks, seed };
        let outcome = permute(&list.program, &copied, permutation).map_err(|error| error.to_string())?;
        if !outcome.success() {
            return Err(format!("seed {seed}: {outcome}"));
        }
        list.compare(&stage, &copied).map_err(|message| format!("seed {seed}: {message}"))?;
        let facts: Value = serde_json::from_slice(&outcome.stdout).map_err(|error| error.to_string())?;
        let copies = &facts["clones"];
        // Writing to a string cannot fail.
        let _ = writeln!(
            report,
            "seed {seed}: {} fragments of {} functions",
            copies["fragments"], copies["functions"]
        );
        fs::remove_file(&copied).map_err(|error| error.to_string())?;
    }
    Ok(report)
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
