//! `reorder measure`: real starts of two programs, compared.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::context::Context;
use crate::error::Result;
use crate::exit_status::ExitStatus;
use crate::measure::{MeasureRequest, compare};

const EXAMPLES: &str = "\
Examples:
  reorder measure /usr/bin/git git.fast -- status
  reorder measure --runs 40 --format json ./old ./new -- --first-screen";

/// Start two programs cold, in turn, and compare page faults, resident text and time
///
/// The page cache of each program's own file is emptied before each run; libraries stay as they are. Output of the
/// programs is discarded. Both must end with the same exit status.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct MeasureArguments {
    /// The program as it was
    old: PathBuf,
    /// The program with the new layout
    new: PathBuf,
    /// Runs of each program
    #[arg(long, value_name = "N", default_value_t = 11)]
    runs: usize,
    /// Keep the page cache: measure warm starts
    #[arg(long)]
    warm: bool,
    /// Stop a run that takes longer
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time_limit: u64,
    /// Arguments for both programs
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

/// Measures and prints the comparison.
///
/// # Errors
/// See [`compare`].
pub fn run(arguments: &MeasureArguments, context: &Context) -> Result<ExitStatus> {
    let request = MeasureRequest {
        old: arguments.old.clone(),
        new: arguments.new.clone(),
        arguments: arguments.arguments.clone(),
        rounds: arguments.runs,
        warm: arguments.warm,
        time_limit: Duration::from_secs(arguments.time_limit),
    };
    let phase = context.talk.phase("measure", arguments.runs as u64);
    let report = compare(&request, &|| phase.step())?;
    phase.finish(&format!("{} runs of each program", arguments.runs));
    context.print(&report)?;
    Ok(ExitStatus::Success)
}
