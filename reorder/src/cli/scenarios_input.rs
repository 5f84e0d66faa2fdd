//! The flags that select an image, its scenarios and the memory models, with what `reorder.toml` adds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::talk::Talk;
use crate::cli::traces_input::TracesInput;
use reorder_base::error::{Error, Result};
use reorder_image::functions::FunctionTable;
use reorder_layout::configuration::{ConfigurationFile, Document};
use reorder_layout::memory::{self, MemoryModel};
use reorder_layout::opened::OpenedImage;
use reorder_layout::scenario::ScenarioSources;
use reorder_layout::simulate::Placement;
use reorder_system::mapped::{MappedImage, map_image};
use reorder_trace::{ResolvedTraces, TraceFiles};
use reorder_verify::{AddressMoves, recover_moves_for};

/// Scenarios and memory models.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScenariosInput {
    #[command(flatten)]
    traces: TracesInput,
    /// Use only this scenario of reorder.toml; repeatable
    #[arg(long = "scenario", value_name = "NAME", conflicts_with = "paths")]
    scenarios: Vec<String>,
    #[arg(long = "model", value_name = "NAME", help = models_help())]
    models: Vec<String>,
    #[command(flatten)]
    configuration: ConfigurationArguments,
    /// Architecture to use from a universal Mach-O file, such as arm64
    #[arg(long = "arch", value_name = "NAME")]
    architecture: Option<String>,
}

fn models_help() -> String {
    format!(
        "Memory models to simulate: {}, or one of reorder.toml; repeatable [default: those of the systems that run the image; \
         for Mach-O ios-16k on arm64, macos-4k on x86_64]",
        memory::known_names()
    )
}

/// Where the configuration is.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigurationArguments {
    /// Use this reorder.toml instead of the nearest one in this directory or above; `off` for none
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The configuration as read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured {
    /// The file, for paths and messages.
    pub file: ConfigurationFile,
    /// Its tables.
    pub document: Document,
}

impl ConfigurationArguments {
    /// Reads `reorder.toml`, if there is one.
    ///
    /// # Errors
    /// See [`ConfigurationFile::find`] and [`ConfigurationFile::document`].
    pub(crate) fn read(&self, talk: &Talk) -> Result<Configured> {
        let directory = std::env::current_dir().map_err(|error| Error::io(Path::new("."), error))?;
        let file = ConfigurationFile::find(self.file.as_deref(), &directory, "--config FILE")?;
        if let Some(note) = &file.note {
            talk.warning(note, None);
        }
        let document = file.document()?;
        Ok(Configured { file, document })
    }
}

/// Traces with the scenarios they belong to.
#[derive(Clone, Debug)]
pub(crate) struct Starts {
    /// All of them.
    pub traces: ResolvedTraces,
    /// For [`ScenarioSources::group`].
    pub sources: ScenarioSources,
}

/// An image that was made from another one.
pub(crate) struct NewImage {
    path: PathBuf,
    bytes: MappedImage,
    /// Where code of the other one is in it.
    pub moves: AddressMoves,
}

impl NewImage {
    /// Where code of `old` runs in it.
    ///
    /// # Errors
    /// Damaged tables.
    pub(crate) fn placement<'image>(
        &'image self,
        old: &'image OpenedImage<'image>,
    ) -> Result<Placement<'image>> {
        Placement::of_image(old, &self.bytes, &self.moves).map_err(|error| error.in_file(&self.path))
    }
}

impl ScenariosInput {
    /// Reads `reorder.toml`, if there is one.
    ///
    /// # Errors
    /// See [`ConfigurationArguments::read`].
    pub(crate) fn configured(&self, talk: &Talk) -> Result<Configured> {
        self.configuration.read(talk)
    }

    /// The image at `path`; of a universal file the requested one.
    ///
    /// # Errors
    /// See [`OpenedImage::parse`].
    pub(crate) fn open<'data>(&self, path: &Path, bytes: &'data [u8]) -> Result<OpenedImage<'data>> {
        OpenedImage::parse(bytes, self.architecture.as_deref()).map_err(|error| error.in_file(path))
    }

    /// As [`Self::open`], with the functions that the traces know, where the image describes few of its own.
    ///
    /// # Errors
    /// As there; unreadable traces, unknown scenarios.
    pub(crate) fn open_traced<'data>(
        &self,
        path: &Path,
        bytes: &'data [u8],
        configured: &Configured,
    ) -> Result<OpenedImage<'data>> {
        let image = self.open(path, bytes)?;
        if !image.is_little_described() {
            return Ok(image);
        }
        let learned = self.input(&self.sources(configured)?).learned(path, &image.identity(path))?;
        image.with_learned(learned).map_err(|error| error.in_file(path))
    }

    fn input(&self, sources: &ScenarioSources) -> TracesInput {
        TracesInput { paths: sources.paths(), companions: self.traces.companions.clone() }
    }

    /// The image at `new`, if there is one, and where the functions of that image are in it.
    ///
    /// # Errors
    /// An unreadable file at `new`, or one that is not the same image with functions moved.
    pub(crate) fn new_image(
        &self,
        path: &Path,
        bytes: &[u8],
        new: Option<&Path>,
    ) -> Result<Option<NewImage>> {
        let opened = |new| {
            let new_bytes = map_image(new)?;
            let moves = recover_moves_for(bytes, &new_bytes, self.architecture.as_deref());
            let moves = moves.map_err(|error| {
                let hint = format!("give an image that `reorder apply` made from {}", path.display());
                error.in_file(new).with_hint(hint)
            })?;
            Ok(NewImage { path: new.to_owned(), bytes: new_bytes, moves })
        };
        new.map(opened).transpose()
    }

    /// The scenarios and the memory models that flags name.
    pub(super) fn names(&self) -> [&[String]; 2] {
        [&self.scenarios, &self.models]
    }

    /// The traces in terms of the functions of `image`, the file at `path`: those of `-t`, otherwise those of the scenarios
    /// of `reorder.toml`. Warns about what was not found.
    ///
    /// # Errors
    /// No traces, unreadable ones, traces of other images, traces without an order of execution, unknown scenarios.
    pub(crate) fn resolve(
        &self,
        path: &Path,
        image: &OpenedImage<'_>,
        functions: &FunctionTable<'_>,
        configured: &Configured,
        talk: &Talk,
    ) -> Result<Starts> {
        let sources = self.sources(configured)?;
        let traces = self.input(&sources).resolve(path, &image.identity(path), functions, talk)?;
        if traces.traces.is_empty() {
            return Err(Error::usage("profiles without an order of execution cannot be simulated")
                .with_hint(format!(
                    "record a run: reorder record -o traces -- {} ARGUMENTS",
                    path.display()
                )));
        }
        let found = sources.group(&traces);
        if let Some(name) = sources.named.keys().find(|name| !found.iter().any(|one| one.name == **name)) {
            return Err(Error::usage(format!(
                "the scenario {name} has no recorded run of {}",
                path.display()
            ))
            .with_hint("record it: reorder record; or take it out of reorder.toml"));
        }
        drop(found);
        Ok(Starts { traces, sources })
    }

    /// The files that are read for the traces, each kind with its name in messages.
    ///
    /// # Errors
    /// Unknown scenarios, unreadable directories and lists of traces.
    pub(crate) fn files(&self, configured: &Configured) -> Result<Vec<(&'static str, Vec<PathBuf>)>> {
        let mut files = self.input(&self.sources(configured)?).files()?;
        files.push(("the configuration", vec![configured.file.path.clone()]));
        Ok(files)
    }

    /// The files that [`Self::resolve`] reads.
    ///
    /// # Errors
    /// Unknown scenarios, unreadable directories and lists of paths.
    pub(crate) fn trace_files(&self, configured: &Configured) -> Result<Vec<PathBuf>> {
        let found = TraceFiles::find(&self.sources(configured)?.paths())?;
        Ok(found.paths().map(Path::to_path_buf).collect())
    }

    fn sources(&self, configured: &Configured) -> Result<ScenarioSources> {
        if !self.traces.paths.is_empty() {
            return Ok(ScenarioSources { unnamed: self.traces.paths.clone(), ..ScenarioSources::default() });
        }
        let tables = &configured.document.scenario;
        if let Some(unknown) = self.scenarios.iter().find(|name| !tables.contains_key(*name)) {
            let known: Vec<&str> = tables.keys().map(String::as_str).collect();
            return Err(Error::usage(format!("no scenario is called {unknown}"))
                .with_hint(format!("reorder.toml has: {}", known.join(", "))));
        }
        let is_wanted = |name: &&String| self.scenarios.is_empty() || self.scenarios.contains(*name);
        let named = tables.iter().filter(|(name, table)| is_wanted(name) && !table.traces.is_empty());
        let located = |path: &PathBuf| configured.file.located(path);
        let named = named.map(|(name, table)| (name.clone(), table.traces.iter().map(located).collect()));
        let named: BTreeMap<String, Vec<PathBuf>> = named.collect();
        let mut owners: BTreeMap<PathBuf, &str> = BTreeMap::new();
        for (name, path) in named.iter().flat_map(|(name, paths)| paths.iter().map(move |path| (name, path)))
        {
            let place = path.canonicalize().unwrap_or_else(|_| path.clone());
            if let Some(other) = owners.insert(place, name).filter(|other| other != name) {
                let cause = format!("[scenario.{other}] and [scenario.{name}] have the same traces");
                return Err(configured
                    .file
                    .mistake(&cause, "give each traces of its own, or leave out one of them"));
            }
        }
        Ok(ScenarioSources { named, unnamed: Vec::new() })
    }

    /// The requested memory models: by flags, otherwise `configured_names`, otherwise the default ones of `image`.
    ///
    /// # Errors
    /// Unknown names, and impossible models in `reorder.toml`.
    pub(crate) fn models(
        &self,
        configured_names: Option<&[String]>,
        image: &OpenedImage<'_>,
        configured: &Configured,
    ) -> Result<Vec<MemoryModel>> {
        let custom = configured.document.models().map_err(|error| error.in_file(&configured.file.path))?;
        let flags = (!self.models.is_empty()).then_some(self.models.as_slice());
        match flags.or(configured_names) {
            Some(names) => memory::find(names, &custom),
            None => Ok(image.default_models()),
        }
    }
}
