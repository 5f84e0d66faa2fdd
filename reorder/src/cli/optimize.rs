//! `reorder optimize`: the whole pipeline, from a finished program to a proven and measured one.
//!
//! Each phase takes the results of earlier ones. Guarantee: the output appears under its name only after it was proven
//! and has behaved like the input when run with the recorded arguments.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::check_args::{check_all, words};
use crate::cli::context::Context;
use crate::cli::ending_args::{EndingArguments, InputArgument, telling_when_long, warn_of_missed_text};
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::optimize_layout::{LaidOut, LayoutChoice, Recorded, laid_out};
use crate::cli::optimize_page::pending_page;
use crate::cli::optimize_set;
use crate::cli::previous::PreviousArguments;
use crate::cli::relocate_args::RelocateArguments;
use crate::cli::report::PAGE_NAME;
use crate::exit_status::ExitStatus;
use crate::hints;
use crate::optimize_report::{OptimizeReport, OptimizedRun, Placed};
use crate::packages;
use crate::warnings;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_base::hint::{Hint, RecordedUse, RunPurpose};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_layout::Memory;
use reorder_layout::arguments::LayoutArguments;
use reorder_layout::simulate::ImageNames;
use reorder_relocate::warning::Warning;
use reorder_report::table::counted;
use reorder_run::check::{CheckRequest, CheckedRun, Trial, TrialFile};
use reorder_run::measure::{self, LibraryPair, MeasureRequest, Measurement};
use reorder_run::processor;
use reorder_run::record::{self, RecordRequest, RecordedTrace};
use reorder_run::runnable;
use reorder_run::stop_rule::StopRule;
use reorder_system::interruption::Interruption;
use reorder_system::mapped::{MappedImage, map_image};
use reorder_system::stops::Ending;
use reorder_system::write::{self, Pending, ReplaceOptions, together};
use reorder_trace::{ImageIdentity, ResolvedTraces, entered_functions, resolve};
use reorder_verify::recover_moves;

const EXAMPLES: &str = "\
Examples:
  reorder optimize /usr/bin/git -o git.fast --run status --run 'log --oneline'
  reorder optimize ./program -o program.fast --run '--first-screen \"my file\"' --keep-traces traces
  reorder optimize ./program --in-place --run '' --measure-runs 0
  reorder optimize ./server -o server.fast --run '--port 8080' --until 'listening'
  reorder optimize /usr/bin/php -o php.fast --run '' --stdin page.php
  reorder optimize /usr/bin/gdb --libraries -o gdb.fast --run --version";

/// Record runs of a program, move its functions, prove the result and measure the gain
///
/// The program is run several times with each set of arguments, in the current directory: choose runs that can be
/// repeated. IMAGE is not modified unless --in-place is given. Mach-O programs cannot run here: use `reorder apply`
/// with profiles recorded elsewhere.
#[derive(Args, Clone, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct OptimizeArguments {
    /// The program: a path, or a name that is looked up in PATH as by `reorder record`
    #[arg(value_name = "IMAGE")]
    pub(super) image: PathBuf,
    /// Write the result to this file, or to this directory with --libraries
    #[arg(short, long, value_name = "FILE", required_unless_present = "in_place")]
    pub(super) output: Option<PathBuf>,
    /// Replace IMAGE itself, atomically
    #[arg(long, conflicts_with = "output")]
    in_place: bool,
    /// Lay out the libraries that the program loads at startup as well, and write them all to the directory -o
    #[arg(long, requires = "output", conflicts_with_all = ["in_place", "report", "previous"])]
    libraries: bool,
    /// With --libraries: leave the names of symbols where they are. By default those that the loader looks up are placed next
    /// to each other
    #[arg(long, requires = "libraries")]
    pub(super) keep_names: bool,
    /// Arguments of a run to optimize for, quoted as for a shell; repeatable
    #[arg(long = "run", value_name = "ARGS", required = true, allow_hyphen_values = true)]
    runs: Vec<String>,
    /// Number of recordings of each run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    record_runs: u32,
    /// Executions of the program for each recording, as in `reorder record --passes`: for programs that compile or load in the
    /// background
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    record_passes: u32,
    #[command(flatten)]
    pub(super) order: LayoutArguments,
    #[command(flatten)]
    previous: PreviousArguments,
    /// What is laid out; all but `functions` record the basic blocks that run
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(super) layout: LayoutChoice,
    #[command(flatten)]
    pub(super) relocate: RelocateArguments,
    /// Keep the traces in this directory
    #[arg(long, value_name = "DIR")]
    pub(super) keep_traces: Option<PathBuf>,
    /// Measured executions of each program for each run; 0 measures nothing
    #[arg(long, value_name = "N", default_value_t = 11)]
    pub(super) measure_runs: usize,
    /// Also write an HTML page that shows the text before and after, as `reorder report` does
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    ending: EndingArguments,
    #[command(flatten)]
    pub(super) stdin: InputArgument,
    /// Kill a run that takes longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) time_limit: u64,
}

/// One set of arguments and its traces.
pub struct Start {
    /// The arguments as given.
    pub shown: String,
    arguments: Vec<OsString>,
    /// Its recordings.
    pub traces: ResolvedTraces,
}

/// Runs all phases and prints one table.
///
/// # Errors
/// Refused images, runs that cannot be recorded, outputs that cannot be proven or end differently; nothing is
/// written then.
pub fn run(arguments: &OptimizeArguments, context: &Context) -> Result<ExitStatus> {
    let found = OptimizeArguments { image: located(arguments)?, ..arguments.clone() };
    let (arguments, image) = (&found, &found.image);
    let runs = arguments.runs.iter().map(|run| words("--run", run)).collect::<Result<Vec<_>>>()?;
    arguments.stdin.check()?;
    if !arguments.layout.always_moves_functions() {
        arguments.previous.refuse_without_moves()?;
    }
    let stop = arguments.ending.rule()?;
    if let Some(page) = &arguments.report {
        let images = std::iter::once(image).chain(&arguments.output);
        let read = KeptFiles::default().reads("an image", images);
        read.reads("the last release", arguments.previous.file()).writes("page", page, PAGE_NAME)?;
    }
    let last = KeptFiles::default().reads("the last release", arguments.previous.file());
    last.writes("output", arguments.output.as_ref().unwrap_or(image), "give another -o FILE")?;
    runnable::check(image, RecordedUse::Apply)?;
    processor::check_program(image, RunPurpose::Record)?;
    if arguments.libraries {
        return optimize_set::run(arguments, context, (runs, stop));
    }
    let mapped = map_image(image)?;
    let report = optimize(arguments, context, &mapped, (runs, stop)).map_err(|error| error.in_file(image))?;
    if report.total.new_faults > report.total.old_faults {
        context.talk.warning(
            "the new layout needs more pages than the old one",
            Some("record more typical runs with more --run options, or try --strategy first-seen"),
        );
    }
    context.print(&report)?;
    Ok(ExitStatus::Success)
}

/// The program's path. What would be replaced must be named by its path, and a file here goes first.
fn located(arguments: &OptimizeArguments) -> Result<PathBuf> {
    let is_name = arguments.image.components().count() == 1 && !arguments.image.exists();
    match is_name && !arguments.in_place {
        true => record::find_program(arguments.image.as_os_str()),
        false => Ok(arguments.image.clone()),
    }
}

fn optimize(
    arguments: &OptimizeArguments,
    context: &Context,
    mapped: &MappedImage,
    (runs, stop): (Vec<Vec<OsString>>, StopRule),
) -> Result<OptimizeReport> {
    let (talk, image) = (&context.talk, &arguments.image);
    let bytes: &[u8] = mapped;

    // First, so that an image that cannot be moved is refused before anything is run.
    let phase = talk.phase("analyse", 0);
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    arguments.relocate.check_map(false)?;
    arguments.previous.check()?;
    let room = arguments.layout.moves_functions().then(|| Analysis::new(&file, &functions)).transpose()?;
    phase.finish(&counted(functions.table.len() as u64, "function"));

    let recordings = record_runs(arguments, context, &[], (runs, &stop))?;
    let identity = ImageIdentity::of(&arguments.image, file.build_id());
    let traces = recordings.iter().flat_map(|recording| &recording.traces);
    let entered = traces.flat_map(|recorded| entered_functions(&recorded.trace, &identity));
    let functions = functions.with_learned(&file, entered.map(|(start, end)| start..end))?;
    let starts = resolved(arguments, context, &file, &functions.table, recordings)?;

    let request = arguments.order.request(Memory::default());
    let input = Recorded {
        file: &file,
        functions: &functions,
        starts: &starts,
        request: &request,
        previous: &arguments.previous,
    };
    let options = arguments.relocate.options();
    let laid_out = mapped.explaining(laid_out(&input, arguments.layout, room, options, context))?;
    let LaidOut { applied, needed, simulated, traded, memories } = laid_out;

    let output = arguments.output.as_ref().unwrap_or(&arguments.image);
    let package = packages::warning(output);
    package.iter().for_each(|warning| talk.warning(warning, None));
    // Dropped after all files: a signal that ended this process earlier would leave them beside their destinations.
    let _interruption = Interruption::note();
    let mut files = Vec::new();
    if let Some(page) = &arguments.report {
        let names = ImageNames::of(&arguments.image, Some(output));
        let starts: Vec<_> = starts.iter().map(|start| (start.shown.as_str(), &start.traces)).collect();
        let moves = recover_moves(bytes, &applied.bytes)?;
        files.push(pending_page(page, &names, bytes, &functions.table, &starts, (&applied.bytes, &moves))?);
    }
    let checked = check_runs(arguments, context, [bytes, &applied.bytes], output, (&starts, &stop))?;
    let measured = measure_moved(arguments, context, &applied.bytes, output, (&starts, &stop))?;
    let options = ReplaceOptions { in_place: arguments.in_place };
    files.push(Pending::replacing(output, image, &applied.bytes, options)?);
    mapped.unchanged()?;
    together(files)?.iter().for_each(|warning| talk.warning(&warning.to_string(), None));
    // The other warnings name what every layout of blocks costs.
    let of_this_image = |warning: &&Warning| {
        matches!(warning, Warning::PointersAssumed(_) | Warning::ApplicationMustComeFirst)
    };
    let told = applied.summary.warnings.iter().filter(of_this_image);
    told.for_each(|warning| talk.warning(&warnings::text(warning), None));
    if let Some(page) = &arguments.report {
        talk.note(&format!("{} compares both layouts", page.display()));
    }

    let results = simulated.into_iter().zip(checked).zip(measured);
    let runs = starts.iter().zip(results).map(|(start, ((simulated, checked), measured))| OptimizedRun {
        arguments: start.shown.clone(),
        simulated,
        checked,
        measured,
    });
    Ok(OptimizeReport::new(
        &arguments.image,
        output,
        (request.strategy, request.seed),
        Placed { functions: needed, bytes_before: bytes.len(), traded, memories },
        &applied,
        runs.collect(),
    ))
}

/// One set of arguments and what was recorded with it.
pub(super) struct Recording {
    /// The arguments as given.
    pub(super) shown: String,
    pub(super) arguments: Vec<OsString>,
    /// Of all images.
    pub(super) traces: Vec<RecordedTrace>,
}

/// Records every run, of the program and of `images`.
pub(super) fn record_runs(
    arguments: &OptimizeArguments,
    context: &Context,
    images: &[PathBuf],
    (runs, stop): (Vec<Vec<OsString>>, &StopRule),
) -> Result<Vec<Recording>> {
    let phase = context.talk.phase("record", runs.len() as u64);
    let mut first_run = match &arguments.keep_traces {
        Some(directory) => record::next_run(directory)?,
        None => 1,
    };
    let mut recordings = Vec::new();
    let mut executions = 0;
    for (words, shown) in runs.into_iter().zip(&arguments.runs) {
        let request = RecordRequest {
            program: as_path_argument(&arguments.image),
            arguments: words.clone(),
            images: images.to_vec(),
            runs: arguments.record_runs,
            passes: arguments.record_passes,
            first_run,
            discard_output: true,
            blocks: arguments.layout.needs_blocks(),
            input: arguments.stdin.input.clone(),
            watches_input: true,
            stop: stop.clone(),
            time_limit: Some(Duration::from_secs(arguments.time_limit)),
            ends_descendants: true,
            ..RecordRequest::default()
        };
        let outcome = telling_when_long(context, shown, || record::record(&request))
            .map_err(|error| of_run(error, shown))?;
        first_run += arguments.record_runs;
        if outcome.statistics.read_empty_input {
            context.talk.warning(
                &format!("the run `{shown}` reads its standard input, which is empty"),
                Some("give it one with --stdin FILE if that matters"),
            );
        }
        let run = format!("the run `{shown}`");
        if !warn_of_missed_text(&run, stop, &outcome, &context.talk)
            && let Ending::Killed(signal) = outcome.ending
            && !outcome.was_asked_to_end
        {
            let cause = format!("{run} was killed by signal {signal} while it was recorded");
            context.talk.warning(&cause, Some("check whether it runs without recording"));
        }
        if let Some(directory) = &arguments.keep_traces {
            record::write_traces(directory, &outcome.traces)?;
        }
        executions += outcome.statistics.first_executions;
        recordings.push(Recording { shown: shown.clone(), arguments: words, traces: outcome.traces });
        phase.step();
    }
    phase.finish(&format!(
        "{} in {}",
        counted(executions, "first execution"),
        counted(recordings.len() as u64, "run")
    ));
    Ok(recordings)
}

/// Finds the functions of the program that recorded runs execute; says so if these are few.
fn resolved(
    arguments: &OptimizeArguments,
    context: &Context,
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    recordings: Vec<Recording>,
) -> Result<Vec<Start>> {
    let identity = ImageIdentity::of(&arguments.image, file.build_id());
    let start = |recording: Recording| {
        let traces: Vec<_> = recording.traces.into_iter().map(|RecordedTrace { trace, .. }| trace).collect();
        let traces = resolve(&traces, functions, &identity)?;
        Ok(Start { shown: recording.shown, arguments: recording.arguments, traces })
    };
    let starts = recordings.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let own: BTreeSet<_> = starts
        .iter()
        .flat_map(|start| start.traces.traces.iter().flat_map(|trace| trace.functions.iter()))
        .collect();
    if own.len() < FEW_FUNCTIONS && file.section(b".dynamic").is_some() {
        let cause = format!(
            "only {} of its own functions run: the code of this program is in its libraries, which stay as they are",
            own.len()
        );
        let image = arguments.image.display();
        let next =
            format!("lay them out as well: reorder optimize {image} --libraries -o DIR --run ARGUMENTS");
        context.talk.warning(&cause, Some(&next));
    }
    Ok(starts)
}

/// A program that runs fewer functions of its own only calls its libraries.
const FEW_FUNCTIONS: usize = 8;

/// Which run an error is about, where the message is not the system's.
fn of_run(error: Error, shown: &str) -> Error {
    match error.kind {
        ErrorKind::Usage => Error { message: format!("`{shown}`: {}", error.message), ..error },
        _ => error,
    }
}

/// The path in a form that is never looked up in `PATH`.
fn as_path_argument(image: &Path) -> OsString {
    match image.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new(".").join(image).into_os_string(),
        _ => image.as_os_str().to_owned(),
    }
}

/// Runs both programs with the arguments of each run, before the moved one is renamed to its destination.
fn check_runs(
    arguments: &OptimizeArguments,
    context: &Context,
    [original, result]: [&[u8]; 2],
    output: &Path,
    (starts, stop): (&[Start], &StopRule),
) -> Result<Vec<CheckedRun>> {
    let trial = Trial::beside(output, TrialFile { original, result })?;
    check_trial(arguments, context, &trial, (&named(starts), stop))
}

/// Runs the program without and with what `trial` holds.
pub(super) fn check_trial(
    arguments: &OptimizeArguments,
    context: &Context,
    trial: &Trial<'_>,
    (runs, stop): (&[(&str, Vec<OsString>)], &StopRule),
) -> Result<Vec<CheckedRun>> {
    let program = PathBuf::from(as_path_argument(&arguments.image));
    let request = CheckRequest {
        original: &program,
        trial,
        input: arguments.stdin.input.as_deref(),
        stop,
        time_limit: Duration::from_secs(arguments.time_limit),
    };
    check_all(&request, runs, context)
}

/// Measures the moved program before it is renamed to its destination; one measurement per run, absent if it failed or is
/// off.
fn measure_moved(
    arguments: &OptimizeArguments,
    context: &Context,
    bytes: &[u8],
    output: &Path,
    (starts, stop): (&[Start], &StopRule),
) -> Result<Vec<Option<Measurement>>> {
    if arguments.measure_runs == 0 {
        return Ok(starts.iter().map(|_| None).collect());
    }
    let directory = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let trial = tempfile::Builder::new()
        .prefix(".reorder-trial-")
        .tempdir_in(directory.unwrap_or(Path::new(".")))
        .map_err(|error| Error::io(output, error))?;
    let program = trial.path().join(output.file_name().unwrap_or(arguments.image.as_os_str()));
    write::replace(&program, &arguments.image, bytes, ReplaceOptions::default())?;
    let trials = Trials { program: &program, output, libraries: Vec::new() };
    measure_runs(arguments, context, &trials, (&named(starts), stop))
}

/// The arguments of each run, as given and as words.
fn named(starts: &[Start]) -> Vec<(&str, Vec<OsString>)> {
    starts.iter().map(|start| (start.shown.as_str(), start.arguments.clone())).collect()
}

/// Programs that are measured for `optimize` in place of an output that does not exist yet.
pub(super) struct Trials<'run> {
    /// Where the new program is for now.
    pub(super) program: &'run Path,
    /// Where it will be.
    pub(super) output: &'run Path,
    /// The libraries that are measured with it.
    pub(super) libraries: Vec<LibraryPair>,
}

/// Cold starts of both programs for each of `runs`, the arguments as given and their words; absent where measuring failed.
///
/// # Errors
/// A new program that crashes or ends differently.
pub(super) fn measure_runs(
    arguments: &OptimizeArguments,
    context: &Context,
    trials: &Trials<'_>,
    (runs, stop): (&[(&str, Vec<OsString>)], &StopRule),
) -> Result<Vec<Option<Measurement>>> {
    let phase = context.talk.phase("measure", (runs.len() * arguments.measure_runs) as u64);
    let mut reports = Vec::new();
    for (shown, words) in runs {
        let request = MeasureRequest {
            old: PathBuf::from(as_path_argument(&arguments.image)),
            new: Some(trials.program.to_path_buf()),
            arguments: words.clone(),
            libraries: trials.libraries.clone(),
            whole_process: !trials.libraries.is_empty(),
            rounds: arguments.measure_runs,
            input: arguments.stdin.input.clone(),
            stop: stop.clone(),
            time_limit: Duration::from_secs(arguments.time_limit),
            wording: hints::text,
            ..MeasureRequest::default()
        };
        match measure::measure(&request, &|| phase.step()) {
            Ok(mut report) => {
                // The trial is deleted; the report names the files that remain.
                (report.old, report.new) = (arguments.image.clone(), Some(trials.output.to_path_buf()));
                reports.push(Some(report));
            }
            // The two ended differently: the only failure that the new program causes.
            Err(error) if error.hint == Some(Hint::ReportCrash) => return Err(error),
            Err(error) if matches!(error.kind, ErrorKind::Verification) => {
                return Err(error.with_hint(format!(
                    "nothing was written; if `{shown}` does not always end the same way, leave out that --run"
                )));
            }
            Err(error) => {
                context.talk.warning(
                    &format!("`{shown}` is not measured: {error}"),
                    error.hint.as_ref().map(hints::text).as_deref(),
                );
                reports.push(None);
            }
        }
    }
    phase.finish(&format!(
        "{} cold starts of each program",
        reports.iter().flatten().count() * arguments.measure_runs
    ));
    Ok(reports)
}
