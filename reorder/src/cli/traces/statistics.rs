//! `reorder traces stats`: how large traces are and what they have in common.

use clap::Args;
use serde::Serialize;

use super::Files;
use crate::cli::context::Context;
use reorder_base::error::Result;
use reorder_report::table::{Table, grouped};
use reorder_report::{Report, Width};
use reorder_trace::{self, Touched, TraceStatistics};

#[derive(Args, Debug)]
pub(super) struct StatisticsArguments {
    #[command(flatten)]
    files: Files,
}

pub(super) fn run(arguments: &StatisticsArguments, context: &Context) -> Result<()> {
    let traces = arguments.files.companions.read(&arguments.files.paths, None, &context.talk)?;
    context.print(&StatsReport { statistics: reorder_trace::statistics(&traces) })
}

#[derive(Serialize)]
struct StatsReport {
    #[serde(flatten)]
    statistics: TraceStatistics,
}

impl Report for StatsReport {
    const COMMAND: &'static str = "traces stats";

    fn text(&self, width: Width) -> String {
        let columns =
            ["trace", "events", "functions", "basic blocks", "shared", "bytes", "4 KiB pages", "ms"];
        let has_blocks = self.statistics.traces.iter().any(|trace| trace.basic_blocks > 0);
        let mut traces = Table::new(columns).with_spare(if has_blocks { [7, 4] } else { [3, 7] });
        for trace in &self.statistics.traces {
            let [bytes, pages] = figures(trace.touched);
            traces.row([
                trace.trace.clone(),
                grouped(trace.events),
                grouped(trace.distinct_functions),
                if trace.basic_blocks > 0 { grouped(trace.basic_blocks) } else { unknown() },
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
        format!("{}\n{}", traces.render(width), images.render(width))
    }
}

fn figures(touched: Option<Touched>) -> [String; 2] {
    touched.map_or_else(|| [unknown(), unknown()], |touched| [grouped(touched.bytes), grouped(touched.pages)])
}

fn unknown() -> String {
    "-".to_owned()
}
