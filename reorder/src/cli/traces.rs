//! `reorder traces`: looks into trace files.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::traces_input::CompanionFiles;
use crate::error::Result;
use crate::exit_status::ExitStatus;
use crate::report::Report;
use crate::report::table::{Table, grouped};
use crate::trace::{self, Event, Location, Touched, Trace, TraceStatistics};

const EXAMPLES: &str = "\
Examples:
  reorder traces show traces/git.001.001.trace
  reorder traces stats traces
  reorder traces stats --format json traces/*.trace";

/// Look into trace files
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct TracesArguments {
    #[command(subcommand)]
    command: TracesCommand,
}

#[derive(Debug, Subcommand)]
enum TracesCommand {
    /// Print the events of traces
    Show(Files),
    /// Print how large traces are and what they have in common
    Stats(Files),
}

#[derive(Args, Debug)]
struct Files {
    /// Trace files of any known system; a directory stands for those in and below it
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    companions: CompanionFiles,
}

/// Prints what was asked for.
///
/// # Errors
/// When the files cannot be read, or stdout cannot be written.
pub fn run(arguments: &TracesArguments, context: &Context) -> Result<ExitStatus> {
    match &arguments.command {
        TracesCommand::Show(files) => {
            let traces = files.companions.read(&files.files, &context.talk)?;
            context.print(&ShowReport { traces: traces.iter().map(ShownTrace::new).collect() })?;
        }
        TracesCommand::Stats(files) => {
            let traces = files.companions.read(&files.files, &context.talk)?;
            context.print(&StatsReport { statistics: trace::statistics(&traces) })?;
        }
    }
    Ok(ExitStatus::Success)
}

#[derive(Serialize)]
struct ShowReport<'traces> {
    traces: Vec<ShownTrace<'traces>>,
}

#[derive(Serialize)]
struct ShownTrace<'trace> {
    trace: String,
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
    run: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    weight: u64,
    command: Vec<String>,
    events: &'trace [Event],
}

impl<'trace> ShownTrace<'trace> {
    fn new(trace: &'trace Trace) -> Self {
        let hexadecimal = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            trace: trace.label(),
            image: trace.image.to_string(),
            build_id: trace.image.build_id.as_ref().map(hexadecimal),
            run: trace.run,
            process: trace.process,
            weight: trace.weight,
            command: trace.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
            events: &trace.events,
        }
    }
}

impl Report for ShowReport<'_> {
    const COMMAND: &'static str = "traces show";

    fn text(&self) -> String {
        let mut text = String::new();
        for trace in &self.traces {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}: {} events in {}",
                trace.trace,
                grouped(trace.events.len() as u64),
                trace.image
            );
            for event in trace.events {
                let time =
                    event.nanoseconds.map_or_else(String::new, |time| format!("{:.3} ms", time as f64 / 1e6));
                let (place, name) = match &event.location {
                    Location::Name(name) => (String::new(), Some(name)),
                    location => (location.to_string(), event.name.as_ref()),
                };
                let name = name.map_or_else(String::new, |name| name.escape_ascii().to_string());
                let _ = writeln!(text, "{}", format!("{time:>12}  {place:<10}  {name}").trim_end());
            }
        }
        text
    }
}

#[derive(Serialize)]
struct StatsReport {
    #[serde(flatten)]
    statistics: TraceStatistics,
}

impl Report for StatsReport {
    const COMMAND: &'static str = "traces stats";

    fn text(&self) -> String {
        let mut traces = Table::new(["trace", "events", "functions", "shared", "bytes", "4 KiB pages", "ms"]);
        for trace in &self.statistics.traces {
            let [bytes, pages] = figures(trace.touched);
            traces.row([
                trace.trace.clone(),
                grouped(trace.events),
                grouped(trace.distinct_functions),
                grouped(trace.shared_functions),
                bytes,
                pages,
                trace.span_nanoseconds.map_or_else(unknown, |time| format!("{:.1}", time as f64 / 1e6)),
            ]);
        }
        let mut images =
            Table::new(["image", "traces", "functions", "in all traces", "bytes", "4 KiB pages"]);
        for image in &self.statistics.images {
            let [bytes, pages] = figures(image.touched);
            images.row([
                image.image.clone(),
                grouped(image.traces),
                grouped(image.distinct_functions),
                grouped(image.common_functions),
                bytes,
                pages,
            ]);
        }
        format!("{}\n{}", traces.render(), images.render())
    }
}

fn figures(touched: Option<Touched>) -> [String; 2] {
    touched.map_or_else(|| [unknown(), unknown()], |touched| [grouped(touched.bytes), grouped(touched.pages)])
}

fn unknown() -> String {
    "-".to_owned()
}
