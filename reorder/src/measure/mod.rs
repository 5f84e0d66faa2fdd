//! What a new layout gains for real: two programs, started cold, one after the other.
//!
//! In: a [`MeasureRequest`]. Out: a [`MeasureReport`]. Guarantees: both programs get the same arguments, name,
//! directory and environment; the order of the runs cancels drifts (A B B A …); every start counted as cold was
//! checked to be cold; whatever could not be done is said in the report.
//!
//! Only the program's own file is made cold; its libraries stay as they are, for both alike. Each round starts each
//! program twice: once as the system does it, and once to count the 4 KiB text pages that are touched, by the
//! processor's accessed bits. That count does not depend on what the disk and the kernel read along, so it compares
//! layouts on any machine. (A program that forks counts up to 16 pages for each that a child touches.)

mod page_cache;
mod report;
mod run;
mod staging;
mod statistics;
#[cfg(test)]
mod tests;
mod tracee;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use report::{Figures, MeasureReport};
pub use statistics::{Comparison, Sample};

use crate::error::{Error, Result};
use page_cache::ProgramFile;
use run::{Launch, Outcome, Watch};
use staging::Programs;

/// Rounds that count touched pages. The count varies only where a program's own work does, and loading the text page
/// by page takes a disk access each.
const TOUCH_ROUNDS: usize = 3;

/// What to compare.
#[derive(Clone, Debug)]
pub struct MeasureRequest {
    /// The program as it was.
    pub old: PathBuf,
    /// The program with the new layout.
    pub new: PathBuf,
    /// Arguments for both.
    pub arguments: Vec<OsString>,
    /// Rounds; every figure is a median over them. At least 1.
    pub rounds: usize,
    /// Keep the page cache instead of emptying it.
    pub warm: bool,
    /// A run that takes longer is killed and reported.
    pub time_limit: Duration,
}

/// Figures of all rounds of one program.
#[derive(Debug, Default)]
struct Series {
    major_faults: Vec<f64>,
    minor_faults: Vec<f64>,
    text_pages_cached: Vec<f64>,
    text_pages_mapped: Vec<f64>,
    text_pages_touched: Vec<f64>,
    wall_milliseconds: Vec<f64>,
}

/// Runs both programs in turn and compares them.
///
/// # Errors
/// When a program cannot be read, started or finished in time; [`crate::error::ErrorKind::Verification`] when the
/// two end with different exit statuses.
pub fn compare(request: &MeasureRequest, progress: &dyn Fn()) -> Result<MeasureReport> {
    if request.rounds == 0 {
        return Err(Error::usage("no runs are asked for").with_hint("give at least --runs 1"));
    }
    let ends = |file: &ProgramFile| Ok(launch(request, file, Watch::Start)?.status);
    let programs = Programs::prepare(&request.old, &request.new, request.warm, &ends)?;
    let mut series = [Series::default(), Series::default()];
    for round in 0..request.rounds {
        // A B B A …: a machine that slows down or speeds up over time favours neither.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for index in order {
            let file = programs.file(index);
            let outcome = natural_run(request, &programs, file, &mut series[index])?;
            agree(programs.status(), &outcome, programs.shown(index))?;
        }
        if programs.cold() && round < TOUCH_ROUNDS {
            for index in order {
                touch_run(request, programs.file(index), &mut series[index])?;
            }
        }
        progress();
    }
    let [old, new] = series;
    Ok(report::conclude(request, &programs, &old, &new))
}

/// What this machine lets a measurement do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Programs can be traced.
    pub trace: bool,
    /// Touched pages can be counted.
    pub count_touched_pages: bool,
}

/// Finds out by running this very program.
///
/// # Errors
/// When it cannot be run.
pub fn abilities() -> Result<Abilities> {
    let program = std::env::current_exe().map_err(|error| Error::io(Path::new("/proc/self/exe"), error))?;
    let file = ProgramFile::open(&program)?;
    let outcome = run::run(&Launch {
        program: &file,
        name: program.as_os_str(),
        arguments: &[OsString::from("--version")],
        watch: Watch::TouchedPages,
        time_limit: Duration::from_secs(10),
    })?;
    Ok(Abilities {
        trace: outcome.mapped_text_pages.is_some(),
        count_touched_pages: outcome.touched_text_pages.is_some(),
    })
}

/// Whether a program in `directory` can be made cold, found out with a copy of this very program.
///
/// # Errors
/// When nothing can be written there.
pub fn can_start_cold(directory: &Path) -> Result<bool> {
    let program = std::env::current_exe().map_err(|error| Error::io(Path::new("/proc/self/exe"), error))?;
    let copies = tempfile::tempdir_in(directory).map_err(|error| Error::io(directory, error))?;
    staging::copy(&program, copies.path(), "cold")?.try_evict()
}

/// One start as the system does it.
fn natural_run(
    request: &MeasureRequest,
    programs: &Programs,
    file: &ProgramFile,
    series: &mut Series,
) -> Result<Outcome> {
    if programs.cold() {
        file.evict()?;
    }
    let outcome = launch(request, file, Watch::Start)?;
    series.major_faults.push(outcome.major_faults as f64);
    series.minor_faults.push(outcome.minor_faults as f64);
    series.wall_milliseconds.push(outcome.wall.as_secs_f64() * 1e3);
    series.text_pages_mapped.extend(outcome.mapped_text_pages.map(|pages| pages as f64));
    if programs.cold() {
        series.text_pages_cached.push(file.resident_text_pages()? as f64);
    }
    Ok(outcome)
}

/// One start whose touched pages are counted.
fn touch_run(request: &MeasureRequest, file: &ProgramFile, series: &mut Series) -> Result<()> {
    file.load_page_by_page()?;
    let outcome = launch(request, file, Watch::TouchedPages)?;
    series.text_pages_touched.extend(outcome.touched_text_pages.map(|pages| pages as f64));
    Ok(())
}

fn launch(request: &MeasureRequest, file: &ProgramFile, watch: Watch) -> Result<Outcome> {
    run::run(&Launch {
        program: file,
        // Both answer to the old name: programs look at it.
        name: request.old.as_os_str(),
        arguments: &request.arguments,
        watch,
        time_limit: request.time_limit,
    })
}

/// Both programs must end alike, or the figures compare different work.
fn agree(expected: &str, outcome: &Outcome, program: &Path) -> Result<()> {
    if outcome.status == expected {
        return Ok(());
    }
    Err(Error::verification(format!(
        "ended with {}, the old program with {expected}: the figures would compare different work",
        outcome.status
    ))
    .in_file(program)
    .with_hint("run both programs by hand with these arguments and compare what they print"))
}
