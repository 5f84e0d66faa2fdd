//! `reorder traces show`: prints the events of traces.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::Files;
use crate::cli::context::Context;
use crate::names;
use reorder_base::error::Result;
use reorder_base::hexadecimal::encode;
use reorder_report::table::{counted, grouped};
use reorder_report::{Report, Width};
use reorder_trace::{Event, Evidence, Location, Trace};

#[derive(Args, Debug)]
pub(super) struct ShowArguments {
    #[command(flatten)]
    files: Files,
}

pub(super) fn run(arguments: &ShowArguments, context: &Context) -> Result<()> {
    let traces = arguments.files.companions.read(&arguments.files.paths, None, &context.talk)?;
    context.print(&ShowReport { traces: traces.iter().map(ShownTrace::new).collect() })
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
    evidence: Evidence,
    /// Processes that kept running unrecorded.
    #[serde(skip_serializing_if = "is_none")]
    left_running: u32,
    command: Vec<String>,
    events: &'trace [Event],
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl<'trace> ShownTrace<'trace> {
    fn new(trace: &'trace Trace) -> Self {
        Self {
            trace: trace.label(),
            image: trace.image.to_string(),
            build_id: trace.image.build_id.as_deref().map(encode),
            run: trace.run,
            process: trace.process,
            weight: trace.weight,
            evidence: trace.evidence,
            left_running: trace.left_running,
            command: trace.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
            events: &trace.events,
        }
    }

    /// How many basic blocks it has, if any.
    fn blocks(&self) -> String {
        let recorded = self.events.iter().filter_map(|event| event.blocks.as_ref());
        match recorded.map(|recorded| recorded.blocks.len()).sum::<usize>() {
            0 => String::new(),
            count => format!(" with {} basic blocks", grouped(count as u64)),
        }
    }

    /// Evidence, and what distinguishes the trace from others of the same file.
    fn properties(&self) -> String {
        let mut properties = self.evidence.name().to_owned();
        let known = [("run", u64::from(self.run)), ("process", self.process.unwrap_or_default().into())];
        for (name, number) in known.into_iter().filter(|(_, number)| *number > 0) {
            let _ = write!(properties, ", {name} {number}");
        }
        if self.weight != 1 {
            let _ = write!(properties, ", weight {}", grouped(self.weight));
        }
        match self.left_running {
            0 => {}
            1 => properties.push_str(", one process kept running unrecorded"),
            count => {
                let _ = write!(properties, ", {} processes kept running unrecorded", grouped(count.into()));
            }
        }
        properties
    }
}

impl Report for ShowReport<'_> {
    const COMMAND: &'static str = "traces show";

    fn text(&self, width: Width) -> String {
        let mut text = String::new();
        for trace in &self.traces {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}: {}{} in {} ({})",
                trace.trace,
                counted(trace.events.len() as u64, "event"),
                trace.blocks(),
                trace.image,
                trace.properties()
            );
            for event in trace.events {
                let time = match (event.nanoseconds, event.count) {
                    (Some(time), _) => format!("{:.3} ms", time as f64 / 1e6),
                    (None, Some(count)) => format!("{} x", grouped(count)),
                    (None, None) => String::new(),
                };
                let (place, name) = match &event.location {
                    Location::Name(name) => (String::new(), Some(name)),
                    location => (location.to_string(), event.name.as_ref()),
                };
                let name = name.map_or_else(String::new, |name| width.cut(&names::shown(name), 1, 2));
                let _ = writeln!(text, "{}", format!("{time:>12}  {place:<10}  {name}").trim_end());
                for block in event.blocks.iter().flat_map(|recorded| &recorded.blocks) {
                    let time = format!("{:.3} ms", block.nanoseconds as f64 / 1e6);
                    let _ = writeln!(
                        text,
                        "{time:>12}    +{:#x}, {}",
                        block.offset,
                        counted(block.size.into(), "byte")
                    );
                }
            }
        }
        text
    }
}
