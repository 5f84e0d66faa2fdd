//! `reorder traces convert`: writes traces in the format of another system.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::import::in_image;
use super::{Files, deliver};
use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::traces_input::{TracesInput, tell_notes};
use reorder_base::error::Result;
use reorder_report::table::{counted, grouped};
use reorder_report::{Report, Width};
use reorder_trace::{Event, LlvmText, Location, Note, Trace, identity_of, text, write_llvm_text};

#[derive(Args, Debug)]
pub(super) struct ConvertArguments {
    #[command(flatten)]
    files: Files,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Find the functions of the traces in this image, and write its names for them
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// Architecture to use from a universal Mach-O file, such as arm64
    #[arg(long = "arch", value_name = "NAME", requires = "image")]
    architecture: Option<String>,
    /// Format to write
    #[arg(long, value_name = "FORM", value_enum)]
    to: Form,
}

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Form {
    /// reorder's own format: everything that is known
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
    /// Events that the format cannot hold, or that repeat an earlier one.
    left_out: u64,
}

pub(super) fn run(arguments: &ConvertArguments, context: &Context) -> Result<()> {
    let files = &arguments.files;
    if let Some(output) = &arguments.output {
        let read =
            TracesInput { paths: files.paths.clone(), companions: files.companions.clone() }.files()?;
        let read = read.iter().fold(KeptFiles::default(), |kept, (what, files)| kept.reads(what, files));
        let read = read.reads("the image", &arguments.image);
        read.writes("output", output, "give another -o FILE")?;
    }
    let traces = files.companions.read(&files.paths, arguments.image.as_deref(), &context.talk)?;
    let traces = match &arguments.image {
        Some(image) => in_image(image, arguments.architecture.as_deref(), &traces, context)?.0,
        None => traces,
    };
    let events: u64 = traces.iter().map(|trace| trace.events.len() as u64).sum();
    let (bytes, written) = match arguments.to {
        Form::Trace => {
            let identified =
                traces.iter().map(|trace| Trace { identity: Some(identity_of(trace)), ..trace.clone() });
            (text::write_all(&identified.collect::<Vec<_>>()).into_bytes(), events)
        }
        Form::List => {
            let (lines, written, unsaid) = list(&traces);
            let note = Note::new(format!(
                "{unsaid} events have no line: hashes, addresses inside functions or in memory, names that fit no line"
            ));
            let note = note.with_hint("name the image, whose symbols they are: --image IMAGE");
            tell_notes(if unsaid > 0 { std::slice::from_ref(&note) } else { &[] }, &context.talk);
            (lines, written)
        }
        Form::LlvmText => {
            let LlvmText { text, notes, events: written } = write_llvm_text(&traces)?;
            tell_notes(&notes, &context.talk);
            (text, written)
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

/// The functions of all traces in order of first appearance, how many there are, and how many events are left out because
/// they have no form that a list can hold.
fn list(traces: &[Trace]) -> (Vec<u8>, u64, u64) {
    let mut seen = HashSet::new();
    let mut lines = Vec::new();
    let mut unsaid = 0;
    for event in traces.iter().flat_map(|trace| &trace.events) {
        let Some(line) = line_of(event) else {
            unsaid += 1;
            continue;
        };
        if seen.insert(line.clone()) {
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
    }
    (lines, seen.len() as u64, unsaid)
}

/// The event as a line that is read back as the same; hashes, run-time addresses, addresses inside functions and
/// names that do not fit a line have none.
fn line_of(event: &Event) -> Option<Vec<u8>> {
    let fits = |name: &&[u8]| {
        let is_word = !name.is_empty()
            && !name.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control());
        is_word && !name.starts_with(b"#") && !name.starts_with(b"0x") && !name.starts_with(b"@")
    };
    match (event.symbol().filter(fits), &event.location) {
        (Some(name), _) => Some(name.to_vec()),
        (None, Location::Image(address)) => Some(address.to_string().into_bytes()),
        _ => None,
    }
}

impl Report for ConvertReport {
    const COMMAND: &'static str = "traces convert";

    fn text(&self, _: Width) -> String {
        let left_out = match self.left_out {
            0 => String::new(),
            1 => "; 1 repeats another or does not fit this format".to_owned(),
            left_out => format!("; {} repeat others or do not fit this format", grouped(left_out)),
        };
        format!(
            "{}: {}, {}{left_out}\n",
            self.output,
            counted(self.traces, "trace"),
            counted(self.events, "event")
        )
    }
}
