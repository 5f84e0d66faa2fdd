//! The command line: arguments become a call into the library, results become a report.
//!
//! Guarantees: stdout carries the requested data and nothing else, stderr carries messages, the exit status has three
//! meanings (see [`ExitStatus`]), and a reader that closes the pipe early is not an error.
//!
//! To add a command: write `cli/NAME.rs` with an arguments struct (its doc comment is the help) and
//! `pub fn run(arguments: &…, context: &Context) -> Result<ExitStatus>`, then add one `pub mod` line and one row of
//! the table below.

pub mod context;
pub(crate) mod shared_args;
pub mod talk;
pub mod timings;

pub mod traces;
pub(crate) mod traces_input;
pub(crate) mod trades;

pub(crate) mod scenarios_input;

pub mod order;
pub mod simulate;

pub mod applied;
pub mod apply;
pub(crate) mod apply_blocks;
pub(crate) mod apply_elf;
pub(crate) mod apply_macho;
mod apply_set;
mod apply_wheel;
pub mod arrangement;
pub(crate) mod check_args;
pub mod completions;
pub mod doctor;
mod doctor_image;
mod doctor_links;
pub(crate) mod ending_args;
pub mod explain;
mod export_argument;
pub mod gate;
mod gate_copies;
pub(crate) mod gate_files;
mod gate_growth;
pub(crate) mod gate_measured;
pub(crate) mod gate_outputs;
mod gate_remarks;
pub mod inspect;
pub(crate) mod inspect_macho;
mod kept_inputs;
pub mod man;
pub mod measure;
mod measured_input;
mod moved_set;
pub mod optimize;
pub(crate) mod optimize_layout;
mod optimize_page;
mod optimize_set;
mod pins;
pub(crate) mod previous;
pub mod record;
mod record_scenarios;
pub mod refusal;
pub(crate) mod relocate_args;
pub mod report;
mod report_set;
pub mod schema;
mod second_image;
pub mod verify;
mod verify_wheel;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::applied::is_failed_proof;
use crate::cli::context::Context;
use crate::cli::shared_args::SharedArguments;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, ErrorKind};

/// One row a command, in the order of the data: variant, arguments, entry point.
macro_rules! commands {
    ($($variant:ident($arguments:path) => $run:path,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($variant($arguments),)*
        }

        impl Command {
            fn run(&self, context: &Context) -> reorder_base::error::Result<ExitStatus> {
                match self {
                    $(Self::$variant(arguments) => $run(arguments, context),)*
                }
            }
        }
    };
}

commands! {
    Record(record::RecordArguments) => record::run,
    Traces(traces::TracesArguments) => traces::run,
    Order(order::OrderArguments) => order::run,
    Apply(apply::ApplyArguments) => apply::run,
    Verify(verify::VerifyArguments) => verify::run,
    Simulate(simulate::SimulateArguments) => simulate::run,
    Gate(gate::GateArguments) => gate::run,
    Measure(measure::MeasureArguments) => measure::run,
    Report(report::ReportArguments) => report::run,
    Optimize(optimize::OptimizeArguments) => optimize::run,
    Explain(explain::ExplainArguments) => explain::run,
    Doctor(doctor::DoctorArguments) => doctor::run,
    Inspect(inspect::InspectArguments) => inspect::run,
    Schema(schema::SchemaArguments) => schema::run,
    Completions(completions::CompletionsArguments) => completions::run,
    Man(man::ManArguments) => man::run,
}

const EXAMPLES: &str = "\
Examples:
  reorder optimize /usr/bin/git -o git.fast --run status --run 'log --oneline'
  reorder record -o traces -- ./program --first-screen
  reorder apply ./program -t traces/*.trace -o program.fast
  reorder measure ./program program.fast -- --first-screen";

/// Moves the functions of a finished program so that its startup touches fewer pages
#[derive(Debug, Parser)]
#[command(name = "reorder", version, before_long_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    shared: SharedArguments,
    #[command(subcommand)]
    command: Command,
}

/// The whole command-line definition; help, completions and man pages all come from it.
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// Runs the command that `arguments` (program name first) name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitStatus {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return explain_usage(&error),
    };
    let context = match Context::new(&arguments.shared) {
        Ok(context) => context,
        Err(error) => {
            talk::Talk::new(&arguments.shared).error(&error);
            return exit_status_of(&error);
        }
    };
    arguments.command.run(&context).unwrap_or_else(|error| {
        context.talk.error(&error);
        exit_status_of(&error)
    })
}

/// Prints clap's own message: help and version are data on stdout, mistakes are messages on stderr.
fn explain_usage(error: &clap::Error) -> ExitStatus {
    // A pipe closed while help is printed is not an error, and there is no reader left to tell.
    let _ = error.print();
    if error.use_stderr() { ExitStatus::Error } else { ExitStatus::Success }
}

/// A failed proof is a finding, about two images or about what we have made; everything else, also a refused image, means that
/// the command could not run.
fn exit_status_of(error: &Error) -> ExitStatus {
    match &error.kind {
        ErrorKind::Verification => ExitStatus::Finding,
        ErrorKind::Refused(refusal) if is_failed_proof(refusal.code) => ExitStatus::Finding,
        _ => ExitStatus::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reorder_base::refusal::{Refusal, RefusalCode};

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn every_command_explains_itself() {
        for command in definition().get_subcommands() {
            assert!(command.get_about().is_some(), "{} has no one-line help", command.get_name());
        }
    }

    #[test]
    fn a_refusal_has_one_status_and_a_failed_proof_another() {
        let status = |code| exit_status_of(&Error::from(Refusal::new(code, "some reason", "some cure")));
        assert_eq!(status(RefusalCode::UnknownCode), ExitStatus::Error);
        assert_eq!(status(RefusalCode::MachORuntimeTables), ExitStatus::Error);
        for code in [RefusalCode::FailedVerification, RefusalCode::MachOFailedVerification] {
            assert_eq!(status(code), ExitStatus::Finding);
        }
    }

    #[test]
    fn a_usage_mistake_is_exit_status_two() {
        let mistake = ["reorder", "no-such-command"].map(OsString::from);
        assert_eq!(run(mistake), ExitStatus::Error);
    }
}
