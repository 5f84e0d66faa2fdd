//! Traces and sections to the order for the linker.
//!
//! In: the link's objects, and what the options say. Out: [`Arrangement`]. Only names count: a linker knows no addresses
//! yet, so every trace counts as one of another build.

use std::ffi::OsStr;
use std::path::Path;

use reorder_base::address::Address;
use reorder_base::error::Error;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_layout::order_file::read::{OrderCoverage, read};
use reorder_layout::{Layout, lay_out_functions};
use reorder_trace::{
    Companions, Coverage, Event, ImageIdentity, Location, Note, ResolvedTraces, Resolver, Trace, TraceFiles,
};

use super::abi::Section;
use super::inputs::InputObject;
use super::options::Options;
use super::table::Table;

/// The order, and an account of how it came about.
#[derive(Debug, Default)]
pub(super) struct Arrangement {
    /// Each placed section once, the lowest address first; copies come after the first of them.
    pub(super) sections: Vec<Section>,
    /// How many functions they hold, copies aside.
    pub(super) functions: usize,
    /// How many bytes they hold, copies aside.
    pub(super) bytes: u64,
    /// How many functions the link has that could be placed.
    pub(super) known: usize,
    /// How much of the traces was found.
    pub(super) coverage: Option<Coverage>,
    /// How much of the order file was found.
    pub(super) listed: Option<OrderCoverage>,
    /// Notes of the readers of traces.
    pub(super) notes: Vec<Note>,
}

/// Why there is no order.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something that was asked for cannot be read.
    Unreadable(Error),
    /// The traces do not fit what is linked.
    Unfitting(Error),
}

/// Orders the sections of `objects`; `output` is what the linker calls its output.
///
/// # Errors
/// Traces, companions and order files that cannot be read, and traces without any function that is linked here.
pub(super) fn arrange(
    objects: &[InputObject],
    options: &Options,
    output: Option<&Path>,
) -> Result<Arrangement, Failure> {
    let table = Table::new(objects);
    let functions = table.functions();
    let mut arrangement = Arrangement {
        known: table.placeables.iter().map(|placeable| placeable.functions).sum(),
        ..Arrangement::default()
    };
    let layout = match &options.order {
        Some(path) => {
            let bytes = std::fs::read(path).map_err(|error| Failure::Unreadable(Error::io(path, error)))?;
            let listed = read(&bytes, &functions);
            arrangement.listed = Some(listed.coverage);
            Layout::of_listed(&listed.functions, functions.len()).map_err(Failure::Unfitting)?
        }
        None => {
            let resolved = match options.traces.is_empty() {
                true => ResolvedTraces::default(),
                false => resolve(&table, &functions, options, output, &mut arrangement.notes)?,
            };
            let layout = lay_out_functions(&functions, &resolved.traces, &options.request)
                .map_err(Failure::Unfitting)?
                .with_hot(&resolved.counts, &functions);
            arrangement.coverage = (!options.traces.is_empty()).then_some(resolved.coverage);
            layout
        }
    };
    arrangement.place(&layout.order[..layout.chosen.min(layout.order.len())], &table);
    Ok(arrangement)
}

impl Arrangement {
    fn place(&mut self, chosen: &[FunctionIndex], table: &Table<'_>) {
        for placeable in chosen.iter().filter_map(|&function| table.placeable(function)) {
            self.functions += placeable.functions;
            self.bytes = self.bytes.saturating_add(placeable.size);
            self.sections.extend_from_slice(&placeable.sections);
        }
    }
}

fn resolve(
    table: &Table<'_>,
    functions: &FunctionTable<'_>,
    options: &Options,
    output: Option<&Path>,
    notes: &mut Vec<Note>,
) -> Result<ResolvedTraces, Failure> {
    let program = options.program.as_deref().or(output);
    // No image has a build-id of no bytes, so addresses are never believed, and other programs' traces are left out.
    let identity = ImageIdentity { path: program.map(Path::to_path_buf), build_id: Some(Vec::new()) };
    let resolver = Resolver::new(functions, &identity);
    let mut resolutions = Vec::new();
    let mut read = || {
        let companions = Companions::open(&options.companions)?;
        TraceFiles::find(&options.traces)?.read(
            &companions,
            |trace| resolver.resolve(&settled(trace, table, program.is_some())),
            |resolution| resolutions.push(resolution),
        )
    };
    *notes = read().map_err(Failure::Unreadable)?;
    resolver.collect(resolutions.into_iter()).map_err(|error| Failure::Unfitting(with_hint(error, program)))
}

/// The trace in words that need no addresses.
fn settled(mut trace: Trace, table: &Table<'_>, is_program_known: bool) -> Trace {
    if !is_program_known {
        trace.image.path = None;
    }
    for event in &mut trace.events {
        // Load addresses are deduced from offsets in pages, which no linker knows yet.
        if let Location::Runtime(address) = event.location {
            event.location = Location::Inside(Address(address.0));
        }
        settle_name(event, table);
    }
    trace
}

/// A local function that has namesakes is named in full where its size tells which one it is.
fn settle_name(event: &mut Event, table: &Table<'_>) {
    let (Some(name), Some(size)) = (event.symbol(), event.size) else { return };
    let Some(full) = table.spelled_by_size(name, size) else { return };
    match &mut event.location {
        Location::Name(name) => *name = full,
        _ => event.name = Some(full),
    }
}

fn with_hint(error: Error, program: Option<&Path>) -> Error {
    let name = program.and_then(Path::file_name).unwrap_or(OsStr::new("PROGRAM"));
    error.with_hint(format!(
        "record the program that is linked without the plugin: reorder record -o traces -- PROGRAM ARGUMENTS; if its \
         name is not {}, add -plugin-opt program=NAME",
        name.display()
    ))
}
