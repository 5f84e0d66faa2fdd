//! Warnings about figures: the cause, the affected figures, and what to do about it.

use serde::Serialize;

use super::figures::FigureKind;
use super::report::Measurement;
use super::sign_test;
use super::staging::Programs;
use super::surroundings::Surroundings;
use super::unknown::Unknown;
use super::{MeasureRequest, StartKind, Unknowns};
use reorder_base::hint::Hint;
use reorder_report::table::grouped;
use reorder_report::visible::visible;

/// A warning about a figure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Warning {
    /// The finding.
    pub cause: String,
    /// Which figures it affects, and how.
    pub doubt: String,
    /// What to do, as a command where there is one.
    pub next: String,
    /// Whether something could not be measured as requested; else the figures are as requested, but noisy.
    pub is_limit: bool,
}

impl Warning {
    fn limit(cause: impl Into<String>, doubt: impl Into<String>, next: impl Into<String>) -> Self {
        Self { cause: cause.into(), doubt: doubt.into(), next: next.into(), is_limit: true }
    }

    fn noise(cause: impl Into<String>, doubt: impl Into<String>, next: impl Into<String>) -> Self {
        Self { is_limit: false, ..Self::limit(cause, doubt, next) }
    }

    /// In one line.
    #[must_use]
    pub fn text(&self) -> String {
        visible(&format!("{}: {}; {}", self.cause, self.doubt, self.next)).into_owned()
    }
}

/// Warnings about all times of a system.
pub(super) fn of_machine(surroundings: &Surroundings) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if surroundings.is_busy() {
        warnings.push(Warning::noise(
            format!(
                "other processes keep the system busy (load {:.1} on {} processors)",
                surroundings.load_average.unwrap_or_default(),
                surroundings.processors
            ),
            "times are too long and spread; pages do not depend on it",
            "end them, or measure when `uptime` shows a lower load",
        ));
    }
    if let Some(governor) = surroundings.frequency_governor.as_ref().filter(|name| *name != "performance") {
        warnings.push(Warning::noise(
            format!("the processors change their clock rate (governor {governor})"),
            "the clock rate of short runs depends on what ran before",
            "`cpupower frequency-set -g performance` as root, and back afterwards",
        ));
    }
    warnings
}

/// Warnings about one measurement.
pub(super) fn of_measurement(
    request: &MeasureRequest,
    programs: &Programs,
    measurement: &Measurement,
    surroundings: &Surroundings,
    unknowns: &Unknowns,
) -> Vec<Warning> {
    let failure = failure(&measurement.status).filter(|_| !request.stop.is_set());
    let mut warnings: Vec<Warning> = failure.into_iter().collect();
    warnings.extend(limits(request, programs, measurement, surroundings, unknowns));
    warnings.extend(confidence(request, measurement));
    warnings.extend(noise(request, measurement));
    warnings
}

/// Programs that fail do different work than those that succeed, and usually less.
fn failure(status: &str) -> Option<Warning> {
    if status == "exit status 0" {
        return None;
    }
    let doubt = match status.starts_with("signal ") {
        true => "the program crashed in every run; the figures cover startup only until the crash",
        false => "the program failed in every run; the figures cover startup only until it failed",
    };
    Some(Warning::limit(
        format!("every run ended with {status}"),
        doubt,
        "run it by hand with these arguments; input is empty and there is no terminal",
    ))
}

fn limits(
    request: &MeasureRequest,
    programs: &Programs,
    measurement: &Measurement,
    surroundings: &Surroundings,
    unknowns: &Unknowns,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if request.start == StartKind::Cold && !measurement.cold {
        let cause = match programs.last().is_in_memory() {
            true => "the program is on a file system in memory",
            false => "the page cache of the program cannot be emptied, not even for a copy next to it",
        };
        warnings.push(Warning::limit(
            cause,
            "these runs are warm",
            "copy the program to a directory of a disk and measure it there",
        ));
    } else if measurement.cold && !measurement.private_copies {
        warnings.push(Warning::limit(
            "the files were run where they are, because copies end differently or stay cached",
            "their places on the disk may differ, which shows in times",
            "compare pages rather than times",
        ));
    }
    let figures = &measurement.figures;
    if let Some(unknown) = &unknowns.mapped {
        let doubt = match unknown {
            Unknown::NotTraced => "mapped and touched pages, and the kernel's counters, are unknown",
            _ => "mapped and touched pages are unknown",
        };
        let (cause, next) = unknown.told();
        warnings.push(Warning::limit(cause, doubt, (request.wording)(&next)));
    }
    if let Some(unknown) =
        unknowns.touched.as_ref().filter(|unknown| unknowns.mapped.as_ref() != Some(unknown))
    {
        let (cause, next) = unknown.told();
        warnings.push(Warning::limit(cause, "touched pages are unknown", (request.wording)(&next)));
    }
    if unknowns.mapped != Some(Unknown::NotTraced) && figures.get(FigureKind::ContextSwitches).is_none() {
        let setting =
            surroundings.perf_event_paranoid.map_or_else(String::new, |level| format!(" is {level}"));
        let doubt = match figures.get(FigureKind::PageFaultsCounted) {
            Some(_) => "its counters cover user mode only, and context switches are unknown",
            None => "the figures of its counters are unknown",
        };
        warnings.push(Warning::limit(
            format!("the kernel does not allow access to its counters (kernel.perf_event_paranoid{setting})"),
            doubt,
            "`sysctl kernel.perf_event_paranoid=1` as root allows them; in a container, --cap-add=PERFMON",
        ));
    }
    // The text size of the libraries is unknown here.
    if let (true, Some((read_ahead, _))) =
        (measurement.cold && request.libraries.is_empty(), programs.last().read_ahead())
        && read_ahead >= measurement.text_bytes
    {
        warnings.push(Warning::limit(
            format!(
                "one read from this disk brings in up to {} KiB and the whole text has {} KiB",
                grouped(read_ahead / 1024),
                grouped(measurement.text_bytes / 1024)
            ),
            "major faults and cached pages hardly depend on the layout",
            (request.wording)(&Hint::PagesInPlaceOfFaults),
        ));
    }
    warnings
}

fn confidence(request: &MeasureRequest, measurement: &Measurement) -> Option<Warning> {
    let needed = sign_test::values_needed_for_interval(request.confidence);
    (measurement.new.is_some() && request.rounds < needed).then(|| {
        Warning::noise(
            format!("{} runs of each program", request.rounds),
            format!("too few for any interval at {} % confidence", percent(request.confidence)),
            (request.wording)(&Hint::RunsForConfidence(needed)),
        )
    })
}

/// `95` for 0.95, `99.9` for 0.999.
pub(super) fn percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn noise(request: &MeasureRequest, measurement: &Measurement) -> Vec<Warning> {
    let Some(wall) = measurement.figures.get(FigureKind::WallMilliseconds) else { return Vec::new() };
    let mut warnings = Vec::new();
    let more = request.rounds.saturating_mul(4);
    let samples = wall.samples();
    let outliers: usize = samples.iter().map(|(_, sample)| sample.outliers()).sum();
    if outliers > 0 {
        warnings.push(Warning::noise(
            format!("{outliers} of {} times are far from the others", request.rounds * samples.len()),
            "other programs loaded the system during the measurement: that widens ranges and hardly moves medians",
            (request.wording)(&Hint::RunsOrQuiet(more)),
        ));
    }
    for (name, sample) in &samples {
        let (first, others) = match sample.values.split_first() {
            Some((first, others)) if others.len() >= 3 => (*first, others),
            _ => continue,
        };
        let slowest = others.iter().copied().fold(0.0, f64::max);
        if first > slowest * 1.1 && first > sample.median * 1.3 {
            warnings.push(Warning::noise(
                format!(
                    "the first run of the {name} was the slowest ({first:.1} ms, then at most {slowest:.1})"
                ),
                match request.start {
                    StartKind::Cold => {
                        "only the program's own file is cold; the other files that it reads are warm by now"
                    }
                    StartKind::Warm => "not all of the files that it reads were in memory yet",
                },
                "the median leaves it out; measure again to see whether it stays",
            ));
        }
    }
    if let Some(comparison) = measurement.figures.comparison(FigureKind::WallMilliseconds)
        && comparison.differs()
        && !comparison.is_clear
    {
        warnings.push(Warning::noise(
            "times of the two differ by less than their own spread",
            "neither is shown to be faster",
            (request.wording)(&Hint::RunsToNarrowDown(more)),
        ));
    }
    if samples.iter().any(|(_, sample)| sample.median < SHORT_MILLISECONDS) {
        warnings.push(Warning::noise(
            format!("runs take less than {SHORT_MILLISECONDS:.0} ms"),
            "much of the time is the system's own for starting a process",
            "compare pages and faults",
        ));
    }
    warnings
}

/// Below that the time of fork, exec and the loader is a large part.
const SHORT_MILLISECONDS: f64 = 5.0;
