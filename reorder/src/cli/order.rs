//! `reorder order`: traces to an order file.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::previous::{NewLayout, PreviousArguments};
use crate::cli::traces_input::TracesInput;
use crate::cli::trades;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_image::macho::{MachOImage, is_macho};
use reorder_layout::arguments::LayoutArguments;
use reorder_layout::opened::refuse_architecture;
use reorder_layout::order_file::hand_off;
use reorder_layout::order_file::lld::{OrderFile, Summary, Unnamed};
use reorder_layout::order_file::origin::{Identity, Origin};
use reorder_layout::order_file::{Linker, data, sections};
use reorder_layout::{Layout, LayoutRequest, Memory, Room, Traded, lay_out, lay_out_functions};
use reorder_report::Format;
use reorder_report::table::{counted, grouped};
use reorder_report::{Report, Width};
use reorder_system::write;
use reorder_trace::link_map::LinkMap;
use reorder_trace::{Coverage, ImageIdentity, ResolvedTraces};

/// Write an order file for the linker from traces
///
/// Pass the file to lld with --symbol-ordering-file; the program must be compiled with -ffunction-sections. --linker writes
/// for other linkers; the comments at the top of the file say how to pass it. With --link-map, functions that share a name
/// are told apart by their object files; for lld the file is then a script for -T. `reorder apply` needs no linker: it takes
/// the traces, or this file with --order.
#[derive(Args, Debug)]
pub struct OrderArguments {
    /// The program or shared object that was traced: ELF for any processor, or Mach-O for arm64 or x86-64
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[command(flatten)]
    traces: TracesInput,
    #[command(flatten)]
    layout: LayoutArguments,
    #[command(flatten)]
    previous: PreviousArguments,
    /// Write the order to this file and a summary to stdout [default: the order to stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Linker that the order file is for [default: lld, for Mach-O ld64]
    #[arg(long, value_enum, value_name = "NAME")]
    linker: Option<Linker>,
    /// Link map that was written when IMAGE was linked (-Wl,-Map=FILE, or -Wl,-map,FILE for Mach-O)
    #[arg(long, value_name = "FILE")]
    link_map: Option<PathBuf>,
    /// Architecture to use from a universal Mach-O file, such as arm64
    #[arg(long = "arch", value_name = "NAME")]
    architecture: Option<String>,
    /// Prefix each line with the architecture, for an order file that several architectures share (ld64)
    #[arg(long)]
    arch_prefix: bool,
    /// List data objects after the functions, grouped by similar contents so that the image compresses better: for lld, and
    /// programs compiled with -fdata-sections
    #[arg(long, conflicts_with = "link_map")]
    data: bool,
    /// List functions without a symbol by their address, for `reorder apply --order`
    #[arg(long, conflicts_with_all = ["linker", "link_map"])]
    addresses: bool,
}

/// What was written.
#[derive(Debug, Serialize)]
struct OrderReport {
    image: String,
    output: String,
    linker: Linker,
    #[serde(flatten)]
    layout: LayoutRequest,
    order: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    traces: Option<Coverage>,
    #[serde(flatten)]
    traded: Traded,
}

impl Report for OrderReport {
    const COMMAND: &'static str = "order";

    fn text(&self, _: Width) -> String {
        let order = &self.order;
        let (with, without) = match order.sections {
            Some(_) => ("in a section", "in none"),
            None => ("with a symbol", "without"),
        };
        format!(
            "{}: {} of {} ordered ({}), {} {with}, {} {without}\n",
            self.output,
            grouped(order.chosen as u64),
            counted(order.functions as u64, "function"),
            self.layout.strategy.name(),
            grouped(order.named as u64),
            grouped(order.unnamed as u64),
        ) + &trades::text(&self.traded)
    }
}

/// An order, the request that it answers, and the coverage of its traces.
struct Made {
    linker: Linker,
    request: LayoutRequest,
    order: OrderFile,
    coverage: Option<Coverage>,
    traded: Traded,
}

/// Runs the command.
///
/// # Errors
/// Unreadable or refused images, traces that do not fit, an output that cannot be written.
pub fn run(arguments: &OrderArguments, context: &Context) -> Result<ExitStatus> {
    if arguments.output.is_none() && context.format == Format::Json {
        return Err(Error::usage("an order file is not JSON").with_hint("name the order file with -o FILE"));
    }
    if let Some(output) = &arguments.output {
        let read = KeptFiles::default().reads("the image", [&arguments.image]);
        let read = read.reads("the link map", &arguments.link_map);
        let read = read.reads("the last release", arguments.previous.file());
        let read = arguments.traces.files()?.iter().fold(read, |read, (what, files)| read.reads(what, files));
        read.writes("order", output, "give the order a name of its own: -o FILE")?;
        write::writable(output)?;
    }
    let read = |path: &Path| std::fs::read(path).map_err(|error| Error::io(path, error));
    let bytes = read(&arguments.image)?;
    let map_bytes = arguments.link_map.as_deref().map(read).transpose()?;
    let map = match (&map_bytes, &arguments.link_map) {
        (Some(bytes), Some(path)) => Some(LinkMap::parse(bytes).map_err(|error| error.in_file(path))?),
        _ => None,
    };
    let made = match is_macho(&bytes) {
        true => arguments.for_macho(&bytes, map.as_ref(), context)?,
        false => arguments.for_elf(&bytes, map.as_ref(), context)?,
    };
    warn(&made, arguments.unnamed(), context);
    match &arguments.output {
        None => {
            trades::text(&made.traded).lines().for_each(|line| context.talk.note(line));
            context.print_bytes(&made.order.bytes)?;
        }
        Some(output) => {
            write::whole(output, &made.order.bytes)?;
            context.print(&OrderReport {
                image: arguments.image.display().to_string(),
                output: output.display().to_string(),
                linker: made.linker,
                layout: made.request,
                order: made.order.summary,
                traces: made.coverage,
                traded: made.traded,
            })?;
        }
    }
    Ok(ExitStatus::Success)
}

impl OrderArguments {
    fn unnamed(&self) -> Unnamed {
        if self.addresses { Unnamed::WriteAddress } else { Unnamed::Omit }
    }

    fn for_elf(&self, bytes: &[u8], map: Option<&LinkMap<'_>>, context: &Context) -> Result<Made> {
        let path = &self.image;
        refuse_architecture(self.architecture.as_deref()).map_err(|error| error.in_file(path))?;
        let request = self.layout.request(Memory::default());
        let file = ElfFile::parse_any_processor(bytes).map_err(|error| error.in_file(path))?;
        let functions = ElfFunctions::collect(&file).map_err(|error| error.in_file(path))?.table;
        let traces =
            self.resolve(&ImageIdentity::of(path, file.build_id()), &functions, &request, context)?;
        let layout = match file.processor == Processor::X86_64 {
            true => {
                let resolved = traces.as_ref().map_or(&[][..], |traces| &traces.traces);
                lay_out(&file, &functions, resolved, Room::Linker, &request)?
            }
            false => lay_out_known(&functions, traces.as_ref(), &request)?,
        };
        let layout = self.favour(layout, traces.as_ref(), &functions, &request)?;
        let layout = with_counts(layout, traces.as_ref(), &functions);
        let coverage = traces.map(|traces| traces.coverage);
        let linker = self.linker.unwrap_or(Linker::Lld);
        let identity = Identity::BuildId(file.build_id());
        let origin = Origin { identity, request, coverage: coverage.as_ref() };
        let mut order = hand_off::write_elf(linker, &functions, &layout, map, &origin, self.unnamed())?;
        if self.data {
            if linker != Linker::Lld {
                return Err(Error::usage("only lld can order data objects")
                    .with_hint("leave out --data, or choose --linker lld"));
            }
            let data = data::similar_side_by_side(&file, request.seed)?;
            hand_off::append_data(&mut order, &data);
        }
        if let Some(map) = map {
            warn_about_crowds(&sections::crowds(&functions, map), map, &order.summary, context);
        }
        Ok(Made { linker, request, order, coverage, traded: layout.traded })
    }

    fn for_macho(&self, bytes: &[u8], map: Option<&LinkMap<'_>>, context: &Context) -> Result<Made> {
        if self.linker.is_some_and(|linker| linker != Linker::Ld64) {
            return Err(Error::usage("this is a Mach-O image, which that linker cannot link")
                .in_file(&self.image)
                .with_hint("leave out --linker, or name ld64"));
        }
        if self.data {
            return Err(Error::usage("data of Mach-O images cannot be ordered").with_hint("leave out --data"));
        }
        if self.addresses {
            return Err(Error::usage("functions of Mach-O images cannot be listed by address").with_hint(
                "leave out --addresses; `reorder apply IMAGE -t TRACES` moves functions without names, too",
            ));
        }
        let image = MachOImage::parse(bytes, self.architecture.as_deref())
            .map_err(|error| error.in_file(&self.image))?;
        let functions = image.names.functions();
        let identity = ImageIdentity::of(&self.image, image.uuid);
        let request = self.layout.request(Memory::of_macho(image.architecture));
        let traces = self.resolve(&identity, &functions, &request, context)?;
        let layout = lay_out_known(&functions, traces.as_ref(), &request)?;
        let layout = self.favour(layout, traces.as_ref(), &functions, &request)?;
        let layout = with_counts(layout, traces.as_ref(), &functions);
        let coverage = traces.map(|traces| traces.coverage);
        let origin = Origin {
            identity: Identity::Uuid(image.uuid.as_ref().map(|uuid| &uuid[..])),
            request,
            coverage: coverage.as_ref(),
        };
        let of_map = map.map(hand_off::symbols_of).transpose()?;
        let symbols = of_map.as_deref().unwrap_or(&image.names.symbols);
        let prefix = self.arch_prefix.then_some(image.architecture);
        let order = hand_off::write_ld64(&functions, &layout, symbols, prefix, &origin);
        Ok(Made { linker: Linker::Ld64, request, order, coverage, traded: layout.traded })
    }

    /// The layout, close to the last release's if one is named.
    fn favour(
        &self,
        layout: Layout,
        traces: Option<&ResolvedTraces>,
        functions: &FunctionTable<'_>,
        request: &LayoutRequest,
    ) -> Result<Layout> {
        let new = NewLayout {
            functions,
            traces: traces.map_or(&[][..], |traces| &traces.traces),
            room: Room::Linker,
            request,
            architecture: self.architecture.as_deref(),
        };
        self.previous.favour(layout, new)
    }

    fn resolve(
        &self,
        identity: &ImageIdentity,
        functions: &FunctionTable<'_>,
        request: &LayoutRequest,
        context: &Context,
    ) -> Result<Option<ResolvedTraces>> {
        let is_needed = request.strategy.needs_traces() || !self.traces.paths.is_empty();
        let resolve = || self.traces.resolve(&self.image, identity, functions, &context.talk);
        is_needed.then(resolve).transpose()
    }
}

/// The layout of an image whose code is not analysed.
fn lay_out_known(
    functions: &FunctionTable<'_>,
    traces: Option<&ResolvedTraces>,
    request: &LayoutRequest,
) -> Result<Layout> {
    lay_out_functions(functions, traces.map_or(&[][..], |traces| &traces.traces), request)
}

fn with_counts(layout: Layout, traces: Option<&ResolvedTraces>, functions: &FunctionTable<'_>) -> Layout {
    layout.with_hot(traces.map_or(&[][..], |traces| &traces.counts), functions)
}

fn warn(made: &Made, unnamed: Unnamed, context: &Context) {
    let summary = &made.order.summary;
    if summary.unnamed > 0 && unnamed == Unnamed::Omit {
        let (cause, hint) = match summary.sections {
            Some(_) => ("are in no section of the link map", "is it the map of this image?"),
            None => (
                "have no symbol and cannot be listed for a linker",
                "`reorder apply` moves them by address; or give the image before it was stripped",
            ),
        };
        context.talk.warning(&format!("{} functions {cause}", summary.unnamed), Some(hint));
    }
    if summary.ambiguous > 0 {
        let unit = if made.linker == Linker::Gold { "sections" } else { "functions" };
        let hint = match (made.linker, summary.sections) {
            (Linker::Lld | Linker::Bfd, None) => Some("--link-map FILE tells them apart"),
            _ => None,
        };
        context.talk.warning(
            &format!(
                "{} symbols are not unique; the linker places all {unit} of that name",
                summary.ambiguous
            ),
            hint,
        );
    }
}

fn warn_about_crowds(crowds: &[u32], map: &LinkMap<'_>, summary: &Summary, context: &Context) {
    let sharing = summary.sharing.unwrap_or_default();
    let most = map.sections.iter().zip(crowds).max_by_key(|(_, count)| **count);
    // A few always share one: functions in assembly language, and those of the C runtime.
    if let Some((section, count)) = most.filter(|_| sharing * 4 > summary.named) {
        context.talk.warning(
            &format!(
                "{sharing} of {} functions share their section with others and move with them; {} of {} has {count}",
                summary.named,
                String::from_utf8_lossy(section.name),
                String::from_utf8_lossy(section.object),
            ),
            Some("compile with -ffunction-sections"),
        );
    }
}
