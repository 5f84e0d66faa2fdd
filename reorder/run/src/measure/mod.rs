//! What a layout gains in real runs: of one program, or of two in turn, cold or warm.
//!
//! In: a [`MeasureRequest`]. Out: a [`Measurement`]. Guarantees: both programs get the same arguments, name,
//! directory and environment; the order of the runs cancels drifts (A B B A …); every run counted as cold was
//! checked to be cold; the report lists what could not be done.
//!
//! Only the program's own file and the libraries that the request names are made cold; others stay as they are, for both
//! alike. Some rounds start each
//! program twice: once normally, and once page by page, to see the 4 KiB text pages that it touches itself.
//! That count does not depend on read-ahead and fault-around, so it compares layouts on any system.
//! Pages that only a child touches do not count.

pub mod agreement;
mod cached_file;
mod counters;
mod effects;
pub mod export;
mod figures;
mod inject;
mod libraries;
mod page_cache;
pub mod process;
mod report;
mod run;
pub mod sign_test;
mod staging;
mod statistics;
mod surroundings;
#[cfg(test)]
mod tests;
mod tracee;
mod unknown;
mod warnings;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use effects::Effect;
pub use figures::{Figure, FigureKind, Figures, Values};
pub use libraries::LibraryPair;
pub use report::{MeasureReport, Measurement};
pub use run::Reach;
pub use sign_test::Interval;
pub use statistics::{Comparison, Sample};
pub use surroundings::Surroundings;
pub use warnings::Warning;

use crate::stop_rule::StopRule;
use figures::Series;
use libraries::Libraries;
use page_cache::ProgramFile;
use process::{Names, ProcessSeries};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_system::interruption::Interruption;
use reorder_system::perf_event::SoftwareEvent;
use run::{Launch, Outcome, Watch};
use staging::Programs;
use unknown::Unknown;

/// Rounds that count touched pages. The count varies only where a program's own work does, and loading the text page
/// by page takes a disk access each. Six are the fewest that give an interval with 95 % confidence.
const TOUCH_ROUNDS: usize = 6;

/// Rounds that find out where faults happen. They tell what to look at; the figures of all rounds tell how many there are.
const PROCESS_ROUNDS: usize = 3;

/// Whether the program's file is in memory when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// It is not: after an installation, or a long time.
    #[default]
    Cold,
    /// It is: started before.
    Warm,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct MeasureRequest {
    /// What reports call it.
    pub scenario: String,
    /// The program, or the one that another is compared with.
    pub old: PathBuf,
    /// The program with the new layout, if there is one.
    pub new: Option<PathBuf>,
    /// Arguments for both.
    pub arguments: Vec<OsString>,
    /// The working directory of both; this process's unless given.
    pub directory: Option<PathBuf>,
    /// Variables that are set for both.
    pub environment: Vec<(OsString, OsString)>,
    /// Libraries that are measured with them: each program loads copies of its own.
    pub libraries: Vec<LibraryPair>,
    /// Whether to find out where in the whole process faults happen.
    pub whole_process: bool,
    /// Rounds; every figure is a median over them. At least 1.
    pub rounds: usize,
    /// Whether the page cache is emptied before each run.
    pub start: StartKind,
    /// The share of 1 that intervals are for.
    pub confidence: f64,
    /// A file for their standard input; empty unless given.
    pub input: Option<PathBuf>,
    /// When a run that does not end by itself is asked to end.
    pub stop: StopRule,
    /// A run that takes longer is killed and reported.
    pub time_limit: Duration,
    /// How results word what to do next. Without a command line, only advice that needs no option has words.
    pub wording: fn(&Hint) -> String,
}

impl Default for MeasureRequest {
    fn default() -> Self {
        Self {
            scenario: "start".to_owned(),
            old: PathBuf::new(),
            new: None,
            arguments: Vec::new(),
            directory: None,
            environment: Vec::new(),
            libraries: Vec::new(),
            whole_process: false,
            rounds: 11,
            start: StartKind::Cold,
            confidence: 0.95,
            input: None,
            stop: StopRule::default(),
            time_limit: Duration::from_secs(60),
            wording: |hint| hint.advice().unwrap_or_default().to_owned(),
        }
    }
}

impl MeasureRequest {
    fn programs(&self) -> Vec<PathBuf> {
        std::iter::once(&self.old).chain(&self.new).cloned().collect()
    }

    fn launch<'request>(&'request self, program: &'request ProgramFile, watch: Watch) -> Launch<'request> {
        Launch {
            program,
            // Both answer to the old name: programs look at it.
            name: self.old.as_os_str(),
            arguments: &self.arguments,
            directory: self.directory.as_deref(),
            environment: &self.environment,
            search_path: None,
            watch,
            cold: self.start == StartKind::Cold,
            input: self.input.as_deref(),
            stop: &self.stop,
            time_limit: self.time_limit,
        }
    }
}

/// Runs the program, or both in turn, and summarises.
///
/// # Errors
/// When a program cannot be read, started or finished in time; [`reorder_base::error::ErrorKind::Verification`] when
/// runs end with different exit statuses.
pub fn measure(request: &MeasureRequest, progress: &dyn Fn()) -> Result<Measurement> {
    if request.rounds == 0 {
        return Err(Error::usage("no runs are asked for").with_hint(Hint::LeastRuns(1)));
    }
    // Outlives the copies below: they are removed before a signal ends this process.
    let _interruption = Interruption::note();
    let surroundings = Surroundings::of_this_machine();
    let libraries = Libraries::prepare(&request.libraries, request.new.as_ref().unwrap_or(&request.old))?;
    // A copy of a program that finds its libraries beside itself finds only those of the search path.
    let ends = |file: &ProgramFile| {
        let search_path = libraries.search_path(0);
        Ok(run::run(&Launch { search_path, ..request.launch(file, Watch::Start) })?.status)
    };
    let programs = Programs::prepare(request.programs(), request.start == StartKind::Warm, &ends)?;
    let mut series: Vec<Series> = programs.indices().map(|_| Series::default()).collect();
    if request.start == StartKind::Warm {
        for index in programs.indices() {
            ends(programs.file(index))?;
        }
    }
    let mut unknowns = Unknowns::default();
    let mut process = ProcessSeries::default();
    for round in 0..request.rounds {
        // A B B A …: a system that slows down or speeds up over time favours neither.
        let mut order: Vec<usize> = programs.indices().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for &index in &order {
            let outcome = natural_run(request, (&programs, &libraries), index, &mut series[index])?;
            unknowns.mapped = unknowns.mapped.take().or(outcome.mapped_text.as_ref().err().cloned());
            agree(programs.status(), &outcome, programs.shown(index), index > 0)?;
        }
        if request.whole_process && round < PROCESS_ROUNDS {
            for &index in &order {
                process_faults(request, (&programs, &libraries), index, &mut process)?;
            }
        }
        if round < TOUCH_ROUNDS {
            for &index in &order {
                // Once pages are unknown the figure is left out, so further rounds would be useless.
                if unknowns.touched.is_none() {
                    let touched = touched_pages(request, (&programs, &libraries), index)?;
                    touched
                        .map(|pages| series[index].push(FigureKind::TextPagesTouched, pages))
                        .unwrap_or_else(|unknown| unknowns.touched = Some(unknown));
                }
            }
        }
        progress();
    }
    if request.stop.after.is_some() {
        // They ran for as long as they were given.
        series.iter_mut().for_each(|series| series.drop_kind(FigureKind::WallMilliseconds));
    }
    if unknowns.touched.is_some() {
        series.iter_mut().for_each(|series| series.drop_kind(FigureKind::TextPagesTouched));
    }
    let mut measurement = conclude(request, &programs, &series, &surroundings, &unknowns);
    measurement.process = request.whole_process.then(|| process.conclude()).flatten();
    Ok(measurement)
}

/// Why the pages of some run are unknown; `None` if they are known of all.
#[derive(Debug, Default)]
struct Unknowns {
    mapped: Option<Unknown>,
    touched: Option<Unknown>,
}

fn conclude(
    request: &MeasureRequest,
    programs: &Programs,
    series: &[Series],
    surroundings: &Surroundings,
    unknowns: &Unknowns,
) -> Measurement {
    let figures = Figures::of(series, request.confidence);
    let mut measurement = Measurement {
        scenario: request.scenario.clone(),
        start: request.start,
        old: request.old.clone(),
        new: request.new.clone(),
        arguments: request.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        status: programs.status().to_owned(),
        rounds: request.rounds,
        confidence: request.confidence,
        cold: programs.cold(),
        private_copies: programs.copied(),
        text_bytes: programs.last().text_bytes(),
        read_ahead_bytes: programs.last().read_ahead().map(|(bytes, _)| bytes),
        effects: effects::of(&figures),
        figures,
        process: None,
        warnings: Vec::new(),
    };
    measurement.warnings = warnings::of_measurement(request, programs, &measurement, surroundings, unknowns);
    measurement
}

/// The report of several measurements on this system.
#[must_use]
pub fn report(surroundings: Surroundings, measurements: Vec<Measurement>) -> MeasureReport {
    MeasureReport { warnings: warnings::of_machine(&surroundings), surroundings, measurements }
}

/// What this system lets a measurement do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Programs can be traced.
    pub trace: bool,
    /// Touched pages can be counted.
    pub count_touched_pages: bool,
}

/// Finds out by running this program itself with `argument`, which must make it end at once.
///
/// # Errors
/// When it cannot be run.
pub fn abilities(argument: &str) -> Result<Abilities> {
    let program = std::env::current_exe().map_err(|error| Error::io(Path::new("/proc/self/exe"), error))?;
    let file = ProgramFile::open(&program)?;
    let outcome = run::run(&Launch {
        program: &file,
        name: OsStr::new("reorder"),
        arguments: &[OsString::from(argument)],
        directory: None,
        environment: &[],
        search_path: None,
        watch: Watch::Pages(Reach::OnePage),
        cold: false,
        input: None,
        stop: &StopRule::default(),
        time_limit: Duration::from_secs(10),
    })?;
    Ok(Abilities { trace: outcome.mapped_text.is_ok(), count_touched_pages: outcome.watched.is_ok() })
}

/// Whether a program in `directory` can be made cold, tried with a copy of this program itself.
///
/// # Errors
/// When the directory cannot be written.
pub fn can_start_cold(directory: &Path) -> Result<bool> {
    let program = std::env::current_exe().map_err(|error| Error::io(Path::new("/proc/self/exe"), error))?;
    let copies = tempfile::tempdir_in(directory).map_err(|error| Error::io(directory, error))?;
    staging::copy(&program, copies.path(), "cold")?.try_evict()
}

/// How much the kernel reads at once from the disk under `path`, and the file that holds this setting.
///
/// # Errors
/// When the file cannot be opened.
pub fn read_ahead(path: &Path) -> Result<Option<(u64, PathBuf)>> {
    let file = std::fs::File::open(path).map_err(|error| Error::io(path, error))?;
    Ok(page_cache::read_ahead(&file))
}

/// One ordinary run.
fn natural_run(
    request: &MeasureRequest,
    (programs, libraries): (&Programs, &Libraries),
    index: usize,
    series: &mut Series,
) -> Result<Outcome> {
    let file = programs.file(index);
    if programs.cold() {
        file.evict()?;
        libraries.evict(index)?;
    }
    let search_path = libraries.search_path(index);
    let outcome = run::run(&Launch { search_path, ..request.launch(file, Watch::Start) })?;
    series.push(FigureKind::MajorFaults, outcome.major_faults as f64);
    series.push(FigureKind::MinorFaults, outcome.minor_faults as f64);
    series.push(FigureKind::WallMilliseconds, outcome.wall.as_secs_f64() * 1e3);
    series.extend(
        FigureKind::TextPagesMapped,
        outcome.mapped_text.as_ref().ok().map(|pages| pages.len() as f64),
    );
    if let Some(counted) = outcome.counted {
        series.push(FigureKind::PageFaultsCounted, counted.page_faults);
        series.push(FigureKind::MajorFaultsCounted, counted.major_faults);
        series.push(FigureKind::MinorFaultsCounted, counted.minor_faults);
        series.push(FigureKind::ProcessorMilliseconds, counted.processor_milliseconds);
        series.extend(FigureKind::ContextSwitches, counted.context_switches);
    }
    if programs.cold() {
        let cached = outcome.cached_text.as_ref().map(|pages| pages.len() as f64);
        series.extend(FigureKind::TextPagesCached, cached);
        series.extend(FigureKind::KibibytesRead, outcome.bytes_read.map(|bytes| bytes as f64 / 1024.0));
    }
    Ok(outcome)
}

/// One run whose touched pages are counted. A run that ends differently than the rest did different work.
fn touched_pages(
    request: &MeasureRequest,
    (programs, libraries): (&Programs, &Libraries),
    index: usize,
) -> Result<std::result::Result<f64, Unknown>> {
    let launch = request.launch(programs.file(index), Watch::Pages(Reach::OnePage));
    let outcome = run::run(&Launch { search_path: libraries.search_path(index), ..launch })?;
    Ok(match outcome.status == programs.status() {
        true => outcome.watched.map(|pages| pages.mapped.len() as f64),
        false => Err(Unknown::EndsOtherwise(outcome.status)),
    })
}

/// Runs that show where faults happen: those that wait for the disk, if there are any, and all.
fn process_faults(
    request: &MeasureRequest,
    (programs, libraries): (&Programs, &Libraries),
    index: usize,
    process: &mut ProcessSeries,
) -> Result<()> {
    let file = programs.file(index);
    let copies = libraries.copies(index, &request.libraries);
    let names: Names = copies.chain([(file.path(), request.old.as_path())]).collect();
    let events = [(SoftwareEvent::MajorFaults, programs.cold()), (SoftwareEvent::PageFaults, true)];
    for (event, _) in events.into_iter().filter(|(_, is_wanted)| *is_wanted) {
        if programs.cold() {
            file.evict()?;
            libraries.evict(index)?;
        }
        let search_path = libraries.search_path(index);
        let outcome = run::run(&Launch { search_path, ..request.launch(file, Watch::Faults(event)) })?;
        agree(programs.status(), &outcome, programs.shown(index), index > 0)?;
        if let Some(faults) = &outcome.faults {
            process.push(index, event, faults, &names);
        }
    }
    Ok(())
}

/// All runs must end the same way, or the figures compare different work.
///
/// A moved program (`is_moved`) that dies of a fault where its original does not is a defect.
fn agree(expected: &str, outcome: &Outcome, program: &Path, is_moved: bool) -> Result<()> {
    if outcome.status == expected {
        return Ok(());
    }
    if is_moved && outcome.is_fault {
        let cause = format!(
            "the moved program crashed: it ended with {}, the original with {expected}",
            outcome.status
        );
        return Err(Error::verification(cause).in_file(program).with_hint(Hint::ReportCrash));
    }
    Err(Error::verification(format!(
        "ended with {}, the first run with {expected}: the figures would compare different work",
        outcome.status
    ))
    .in_file(program)
    .with_hint(
        "run it by hand with these arguments, both programs if there are two, and compare what they print",
    ))
}
