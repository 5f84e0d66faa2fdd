//! `reorder traces`: shows, merges and converts trace files.

mod convert;
mod import;
mod merge;
mod show;
mod statistics;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::context::Context;
use crate::cli::traces_input::CompanionFiles;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_report::Format;
use reorder_report::Report;
use reorder_system::write;

const EXAMPLES: &str = "\
Examples:
  reorder traces show default.profraw
  reorder traces stats traces
  reorder traces import -o traces --image app perf.data
  reorder traces merge -o merged.trace --sample 100 devices/
  reorder traces convert --to llvm-text -o app.proftext traces";

/// Show, merge and convert trace and profile files
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct TracesArguments {
    #[command(subcommand)]
    command: TracesCommand,
}

#[derive(Debug, Subcommand)]
enum TracesCommand {
    /// Print the events of traces
    Show(show::ShowArguments),
    /// Print how large traces are and what they have in common
    Stats(statistics::StatisticsArguments),
    /// Write profiles of any supported system as recorded traces, one file for each run and image
    Import(import::ImportArguments),
    /// Write many traces into one file: all of them, or a fair sample
    Merge(merge::MergeArguments),
    /// Write traces in the format of another system
    Convert(convert::ConvertArguments),
}

/// Files to read.
#[derive(Args, Debug)]
struct Files {
    /// Trace or profile files of any known system; a directory means the files in and below it, @LIST the paths
    /// listed in a file, - standard input
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    companions: CompanionFiles,
}

/// Runs the subcommand.
///
/// # Errors
/// When files cannot be read or written.
pub fn run(arguments: &TracesArguments, context: &Context) -> Result<ExitStatus> {
    match &arguments.command {
        TracesCommand::Show(arguments) => show::run(arguments, context)?,
        TracesCommand::Stats(arguments) => statistics::run(arguments, context)?,
        TracesCommand::Import(arguments) => import::run(arguments, context)?,
        TracesCommand::Merge(arguments) => merge::run(arguments, context)?,
        TracesCommand::Convert(arguments) => convert::run(arguments, context)?,
    }
    Ok(ExitStatus::Success)
}

/// Writes bytes to the file at `output` and a report to standard output, or without a file the bytes to standard output.
fn deliver(bytes: &[u8], output: Option<&PathBuf>, report: &impl Report, context: &Context) -> Result<()> {
    match output {
        Some(output) => {
            write::whole(output, bytes)?;
            context.print(report)
        }
        None if context.format == Format::Json => {
            Err(Error::usage("the output is not JSON").with_hint("name the file with -o FILE"))
        }
        None => context.print_bytes(bytes),
    }
}
