//! `reorder order`: traces to an order file.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::layout_args::LayoutArguments;
use crate::cli::shared_args::Format;
use crate::cli::traces_input::TracesInput;
use crate::error::{Error, Result};
use crate::exit_status::ExitStatus;
use crate::image::elf::file::ElfFile;
use crate::image::functions::FunctionTable;
use crate::layout::{LayoutRequest, Room, lay_out};
use crate::order_file::Linker;
use crate::order_file::hand_off;
use crate::order_file::lld::{Summary, Unnamed};
use crate::order_file::origin::{Identity, Origin};
use crate::report::Report;
use crate::report::table::grouped;
use crate::trace::Coverage;
use crate::write;

/// Write an order file for the linker from traces
///
/// lld takes the file with --symbol-ordering-file, if the program is compiled with -ffunction-sections. `reorder
/// apply` needs no linker: it takes the traces, or the file with --order.
#[derive(Args, Debug)]
pub struct OrderArguments {
    /// The program or shared object that was traced
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[command(flatten)]
    traces: TracesInput,
    #[command(flatten)]
    layout: LayoutArguments,
    /// Write the order to this file and a summary to stdout [default: the order to stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// List functions without a symbol by their address, for `reorder apply --order`
    #[arg(long)]
    addresses: bool,
}

/// What was written.
#[derive(Debug, Serialize)]
struct OrderReport {
    image: String,
    output: String,
    #[serde(flatten)]
    layout: LayoutRequest,
    order: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    traces: Option<Coverage>,
}

impl Report for OrderReport {
    const COMMAND: &'static str = "order";

    fn text(&self) -> String {
        let order = &self.order;
        format!(
            "{}: {} of {} functions ordered ({}), {} with a symbol, {} without\n",
            self.output,
            grouped(order.chosen as u64),
            grouped(order.functions as u64),
            self.layout.strategy.name(),
            grouped(order.named as u64),
            grouped(order.unnamed as u64),
        )
    }
}

/// Runs the command.
///
/// # Errors
/// Unreadable or refused images, traces that do not fit, an output that cannot be written.
pub fn run(arguments: &OrderArguments, context: &Context) -> Result<ExitStatus> {
    if arguments.output.is_none() && context.format == Format::Json {
        return Err(Error::usage("an order file is not JSON").with_hint("name the order file with -o FILE"));
    }
    let path = &arguments.image;
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let file = ElfFile::parse(&bytes).map_err(|error| error.in_file(path))?;
    let functions = FunctionTable::collect(&file).map_err(|error| error.in_file(path))?;
    let request = arguments.layout.request();
    let traces = if request.strategy.needs_traces() || !arguments.traces.paths.is_empty() {
        Some(arguments.traces.resolve(path, &file, &functions, &context.talk)?)
    } else {
        None
    };
    let resolved = traces.as_ref().map_or(&[][..], |traces| &traces.traces);
    let counts = traces.as_ref().map_or(&[][..], |traces| &traces.counts);
    let layout = lay_out(&file, &functions, resolved, Room::Linker, &request)?.with_hot(counts, &functions);
    let coverage = traces.as_ref().map(|traces| &traces.coverage);
    let origin = Origin { identity: Identity::BuildId(file.build_id()), request, coverage };
    let unnamed = if arguments.addresses { Unnamed::WriteAddress } else { Unnamed::Omit };
    let order = hand_off::write_elf(Linker::Lld, &functions, &layout, None, &origin, unnamed)?;
    warn_about_names(&order.summary, unnamed, context);
    match &arguments.output {
        None => context.print_bytes(&order.bytes)?,
        Some(output) => {
            write::whole(output, &order.bytes)?;
            context.print(&OrderReport {
                image: path.display().to_string(),
                output: output.display().to_string(),
                layout: request,
                order: order.summary,
                traces: traces.map(|traces| traces.coverage),
            })?;
        }
    }
    Ok(ExitStatus::Success)
}

fn warn_about_names(summary: &Summary, unnamed: Unnamed, context: &Context) {
    if summary.unnamed > 0 && unnamed == Unnamed::Omit {
        context.talk.warning(
            &format!("{} functions have no symbol and cannot be listed for a linker", summary.unnamed),
            Some("`reorder apply` moves them by address; or give the image before it was stripped"),
        );
    }
    if summary.ambiguous > 0 {
        context.talk.warning(
            &format!(
                "{} symbols are not unique; the linker places all functions of that name",
                summary.ambiguous
            ),
            None,
        );
    }
}
