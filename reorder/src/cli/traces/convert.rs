//! `reorder traces convert`: traces in the form of another system.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::import::in_image;
use super::{Files, deliver};
use crate::cli::context::Context;
use crate::cli::traces_input::tell_notes;
use crate::error::Result;
use crate::report::Report;
use crate::report::table::grouped;
use crate::trace::{LlvmText, Location, Note, Trace, text, write_llvm_text};

#[derive(Args, Debug)]
pub(super) struct ConvertArguments {
    #[command(flatten)]
    files: Files,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the functions of this image that the traces name, by its names
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// What to write
    #[arg(long, value_name = "FORM", value_enum)]
    to: Form,
}

/// A form of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Form {
    /// This program's own: everything that is known
    Trace,
    /// LLVM's text profile, for `llvm-profdata merge` and lld
    LlvmText,
    /// One symbol or address per line, in the order of the traces; each function once
    List,
}

#[derive(Serialize)]
struct ConvertReport {
    output: String,
    form: Form,
    traces: u64,
    events: u64,
    /// Events that the form has no place for, or that repeat an earlier one.
    left_out: u64,
}

pub(super) fn run(arguments: &ConvertArguments, context: &Context) -> Result<()> {
    let files = &arguments.files;
    let traces = files.companions.read(&files.paths, arguments.image.as_deref(), &context.talk)?;
    let traces = match &arguments.image {
        Some(image) => in_image(image, &traces, context)?.0,
        None => traces,
    };
    let events: u64 = traces.iter().map(|trace| trace.events.len() as u64).sum();
    let (bytes, written) = match arguments.to {
        Form::Trace => (traces.iter().map(text::write).collect::<String>().into_bytes(), events),
        Form::List => {
            let (lines, written, nameless) = list(&traces);
            let note = Note::new(format!(
                "{nameless} events are known by a hash or an address in memory only: a list has no place for them"
            ));
            let note = note.with_hint("name the image, whose symbols they are: --image IMAGE");
            tell_notes(if nameless > 0 { std::slice::from_ref(&note) } else { &[] }, &context.talk);
            (lines, written)
        }
        Form::LlvmText => {
            let LlvmText { text, notes } = write_llvm_text(&traces)?;
            tell_notes(&notes, &context.talk);
            (text, events)
        }
    };
    let report = ConvertReport {
        output: arguments.output.as_ref().map_or_else(String::new, |output| output.display().to_string()),
        form: arguments.to,
        traces: traces.len() as u64,
        events,
        left_out: events - written,
    };
    deliver(&bytes, arguments.output.as_ref(), &report, context)
}

/// The functions of all traces in order of first appearance, how many there are, and how many events are left out
/// because nothing that a list could say is known of them.
fn list(traces: &[Trace]) -> (Vec<u8>, u64, u64) {
    let mut seen = HashSet::new();
    let mut lines = Vec::new();
    let mut nameless = 0;
    for event in traces.iter().flat_map(|trace| &trace.events) {
        let line = match (event.symbol(), &event.location) {
            (Some(name), _) => name.to_vec(),
            (None, Location::Image(address) | Location::Inside(address)) => address.to_string().into_bytes(),
            (None, _) => {
                nameless += 1;
                continue;
            }
        };
        if seen.insert(line.clone()) {
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
    }
    (lines, seen.len() as u64, nameless)
}

impl Report for ConvertReport {
    const COMMAND: &'static str = "traces convert";

    fn text(&self) -> String {
        let left_out = match self.left_out {
            0 => String::new(),
            left_out => format!("; {} repeat others or have no place in it", grouped(left_out)),
        };
        format!(
            "{}: {} traces, {} events{left_out}\n",
            self.output,
            grouped(self.traces),
            grouped(self.events)
        )
    }
}
