//! `reorder traces merge`: many traces into one file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{Files, deliver};
use crate::cli::context::Context;
use crate::cli::traces_input::tell_notes;
use reorder_base::error::Result;
use reorder_report::table::{counted, grouped};
use reorder_report::{Report, Width};
use reorder_trace::{Merge, MergeRequest, Strata, Trace, identity_of, text};

#[derive(Args, Debug)]
pub(super) struct MergeArguments {
    #[command(flatten)]
    files: Files,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep a fair sample of at most N traces of each image, which does not depend on the order and grouping of the files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// What the limit of --sample applies to
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = EachArgument::Image)]
    each: EachArgument,
    /// Seed of the sample; samples can be merged again only with the seed that drew them
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EachArgument {
    /// Each image, identified by build-id and path
    Image,
    /// Each image and command line, so that rare runs are kept too
    Command,
}

impl From<EachArgument> for Strata {
    fn from(argument: EachArgument) -> Self {
        match argument {
            EachArgument::Image => Self::Image,
            EachArgument::Command => Self::Command,
        }
    }
}

#[derive(Serialize)]
struct MergeReport {
    output: String,
    traces: u64,
    kept: u64,
    /// How many traces the sample represents, estimated from the smallest priority that was left out.
    stands_for: f64,
    /// Traces of weight 0, which were left out.
    weightless: u64,
}

pub(super) fn run(arguments: &MergeArguments, context: &Context) -> Result<()> {
    let mut merge = Merge::new(MergeRequest {
        capacity: arguments.sample,
        strata: arguments.each.into(),
        seed: arguments.seed,
    });
    let mut failure = None;
    let notes = arguments.files.companions.visit(
        &arguments.files.paths,
        None,
        |trace| Trace { identity: Some(identity_of(&trace)), ..trace },
        |trace| {
            if failure.is_none() {
                failure = merge.add(trace).err();
            }
        },
    )?;
    tell_notes(&notes, &context.talk);
    if let Some(failure) = failure {
        return Err(failure);
    }
    let merged = merge.finish();
    let bytes = text::write_all(&merged.traces);
    let report = MergeReport {
        output: arguments.output.as_ref().map_or_else(String::new, |output| output.display().to_string()),
        traces: merged.given,
        kept: merged.traces.len() as u64,
        stands_for: merged.traces.iter().map(Trace::stands_for).sum(),
        weightless: merged.weightless,
    };
    deliver(bytes.as_bytes(), arguments.output.as_ref(), &report, context)
}

impl Report for MergeReport {
    const COMMAND: &'static str = "traces merge";

    fn text(&self, _: Width) -> String {
        let mut left_out = match self.kept < self.traces {
            true => format!(", standing for a weight of {:.0}", self.stands_for),
            false => String::new(),
        };
        if self.weightless > 0 {
            left_out.push_str(&format!("; {} without weight left out", grouped(self.weightless)));
        }
        format!(
            "{}: {} of {} kept{left_out}\n",
            self.output,
            grouped(self.kept),
            counted(self.traces, "trace")
        )
    }
}
