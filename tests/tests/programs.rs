//! git, bash, perl and python with every movable function permuted answer at least 20 different invocations as before.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use end_to_end::invocations::Invocations;
use end_to_end::stage::Stage;
use end_to_end::{process, workspace};
use libtest_mimic::{Arguments, Failed, Trial};

/// With fewer invocations a program is hardly tested.
const AT_LEAST: usize = 20;

fn main() -> std::io::Result<ExitCode> {
    let arguments = Arguments::from_args();
    let lists = Invocations::read_all(&workspace::root().join("tests/programs"))?;
    if !arguments.list {
        workspace::reorder_path();
    }
    let trials = lists
        .into_iter()
        // Some systems lack some programs, such as a profiler; those that the tests install are never missing.
        .filter(|list| list.program.exists())
        .map(|list| {
            Trial::test(list.program.display().to_string(), move || check(&list).map_err(Failed::from))
        })
        .collect();
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

fn check(list: &Invocations) -> Result<(), String> {
    if list.runs.len() < AT_LEAST {
        return Err(format!("only {} invocations", list.runs.len()));
    }
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let stage = Stage::new(scratch.path(), &list.program).map_err(|error| error.to_string())?;
    list.prepare(&stage)?;
    for seed in ["1", "2"] {
        let permuted = scratch.path().join("permuted");
        permute(&list.program, &permuted, seed)?;
        list.compare(&stage, &permuted).map_err(|message| format!("seed {seed}: {message}"))?;
    }
    Ok(())
}

fn permute(program: &Path, output: &Path, seed: &str) -> Result<(), String> {
    let _ = std::fs::remove_file(output);
    let mut command: Command = workspace::reorder();
    command.arg("apply").arg(program).args(["--strategy", "random", "--seed", seed, "-o"]).arg(output);
    let outcome = process::run(&mut command, Duration::from_secs(300)).map_err(|error| error.to_string())?;
    if outcome.success() { Ok(()) } else { Err(outcome.to_string()) }
}
