//! The flags that say where functions are to go.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::previous::PreviousArguments;
use crate::cli::talk::Talk;
use crate::cli::traces_input::{CompanionFiles, TracesInput};
use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_layout::arguments::LayoutArguments;
use reorder_layout::order_file;
use reorder_layout::{Layout, LayoutRequest, Memory, Traded};
use reorder_relocate::apply::Arrangement;
use reorder_relocate::layout_map::LayoutMap;
use reorder_trace::{ImageIdentity, ResolvedTrace, ResolvedTraces};

/// An order from traces, from a file, or from a strategy that needs neither.
#[derive(Args, Clone, Debug)]
pub struct ArrangementArguments {
    #[command(flatten)]
    traces: TracesInput,
    /// Order file (one symbol or address per line), or a map written by --map
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "strategy", "seed", "memory", "early", "effort", "unseen", "compress", "previous"])]
    order: Option<PathBuf>,
    /// The layout to stay close to.
    #[command(flatten)]
    pub previous: PreviousArguments,
    #[command(flatten)]
    layout: LayoutArguments,
}

/// What the flags ask for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Functions, the lowest address first, how many of them recorded runs need, and what was traded for size.
    Order(Vec<FunctionIndex>, usize, Traded),
    /// Exact places.
    Map(LayoutMap),
}

impl Wanted {
    /// The library's form.
    pub fn arrangement(&self) -> Arrangement<'_> {
        match self {
            Self::Order(order, needed, _) => Arrangement::Needed(order, *needed),
            Self::Map(map) => Arrangement::Map(map),
        }
    }

    /// What was traded for size.
    pub fn traded(&self) -> Traded {
        match self {
            Self::Order(_, _, traded) => traded.clone(),
            Self::Map(_) => Traded::default(),
        }
    }
}

impl ArrangementArguments {
    /// A layout by the traces at `paths`.
    pub(crate) fn of_traces(paths: Vec<PathBuf>, layout: LayoutArguments) -> Self {
        Self {
            traces: TracesInput { paths, companions: CompanionFiles::default() },
            order: None,
            previous: PreviousArguments::default(),
            layout,
        }
    }

    /// The files that are read to find out where functions go, each kind with its name in messages.
    ///
    /// # Errors
    /// Unreadable directories and lists of traces.
    pub fn files(&self) -> Result<Vec<(&'static str, Vec<PathBuf>)>> {
        let mut files = self.traces.files()?;
        files.push(("the order file", self.order.iter().cloned().collect()));
        files.push(("the last release", self.previous.file().into_iter().collect()));
        Ok(files)
    }

    /// The description of the layout, for `default_memory` unless the flags name another.
    pub fn request(&self, default_memory: Memory) -> LayoutRequest {
        self.layout.request(default_memory)
    }

    /// The map, if one is given in place of an order.
    ///
    /// # Errors
    /// An unreadable or damaged file.
    pub fn map(&self) -> Result<Option<LayoutMap>> {
        let Some(path) = &self.order else { return Ok(None) };
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
        let map = LayoutMap::is_map(&bytes).then(|| LayoutMap::parse(&bytes));
        map.transpose().map_err(|error| error.in_file(path))
    }

    /// An order file or a map is given.
    pub(crate) fn has_order(&self) -> bool {
        self.order.is_some()
    }

    /// The traces of the image at `path`.
    ///
    /// # Errors
    /// No traces, unreadable files.
    pub fn traces(
        &self,
        path: &Path,
        identity: &ImageIdentity,
        functions: &FunctionTable<'_>,
        talk: &Talk,
    ) -> Result<ResolvedTraces> {
        self.traces.resolve(path, identity, functions, talk)
    }

    /// See [`TracesInput::with_learned`].
    ///
    /// # Errors
    /// Unreadable files, malformed tables.
    pub fn with_learned<'data>(
        &self,
        functions: ElfFunctions<'data>,
        image: (&Path, &ElfFile<'data>),
    ) -> Result<ElfFunctions<'data>> {
        self.traces.with_learned(functions, image)
    }

    /// Reads the files that the flags name; `lay_out` computes an order if they request one, for the memory model
    /// `default_memory` of the image's systems unless they name another.
    ///
    /// # Errors
    /// No traces where the strategy needs them, unreadable files, an order without a known function.
    pub fn wanted(
        &self,
        path: &Path,
        identity: &ImageIdentity,
        functions: &FunctionTable<'_>,
        default_memory: Memory,
        talk: &Talk,
        lay_out: impl FnOnce(&[ResolvedTrace], &LayoutRequest) -> Result<Layout>,
    ) -> Result<Wanted> {
        if let Some(order) = &self.order {
            return read_order(order, functions, talk);
        }
        let request = self.layout.request(default_memory);
        let traces = match request.strategy.needs_traces() {
            true => self.traces.resolve(path, identity, functions, talk)?,
            false => ResolvedTraces::default(),
        };
        let mut layout = lay_out(&traces.traces, &request)?.with_hot(&traces.counts, functions);
        // Functions that the strategy did not place keep their order after the others.
        layout.order.truncate(layout.chosen);
        Ok(Wanted::Order(layout.order, layout.needed, layout.traded))
    }
}

fn read_order(path: &Path, functions: &FunctionTable<'_>, talk: &Talk) -> Result<Wanted> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    if LayoutMap::is_map(&bytes) {
        return LayoutMap::parse(&bytes).map(Wanted::Map).map_err(|error| error.in_file(path));
    }
    let listed = order_file::read::read(&bytes, functions);
    let coverage = &listed.coverage;
    let missing = coverage.unknown + coverage.ambiguous;
    if listed.functions.is_empty() {
        return Err(Error::usage(format!(
            "none of the {} lines names a function of the image",
            coverage.lines
        ))
        .in_file(path)
        .with_hint(
            "for a stripped image list addresses: reorder order IMAGE -t TRACES --addresses -o FILE",
        ));
    }
    if let Some(stated) = coverage.stated_lines {
        let cause = format!(
            "{}: {} lines, written with {stated}: it is cut, or was edited",
            path.display(),
            coverage.lines
        );
        talk.warning(&cause, Some("write it again: reorder order IMAGE -t TRACES -o FILE"));
    }
    if missing > 0 {
        let cause = format!(
            "{}: {missing} of {} lines name no single function: {}",
            path.display(),
            coverage.lines,
            coverage.examples.join(", ")
        );
        talk.warning(&cause, None);
    }
    if coverage.duplicate > 0 {
        talk.warning(
            &format!("{}: {} lines repeat an earlier one", path.display(), coverage.duplicate),
            None,
        );
    }
    let needed = listed.functions.len();
    Ok(Wanted::Order(listed.functions, needed, Traded::default()))
}
