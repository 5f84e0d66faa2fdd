//! `reorder record`: runs a program and writes which functions ran first.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::cli::context::Context;
use crate::error::{Error, Result};
use crate::exit_status::ExitStatus;
use crate::record::{self, Ending, RecordOutcome, RecordRequest};
use crate::report::table::grouped;

const EXAMPLES: &str = "\
Examples:
  reorder record -o traces -- git status
  reorder record -o traces --runs 3 -- ./program --first-screen
  reorder record -o traces --image /usr/lib/libexample.so -- ./program

Traces accumulate in the directory. The program's input, output and exit status are its own.";

/// Run a program and write which of its functions ran first
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct RecordArguments {
    /// Directory for the traces; made if need be
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// How often to run the program
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Trace this library, or program executed by the program, as well; repeatable
    #[arg(long = "image", value_name = "PATH")]
    images: Vec<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Records, writes the traces, and hands back the program's exit status.
///
/// # Errors
/// When the program cannot be run or traced, or the traces cannot be written.
pub fn run(arguments: &RecordArguments, context: &Context) -> Result<ExitStatus> {
    let [program, rest @ ..] = arguments.command.as_slice() else {
        return Err(
            Error::usage("no program to record").with_hint("reorder record -o traces -- PROGRAM ARGUMENTS")
        );
    };
    record::leave_interrupts_to_program().map_err(|error| Error::io(&PathBuf::from(program), error))?;
    let outcome = record::record(&RecordRequest {
        program: program.clone(),
        arguments: rest.to_vec(),
        images: arguments.images.clone(),
        runs: arguments.runs,
        first_run: record::next_run(&arguments.output)?,
        discard_output: false,
    })?;
    let paths = record::write_traces(&arguments.output, &outcome.traces)?;
    summarise(&outcome, context);
    for path in &paths {
        context.talk.detail(&path.display().to_string());
    }
    Ok(ExitStatus::Program(outcome.ending.shell_status()))
}

fn summarise(outcome: &RecordOutcome, context: &Context) {
    let statistics = &outcome.statistics;
    let traces = outcome.traces.len();
    context.talk.note(&format!(
        "recorded {} first executions in {traces} trace{}; {:.1} µs each (median, without two process switches); \
         {:.1} ms to arm {:.1} MB",
        grouped(statistics.first_executions),
        if traces == 1 { "" } else { "s" },
        statistics.median_stop_nanoseconds() as f64 / 1e3,
        statistics.arming_nanoseconds as f64 / 1e6,
        statistics.armed_bytes as f64 / 1e6,
    ));
    if let Ending::Killed(signal) = outcome.ending {
        context.talk.warning(&format!("the program was killed by signal {signal}"), None);
    }
}
