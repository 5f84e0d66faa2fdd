//! `reorder measure`: real runs of one program or of two.

mod agreement;
mod exports;
mod scenarios;
mod whole_process;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::context::Context;
use crate::cli::ending_args::{EndingArguments, InputArgument};
use crate::cli::scenarios_input::ConfigurationArguments;
use crate::cli::traces_input::TracesInput;
use crate::exit_status::ExitStatus;
use crate::hints;
use exports::ExportArguments;
use reorder_base::error::{Error, Result};
use reorder_report::table::counted;
use reorder_run::measure::{self, MeasureRequest, StartKind, Surroundings};
pub(super) use scenarios::{located_program, request_of, selected};
use whole_process::WholeProcessArguments;

const EXAMPLES: &str = "\
Examples:
  reorder measure /usr/bin/git git.fast -- status
  reorder measure --runs 40 --start both ./old ./new -- --first-screen
  reorder measure --whole-process --new-libraries fast /usr/bin/gdb fast/gdb -- --version
  reorder measure --export markdown=starts.md        # all scenarios of reorder.toml
  reorder measure ./program -t traces --agreement -- --first-screen";

/// Run programs, cold or warm, and compare page faults, text pages and time
///
/// With PROGRAM and NEW, runs of the two alternate. Without programs, the scenarios of reorder.toml are run. Before a cold
/// start the program's own file is evicted from the page cache; its libraries are not. Output of the programs is discarded.
/// All runs must end with the same exit status.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct MeasureArguments {
    /// The program
    #[arg(value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// The program with the new layout
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Use only this scenario of reorder.toml; repeatable
    #[arg(long = "scenario", value_name = "NAME", conflicts_with = "arguments")]
    scenarios: Vec<String>,
    #[command(flatten)]
    configuration: ConfigurationArguments,
    /// Runs of each program [default: from reorder.toml, otherwise 11]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Start with the program's file on disk, with the file in memory, or both in turn [default: cold]
    #[arg(long, value_enum, value_name = "KIND")]
    start: Option<Starts>,
    /// Keep the page cache; same as --start warm
    #[arg(long, conflicts_with = "start")]
    warm: bool,
    /// Confidence level of intervals and verdicts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, value_parser = parse_confidence)]
    confidence: f64,
    #[command(flatten)]
    ending: EndingArguments,
    #[command(flatten)]
    stdin: InputArgument,
    /// Kill a run that takes longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time_limit: u64,
    #[command(flatten)]
    process: WholeProcessArguments,
    #[command(flatten)]
    exports: ExportArguments,
    /// Compare the text pages that the trace of this run predicts with those that the run actually touches; with NEW, the run is
    /// one of NEW and the trace one of PROGRAM
    #[arg(
        long,
        requires = "program",
        conflicts_with_all = ["scenarios", "start", "warm", "runs", "exports", "whole_process"]
    )]
    agreement: bool,
    /// With --agreement: a larger difference is a finding
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = parse_within, requires = "agreement")]
    within: f64,
    #[command(flatten)]
    traces: TracesInput,
    /// Arguments for the programs
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

/// Kinds of starts of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Starts {
    /// The program's file is evicted from the page cache before each run.
    Cold,
    /// The page cache is kept.
    Warm,
    /// First all cold, then all warm.
    Both,
}

impl MeasureArguments {
    fn kinds(&self) -> &'static [StartKind] {
        match self.start {
            _ if self.warm => &[StartKind::Warm],
            Some(Starts::Warm) => &[StartKind::Warm],
            Some(Starts::Both) => &[StartKind::Cold, StartKind::Warm],
            Some(Starts::Cold) | None => &[StartKind::Cold],
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// See [`measure::measure`]; mistakes in `reorder.toml`.
pub fn run(arguments: &MeasureArguments, context: &Context) -> Result<ExitStatus> {
    if arguments.agreement {
        return agreement::run(arguments, context);
    }
    if !arguments.traces.paths.is_empty() {
        return Err(Error::usage("-t is used only with --agreement")
            .with_hint("add --agreement to compare the traces with the touched pages, or leave out -t"));
    }
    let (starts, configuration) = scenarios::starts(arguments, context)?;
    arguments.exports.check(&inputs(&starts, &configuration))?;
    let starts: Vec<MeasureRequest> =
        starts.into_iter().map(|start| arguments.process.requested(start)).collect::<Result<_>>()?;
    let kinds = arguments.kinds();
    // Before the first run, because our own runs would count as load of the system.
    let surroundings = Surroundings::of_this_machine();
    let rounds: usize = starts.iter().map(|start| start.rounds).sum();
    let phase = context.talk.phase("measure", (rounds * kinds.len()) as u64);
    let mut measurements = Vec::new();
    for start in starts {
        for &kind in kinds {
            let request = MeasureRequest { start: kind, ..start.clone() };
            measurements.push(measure::measure(&request, &|| phase.step())?);
        }
    }
    phase.finish(&format!("{} of each program", counted((rounds * kinds.len()) as u64, "run")));
    let report = measure::report(surroundings, measurements);
    // Before the exports: one that cannot be written must not lose the result.
    context.print(&report)?;
    arguments.exports.write(&report)?;
    Ok(ExitStatus::Success)
}

/// Files that no export may replace: the programs and the configuration.
fn inputs(starts: &[MeasureRequest], configuration: &Path) -> Vec<PathBuf> {
    let programs = starts.iter().flat_map(|start| std::iter::once(&start.old).chain(&start.new)).cloned();
    programs.chain([configuration.to_path_buf()]).collect()
}

impl MeasureArguments {
    /// What all requests have in common, with the arguments of the command line.
    fn request(&self, program: PathBuf, configured_runs: Option<usize>) -> Result<MeasureRequest> {
        let defaults = MeasureRequest::default();
        self.stdin.check()?;
        Ok(MeasureRequest {
            old: program,
            arguments: self.arguments.clone(),
            rounds: self.runs.or(configured_runs).unwrap_or(defaults.rounds),
            confidence: self.confidence / 100.0,
            time_limit: Duration::from_secs(self.time_limit),
            wording: hints::text,
            input: self.stdin.input.clone(),
            stop: self.ending.rule()?,
            ..defaults
        })
    }
}

pub(super) fn parse_confidence(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (50.0..100.0).contains(&percent) => Ok(percent),
        _ => Err("give a percentage from 50 to less than 100".to_owned()),
    }
}

fn parse_within(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent),
        _ => Err("give a percentage of 0 or more".to_owned()),
    }
}
