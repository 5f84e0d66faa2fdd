//! The recorder: first-execution order of an unmodified program, by one-shot breakpoints.
//!
//! In: a program and its arguments. Out: one [`Trace`] for each run, each `exec` and each traced image. Every proven
//! function start gets a breakpoint before the dynamic loader runs; the first thread that arrives removes it. A function
//! costs one stop when it is first executed and no time afterwards. Where basic blocks are recorded, those of a function
//! get breakpoints at that stop (`plant.rs`); where an image describes little of its code, functions that calls through pointers
//! enter are learned then, too (`learn.rs`).
//!
//! What a program can notice: its own code in memory holds breakpoints where it was not executed yet; and, unless the
//! request says otherwise, a SIGTRAP that it blocks or ignores is unblocked and no longer ignored when a breakpoint is hit,
//! as under any debugger. A handler of SIGTRAP works as ever (`own_traps.rs`).

mod address_space;
mod arm;
mod code;
mod digests;
mod executed;
mod failure;
mod guard;
mod image;
mod input_reads;
mod known_code;
mod launch;
mod learn;
mod memory;
mod output;
mod own_traps;
mod plant;
mod recording;
mod release;
mod session;
mod signal_status;
mod starts;
mod statistics;
mod system_calls;
mod tasks;
mod trap;
mod unknown_code;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::processor;
use crate::stop_rule::StopRule;
use reorder_base::error::{Error, Result};
use reorder_trace::Trace;

use guard::Guarded;
use image::TracedImage;
pub use known_code::LittleKnown;
use known_code::MAX_UNKNOWN_PERCENT;
pub use launch::find_program;
pub use output::{TraceDirectory, next_run, replace_recordings, write_traces};
use recording::Recording;
use session::Session;
pub use statistics::Statistics;

use reorder_system::stops::Ending;

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct RecordRequest {
    /// A path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Further images to trace: libraries, or programs that the program executes.
    pub images: Vec<PathBuf>,
    /// How often to run it; at least once.
    pub runs: u32,
    /// How often it is started for each run; at least once. From the second time on it stops only in code that did not run before,
    /// so threads that the stops held up get further. What is new is added to the run's traces.
    pub passes: u32,
    /// The number of the first run.
    pub first_run: u32,
    /// Its working directory; this process's unless given.
    pub directory: Option<PathBuf>,
    /// Variables that are set for it, in addition to those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Connect the program's standard input, output and error to `/dev/null`.
    pub discard_output: bool,
    /// A file for its standard input.
    pub input: Option<PathBuf>,
    /// Note whether it reads its standard input although that is `/dev/null`.
    pub watches_input: bool,
    /// When a run that does not end by itself is asked to end.
    pub stop: StopRule,
    /// A run that takes longer is killed and is an error; none is unless given.
    pub time_limit: Option<Duration>,
    /// Kill what the program leaves running, instead of letting it go on unrecorded.
    pub ends_descendants: bool,
    /// Stop at each system call as well, so that the program's own use of SIGTRAP is unaffected.
    pub keep_own_traps: bool,
    /// Record the first execution of each basic block as well, of functions whose code is certain.
    pub blocks: bool,
}

/// What was recorded.
#[derive(Debug)]
pub struct RecordOutcome {
    /// In order of run, `exec` and image; traces without events are left out.
    pub traces: Vec<RecordedTrace>,
    /// How the program ended: the last failure of all runs, if there was one.
    pub ending: Ending,
    /// Whether some run was asked to end, as the request wants it.
    pub was_asked_to_end: bool,
    /// Whether some run never printed the text that it was to be ended for.
    pub misses_text: bool,
    /// Recorded images most of whose code is in no known function, so that little of what ran is in the traces.
    pub little_known: Vec<LittleKnown>,
    /// What it cost.
    pub statistics: Statistics,
}

/// A trace and its place among the others.
#[derive(Clone, Debug)]
pub struct RecordedTrace {
    /// The image's file name.
    pub image_name: String,
    /// Which `exec` of the run, from 1.
    pub program: u32,
    /// The trace.
    pub trace: Trace,
}

/// Runs and records the program.
///
/// # Errors
/// Images that cannot be read, programs that cannot be started, and systems that forbid tracing.
pub fn record(request: &RecordRequest) -> Result<RecordOutcome> {
    // The thread's end kills all tracees, and its waiting cannot take away other threads' children.
    thread::scope(|scope| {
        scope.spawn(|| record_runs(request)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn record_runs(request: &RecordRequest) -> Result<RecordOutcome> {
    processor::check_host()?;
    let mut images = request.images.iter().map(|path| TracedImage::read(path)).collect::<Result<Vec<_>>>()?;
    let command: Vec<Vec<u8>> = std::iter::once(&request.program)
        .chain(&request.arguments)
        .map(|word| word.as_bytes().to_vec())
        .collect();
    let mut statistics = Statistics::default();
    let mut traces = Vec::new();
    let mut ending = Ending::Exited(0);
    let (mut was_asked_to_end, mut misses_text) = (false, false);
    let runs = (request.first_run..).take(request.runs.max(1) as usize);
    let passes = request.passes.max(1);
    let mut earlier = Vec::new();
    for (run, pass) in runs.flat_map(|run| (1..=passes).map(move |pass| (run, pass))) {
        let unrecorded = (statistics.left_running, statistics.forbidden_programs);
        let launched = launch::launch(request)?;
        let outputs = launched.outputs()?;
        let handle = launched.handle(request)?;
        let (alive, ended) = mpsc::channel::<()>();
        let (outcome, guarded) = thread::scope(|scope| {
            let watching = handle.as_ref().map(|handle| {
                let (outputs, ended) = (outputs.as_ref(), ended);
                scope.spawn(move || guard::guard(handle, request, outputs, &ended))
            });
            let outcome =
                Session::new(launched, std::mem::take(&mut earlier), request, &mut images, &mut statistics)
                    .follow();
            drop(alive);
            let guarded = watching.map_or(Ok(Guarded::default()), |watching| {
                watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            (outcome, guarded)
        });
        let failed = |error| Error::io(&PathBuf::from(&request.program), error);
        let in_program = |error: Error| error.in_file(&PathBuf::from(&request.program));
        let guarded = guarded.map_err(failed)?.in_time(request).map_err(in_program)?;
        was_asked_to_end |= guarded.was_asked;
        misses_text |= guarded.misses_text;
        let outcome = outcome?;
        if outcome.ending != Ending::Exited(0) {
            ending = outcome.ending;
        }
        if pass < passes {
            // What was left out is that of the last pass.
            (statistics.left_running, statistics.forbidden_programs) = unrecorded;
            earlier = outcome.recordings.into_iter().map(Recording::ended).collect();
            continue;
        }
        for (program, recording) in (1..).zip(outcome.recordings) {
            traces.extend(recording.into_traces(run, &images, &command).into_iter().map(|(index, trace)| {
                (index, RecordedTrace { image_name: images[index].file_name(), program, trace })
            }));
        }
    }
    digests::add(&images, &mut traces)?;
    let is_recorded = |number: usize| traces.iter().any(|(index, _)| *index == number);
    let little_known = images
        .iter()
        .enumerate()
        .filter(|(number, image)| image.unknown_percent >= MAX_UNKNOWN_PERCENT && is_recorded(*number))
        .map(|(_, image)| LittleKnown {
            path: image.path().to_path_buf(),
            unknown_percent: image.unknown_percent,
            learned: image
                .unknown
                .as_ref()
                .map(|_| image.starts.learned().count())
                .filter(|_| request.blocks),
        })
        .collect();
    let traces = traces.into_iter().map(|(_, recorded)| recorded).collect();
    Ok(RecordOutcome { traces, ending, was_asked_to_end, misses_text, little_known, statistics })
}
