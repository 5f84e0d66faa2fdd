//! The flag that names traces, and how they are resolved to functions of one image.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::talk::Talk;
use crate::hints;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_trace::entered_functions;
use reorder_trace::{Companions, ImageIdentity, Note, ResolvedTraces, Resolver, Trace, TraceFiles};

/// Where the traces are.
#[derive(Args, Clone, Debug)]
pub(crate) struct TracesInput {
    /// Trace or profile files of any known system, directories of them, or @FILE with one path per line
    #[arg(short = 't', long = "traces", value_name = "TRACES", num_args = 1..)]
    pub paths: Vec<PathBuf>,

    /// Files needed to interpret them.
    #[command(flatten)]
    pub companions: CompanionFiles,
}

/// Files without which trace files cannot be interpreted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CompanionFiles {
    /// File without which the traces cannot be interpreted: the instrumented program, its debug file or .dSYM, a map of
    /// names; repeatable
    #[arg(long = "companion", value_name = "FILE")]
    companions: Vec<PathBuf>,
}

impl CompanionFiles {
    /// As given.
    #[must_use]
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.companions
    }

    /// All traces of `paths`, for `image` if there is one; warns about what was left out or is unreliable.
    ///
    /// # Errors
    /// Unreadable files, and paths without a single event.
    pub(crate) fn read(&self, paths: &[PathBuf], image: Option<&Path>, talk: &Talk) -> Result<Vec<Trace>> {
        let mut traces = Vec::new();
        let notes = self.visit(paths, image, |trace| trace, |trace| traces.push(trace))?;
        tell_notes(&notes, talk);
        Ok(traces)
    }

    /// [`TraceFiles::read`] with these companions, followed by the image that is to be laid out, which may be the
    /// instrumented one.
    ///
    /// # Errors
    /// As there, and unreadable companions.
    pub(crate) fn visit<Worked: Send>(
        &self,
        paths: &[PathBuf],
        image: Option<&Path>,
        work: impl Fn(Trace) -> Worked + Sync,
        sink: impl FnMut(Worked),
    ) -> Result<Vec<Note>> {
        let image = image.map(Path::to_path_buf);
        let companions: Vec<PathBuf> = self.companions.iter().cloned().chain(image).collect();
        TraceFiles::find(paths)?.read(&Companions::open(&companions)?, work, sink)
    }
}

impl TracesInput {
    /// The files that are read for the traces, each kind with its name in messages.
    ///
    /// # Errors
    /// Unreadable directories and lists of traces.
    pub(crate) fn files(&self) -> Result<Vec<(&'static str, Vec<PathBuf>)>> {
        let listed = |path: &PathBuf| Some(PathBuf::from(path.to_str()?.strip_prefix('@')?));
        Ok(vec![
            ("a trace file", TraceFiles::find(&self.paths)?.paths().map(Path::to_path_buf).collect()),
            ("a list of traces", self.paths.iter().filter_map(listed).collect()),
            ("a companion of the traces", self.companions.files().to_vec()),
        ])
    }

    /// The `functions` of `file`, the image at `path`, with those that the traces know where it describes few.
    ///
    /// # Errors
    /// Unreadable traces, malformed tables.
    pub(crate) fn with_learned<'data>(
        &self,
        functions: ElfFunctions<'data>,
        (path, file): (&Path, &ElfFile<'data>),
    ) -> Result<ElfFunctions<'data>> {
        if functions.found.is_empty() {
            return Ok(functions);
        }
        let learned = self.learned(path, &ImageIdentity::of(path, file.build_id()))?;
        functions.with_learned(file, learned)
    }

    /// The functions that traces of exactly the image called `identity`, at `path`, know by address and size, ascending.
    ///
    /// # Errors
    /// Unreadable traces.
    pub(crate) fn learned(&self, path: &Path, identity: &ImageIdentity) -> Result<Vec<Range<Address>>> {
        let mut learned = BTreeSet::new();
        if self.paths.is_empty() {
            return Ok(Vec::new());
        }
        // Notes are told when the traces are resolved.
        self.companions.visit(
            &self.paths,
            Some(path),
            |trace| entered_functions(&trace, identity),
            |entered| learned.extend(entered),
        )?;
        Ok(learned.into_iter().map(|(start, end)| start..end).collect())
    }

    /// The traces in terms of the functions of the image at `path`, called `identity`; warns about what was not found.
    ///
    /// # Errors
    /// No traces, unreadable ones, and traces of other images.
    pub(crate) fn resolve(
        &self,
        path: &Path,
        identity: &ImageIdentity,
        functions: &FunctionTable<'_>,
        talk: &Talk,
    ) -> Result<ResolvedTraces> {
        if self.paths.is_empty() {
            return Err(Error::usage("no traces are given").with_hint(format!(
                "add -t TRACES; record them first: reorder record -o traces -- {} ARGUMENTS",
                path.display()
            )));
        }
        let resolver = Resolver::new(functions, identity);
        let mut resolutions = Vec::new();
        // Resolved file by file, because events take many times the memory of the functions that they become.
        let notes = self.companions.visit(
            &self.paths,
            Some(path),
            |trace| resolver.resolve(&trace),
            |resolution| resolutions.push(resolution),
        )?;
        tell_notes(&notes, talk);
        let resolved = resolver.collect(resolutions.into_iter())?;
        tell_coverage(&resolved, path, talk);
        Ok(resolved)
    }
}

/// Reports how much of the traces was found, and what was not.
pub(super) fn tell_coverage(resolved: &ResolvedTraces, path: &Path, talk: &Talk) {
    let coverage = &resolved.coverage;
    let steps: Vec<String> =
        coverage.found.iter().map(|(step, events)| format!("{events} by {}", step.name())).collect();
    talk.detail(&format!(
        "{} of {} events found: {}",
        coverage.resolved(),
        coverage.events,
        steps.join(", ")
    ));
    let missing = coverage.events - coverage.resolved();
    if missing > 0 {
        let examples: Vec<String> = coverage.missing.iter().take(EXAMPLES).map(ToString::to_string).collect();
        let more = if coverage.missing.len() > EXAMPLES { ", …; -v lists all" } else { "" };
        let cause = format!(
            "{missing} of {} events name no function of {}: {}{more}",
            coverage.events,
            path.display(),
            examples.join(", ")
        );
        talk.warning(&cause, Some("record this build, so that functions are found by address"));
        coverage.missing.iter().for_each(|missing| talk.detail(&format!("not found: {missing}")));
    }
    for (image, traces) in &coverage.other_images {
        talk.detail(&format!("{traces} traces of {image} are left out: another image"));
    }
    if resolved.traces.is_empty() {
        talk.warning(
            "the profiles hold no order of execution: functions are placed by how often they ran",
            Some("to order by startup, record traces: reorder record -o traces -- PROGRAM ARGUMENTS"),
        );
    }
}

/// Functions named in the warning about those that were not found.
const EXAMPLES: usize = 10;

/// Warns about what was left out of trace files or is unreliable. A problem that many files share is explained once.
pub(super) fn tell_notes(notes: &[Note], talk: &Talk) {
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for note in notes {
        let times = told.entry(&note.message).or_default();
        *times += 1;
        match *times <= SAME_NOTES {
            true => talk.warning(&note.to_string(), note.hint.as_ref().map(hints::text).as_deref()),
            false => talk.detail(&note.to_string()),
        }
    }
    for (message, times) in told.into_iter().filter(|(_, times)| *times > SAME_NOTES) {
        talk.warning(&format!("{} more files: {message}", times - SAME_NOTES), Some("-v names them"));
    }
}

/// Files named for the same problem.
const SAME_NOTES: usize = 3;
