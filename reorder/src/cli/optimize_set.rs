//! `reorder optimize --libraries`: the whole pipeline for a program and the libraries that it loads at startup.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::applied::status_of;
use crate::cli::apply_elf::ElfRequest;
use crate::cli::arrangement::ArrangementArguments;
use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::moved_set::{LeftLibrary, MovedImage, MovedSet};
use crate::cli::optimize::{OptimizeArguments, Recording, Trials, check_trial, measure_runs, record_runs};
use crate::exit_status::ExitStatus;
use crate::optimize_report::SimulatedPages;
use crate::optimize_set_report::{OptimizeSetReport, OptimizedImage, OptimizedSetRun, SetOutcome};
use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::memory;
use reorder_layout::simulate::{ImageNames, Placement, simulate};
use reorder_run::check::Version;
use reorder_run::loaded_libraries::libraries_of_program;
use reorder_run::measure::{LibraryPair, Measurement};
use reorder_run::record;
use reorder_run::stop_rule::StopRule;
use reorder_system::interruption::Interruption;
use reorder_system::mapped::map_image;
use reorder_trace::{ImageIdentity, Trace, executed_blocks, resolve};
use reorder_verify::recover_moves;

/// Records, moves, proves, checks and measures them together, and writes them to the directory of the output.
///
/// # Errors
/// As for the program alone; a directory that holds one of the inputs, or in which the loader would not find the set.
pub(super) fn run(
    arguments: &OptimizeArguments,
    context: &Context,
    (runs, stop): (Vec<Vec<OsString>>, StopRule),
) -> Result<ExitStatus> {
    let program = &arguments.image;
    let directory = arguments.output.as_deref().unwrap_or(Path::new("."));
    let layout = arguments.layout.kind().ok_or_else(|| {
        Error::usage("--layout auto compares the layouts of one image")
            .with_hint("name one for all libraries: --layout functions, blocks or both")
    })?;
    arguments.relocate.check_map(false)?;
    // Before anything runs: what cannot be written later.
    prepare(directory)?;
    let mapped = map_image(program)?;
    let paths: Vec<PathBuf> =
        libraries_of_program(program, &mapped)?.into_iter().map(|library| library.path).collect();

    // Dropped after all files: a signal that ended this process earlier would leave them where they are.
    let _interruption = Interruption::note();
    let recordings = record_runs(arguments, context, &paths, (runs, &stop))?;
    let kept = tempfile::tempdir().map_err(|error| Error::io(&std::env::temp_dir(), error))?;
    for recording in &recordings {
        record::write_traces(kept.path(), &recording.traces)?;
    }

    let arrangement =
        ArrangementArguments::of_traces(vec![kept.path().to_path_buf()], arguments.order.clone());
    let options = arguments.relocate.options();
    let request = ElfRequest { arrangement: &arrangement, options, with_map: false, clones: None, layout };
    let mut set = MovedSet::make((program, mapped), directory, &request, context)?;
    if !arguments.keep_names {
        set.place_names(context)?;
    }
    let set = set;
    let moved = set.moved.iter().filter(|image| !image.has_only_names);
    let images = moved.map(|image| optimized(image, &recordings)).collect::<Result<Vec<_>>>()?;
    let only_names_placed = set.moved.len() - images.len();

    let runs: Vec<_> =
        recordings.iter().map(|recording| (recording.shown.as_str(), recording.arguments.clone())).collect();
    let checks = check_trial(arguments, context, &set.trial()?, (&runs, &stop))?;
    let measured = measured(&set, arguments, context, (&runs, &stop))?;
    let inputs = KeptFiles::default().reads("standard input", arguments.stdin.input.as_deref());
    set.write(inputs)?.iter().for_each(|warning| context.talk.warning(&warning.to_string(), None));
    let lacks = set.moved.iter().flat_map(|image| &image.applied.warnings);
    lacks.for_each(|warning| context.talk.warning(warning, None));

    let results = recordings.iter().zip(checks).zip(measured).map(|((recording, checked), measured)| {
        OptimizedSetRun { arguments: recording.shown.clone(), checked, measured }
    });
    let outcome = SetOutcome { images, only_names_placed, left: set.left() };
    context.print(&OptimizeSetReport::new(set.start()?, directory, outcome, results.collect()))?;
    Ok(status_of(&set.rejected))
}

/// Refuses a directory that is a file, or that is in none.
fn prepare(directory: &Path) -> Result<()> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    if directory.exists() && !directory.is_dir() {
        return Err(Error::usage("this is a file, and --libraries writes a directory")
            .in_file(directory)
            .with_hint("name a directory: -o DIR"));
    }
    match parent.filter(|parent| !parent.is_dir()) {
        Some(parent) => Err(Error::usage("the directory that it would be in does not exist")
            .in_file(directory)
            .with_hint(format!("mkdir -p {}", parent.display()))),
        None => Ok(()),
    }
}

/// The pages that recorded runs need of one image, before and after.
fn optimized(image: &MovedImage, recordings: &[Recording]) -> Result<OptimizedImage> {
    let in_image = |error: Error| error.in_file(&image.path);
    let file = ElfFile::parse(&image.original).map_err(in_image)?;
    let functions = ElfFunctions::collect(&file).map_err(in_image)?;
    let traces: Vec<Trace> = recordings
        .iter()
        .flat_map(|recording| recording.traces.iter().map(|recorded| recorded.trace.clone()))
        .collect();
    let identity = ImageIdentity::of(&image.path, file.build_id());
    let traces = resolve(&traces, &functions.table, &identity)?;
    let moves = recover_moves(&image.original, &image.applied.bytes)?;
    let placement = Placement::of_elf(&file, &image.applied.bytes, &moves)?;
    let has_blocks = traces.traces.iter().any(|trace| !trace.blocks.is_empty());
    let executed = has_blocks.then(|| executed_blocks(&traces.traces, &file, &functions.table));
    let models = memory::default_for_elf();
    let simulation = simulate(
        ImageNames::of(&image.path, Some(&image.output)),
        &functions.table,
        &traces,
        executed.as_ref(),
        Some(&placement),
        models.get(..1).unwrap_or_default(),
    );
    let summary = &image.applied.summary;
    Ok(OptimizedImage {
        image: image.path.display().to_string(),
        output: image.output.display().to_string(),
        functions: summary.functions as u64,
        functions_moved: summary.functions_moved as u64,
        functions_pinned: summary.pinned.len() as u64,
        pages: SimulatedPages::of(&simulation),
        traded: image.applied.traded.clone(),
    })
}

/// Cold starts of the program with copies of the old and of the new images, before these are written; none where measuring
/// failed.
///
/// # Errors
/// A new program that crashes or ends differently.
fn measured(
    set: &MovedSet<'_>,
    arguments: &OptimizeArguments,
    context: &Context,
    (runs, stop): (&[(&str, Vec<OsString>)], &StopRule),
) -> Result<Vec<Option<Measurement>>> {
    let Some(program) = set.moved.first().filter(|_| arguments.measure_runs > 0) else {
        return Ok(runs.iter().map(|_| None).collect());
    };
    let trial = set.trial()?;
    trial.place(Version::Result)?;
    let folder = trial.program().parent().unwrap_or(Path::new("."));
    let pair = |image: &MovedImage| {
        let name = image.output.file_name().unwrap_or_default().to_os_string();
        LibraryPair { old: image.path.clone(), new: folder.join(&name), name }
    };
    // Those that stay are copied as well: only the page cache of a copy can be emptied.
    // One that is asked for by a path is not found by a name.
    let unmoved = |library: &LeftLibrary| {
        let name = library.name.as_ref()?.into();
        Some(LibraryPair { old: library.path.clone(), new: library.path.clone(), name })
    };
    let libraries = set.moved.iter().skip(1).map(pair).chain(set.left.iter().filter_map(unmoved)).collect();
    let trials = Trials { program: trial.program(), output: &program.output, libraries };
    measure_runs(arguments, context, &trials, (runs, stop))
}
