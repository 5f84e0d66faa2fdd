//! The result of a link, as far as layouts need it: its functions, and the recorded runs in terms of them.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_trace::{
    Companions, Coverage, Event, ImageIdentity, Location, Name, Note, ResolvedTraces, Resolver, Trace,
    TraceFiles,
};

use super::build_names::BuildNames;
use super::invocation::Invocation;
use super::link::Failure;
use super::options::Options;

/// Recorded runs in terms of one image.
#[derive(Debug)]
pub(crate) struct Starts {
    /// The runs.
    pub(crate) traces: ResolvedTraces,
    /// Of the functions that the traces name, each counted once: what was found, and by what.
    pub(crate) names: Coverage,
    /// What was left out of the files, or is unreliable.
    pub(crate) notes: Vec<String>,
}

impl Starts {
    /// The traces that `options` name, in terms of `functions`, which are those of the image at `image`. Names of functions
    /// that they lack are those of `build_names`.
    ///
    /// # Errors
    /// Traces that cannot be read or are of another program.
    pub(crate) fn resolve(
        image: &Path,
        functions: &FunctionTable<'_>,
        invocation: &Invocation,
        options: &Options,
        build_names: &BuildNames<'_>,
    ) -> std::result::Result<Self, Failure> {
        let identity = identity(invocation, options);
        let resolver = Resolver::new(functions, &identity);
        // A trace may have been recorded with this very image.
        let companions: Vec<PathBuf> =
            options.companion.iter().cloned().chain(std::iter::once(image.to_path_buf())).collect();
        let companions = Companions::open(&companions)?;
        let mut resolutions = Vec::new();
        let mut distinct = DistinctFunctions::default();
        let notes = TraceFiles::find(&options.traces)?.read(
            &companions,
            |mut trace| {
                build_names.learn(&trace, functions);
                build_names.give(&mut trace);
                (resolver.resolve(&trace), trace)
            },
            |(resolution, trace)| {
                resolutions.push(resolution);
                distinct.add(trace);
            },
        )?;
        build_names.keep_learned();
        let traces = resolver.collect(resolutions.into_iter()).map_err(Failure::Unfit)?;
        let distinct = distinct.traces();
        let names = resolver.collect(distinct.iter().map(|trace| resolver.resolve(trace)))?.coverage;
        Ok(Self { traces, names, notes: notes.iter().map(Note::to_string).collect() })
    }
}

/// The image's identity. Its build-id is of no use: the trial leaves debug information out, so the functions themselves
/// have to show whether addresses of traces are valid.
fn identity(invocation: &Invocation, options: &Options) -> ImageIdentity {
    let name = options.recorded_as.clone().or_else(|| invocation.program()).unwrap_or_default();
    let path = invocation.output_path().parent().map(|folder| folder.join(name));
    ImageIdentity { path, build_id: None }
}

/// One trace for each image, with every function of its traces once.
#[derive(Default)]
struct DistinctFunctions {
    images: BTreeMap<ImageKey, (Trace, HashSet<EventKey>)>,
}

/// Path and build-id.
type ImageKey = (Option<PathBuf>, Option<Vec<u8>>);
/// The identity of a function, as far as events have it.
type EventKey = (Location, Option<Name>);

impl DistinctFunctions {
    fn add(&mut self, mut trace: Trace) {
        let events = std::mem::take(&mut trace.events);
        let key = (trace.image.path.clone(), trace.image.build_id.clone());
        let (all, seen) = self.images.entry(key).or_insert_with(|| (trace, HashSet::new()));
        let is_new = |event: &Event| seen.insert((event.location.clone(), event.name.clone()));
        all.events.extend(events.into_iter().filter(is_new));
    }

    fn traces(self) -> Vec<Trace> {
        self.images.into_values().map(|(trace, _)| trace).collect()
    }
}

/// The functions of an ELF image of any processor that is 64-bit and little-endian.
///
/// # Errors
/// Unsupported images.
pub(crate) fn functions_of<'data>(
    path: &Path,
    bytes: &'data [u8],
) -> Result<(ElfFile<'data>, FunctionTable<'data>)> {
    let file = ElfFile::parse_any_processor(bytes).map_err(|error: Error| error.in_file(path))?;
    let functions = ElfFunctions::collect(&file).map_err(|error| error.in_file(path))?.table;
    Ok((file, functions))
}
