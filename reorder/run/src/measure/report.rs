//! Measured figures as a report.

use std::path::PathBuf;

use serde::Serialize;

use super::StartKind;
use super::effects::Effect;
use super::figures::{Figure, Figures, Values};
use super::process::ProcessFaults;
use super::statistics::Sample;
use super::surroundings::Surroundings;
use super::warnings::{Warning, percent};
use reorder_report::table::Table;
use reorder_report::visible::visible;
use reorder_report::{Report, Width};

/// Real runs of one program, or of two, all cold or all warm.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Name of the scenario.
    pub scenario: String,
    /// The requested kind of start.
    pub start: StartKind,
    /// The program, or the one that another is compared with.
    pub old: PathBuf,
    /// The program with the new layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<PathBuf>,
    /// Arguments of both.
    pub arguments: Vec<String>,
    /// How every run of both ended.
    pub status: String,
    /// Rounds; every figure is over this many runs of each program, except that touched pages take fewer.
    pub rounds: usize,
    /// The share of 1 that intervals are for.
    pub confidence: f64,
    /// Whether the page cache of the program's file was empty before each run.
    pub cold: bool,
    /// Whether fresh copies were run instead of the files themselves.
    pub private_copies: bool,
    /// Size of the executable segments of the newer program.
    pub text_bytes: u64,
    /// What the kernel reads at once from the device, where it says so.
    pub read_ahead_bytes: Option<u64>,
    /// The figures.
    pub figures: Figures,
    /// Where faults happen in the whole process, if that was asked for and the system lets it be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessFaults>,
    /// What the kernel loaded in addition to the touched pages.
    pub effects: Vec<Effect>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
}

impl Measurement {
    /// What could not be measured as requested.
    pub fn limits(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter().filter(|warning| warning.is_limit)
    }

    /// The title of its table, such as `11 cold starts each`.
    #[must_use]
    pub fn title(&self) -> String {
        let kind = if self.cold { "cold" } else { "warm" };
        let each = if self.new.is_some() { " each" } else { "" };
        format!("{} {kind} starts{each}", self.rounds)
    }

    /// How the runs ended, in a line.
    #[must_use]
    pub fn ends(&self) -> String {
        format!("every run ended with {}", self.status)
    }

    /// Titles and rows of the table, as text and Markdown show them.
    #[must_use]
    pub fn cells(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let titles: Vec<String> = match self.new {
            None => [&self.title(), "median", "range"].map(str::to_owned).into(),
            Some(_) => {
                let interval = format!("{} % interval", percent(self.confidence));
                [&self.title(), "old", "new", "change", &interval, "old range", "new range"]
                    .map(str::to_owned)
                    .into()
            }
        };
        (titles, self.figures.0.iter().map(row).collect())
    }
}

fn row(figure: &Figure) -> Vec<String> {
    let number = |value: f64| figure.kind.shown(value);
    let range = |sample: &Sample| format!("{}..{}", number(sample.minimum), number(sample.maximum));
    let title = figure.kind.title().to_owned();
    match &figure.values {
        Values::Alone { program } => vec![title, number(program.median), range(program)],
        Values::Compared(comparison) => vec![
            title,
            number(comparison.old.median),
            number(comparison.new.median),
            comparison.shown_change(),
            figure.change_interval_percent.map_or_else(
                || "-".to_owned(),
                |interval| format!("{:+.0}..{:+.0} %", interval.low, interval.high),
            ),
            range(&comparison.old),
            range(&comparison.new),
        ],
    }
}

/// All scenarios in all kinds of start.
#[derive(Clone, Debug, Serialize)]
pub struct MeasureReport {
    /// The system.
    pub surroundings: Surroundings,
    /// Warnings about all figures of this system.
    pub warnings: Vec<Warning>,
    /// In the order of scenarios; of each the cold starts first.
    pub measurements: Vec<Measurement>,
}

impl Report for MeasureReport {
    const COMMAND: &'static str = "measure";

    fn text(&self, width: Width) -> String {
        let mut text = String::new();
        for measurement in &self.measurements {
            text.push_str(&heading(measurement));
            let (titles, rows) = measurement.cells();
            // Ranges can be spared: the interval says how far runs differ.
            let spare = if measurement.new.is_some() { vec![6, 5] } else { Vec::new() };
            let mut table = Table::new(titles).with_spare(spare);
            rows.into_iter().for_each(|row| table.row(row));
            text.push_str(&table.render(width));
            text.push_str(&format!("{}\n", measurement.ends()));
            for effect in &measurement.effects {
                let read_ahead = measurement.read_ahead_bytes.filter(|_| measurement.cold);
                text.push_str(&effect.text(read_ahead, width));
            }
            measurement.warnings.iter().for_each(|warning| push_warning(&mut text, warning));
            if let Some(process) = &measurement.process {
                text.push_str(&format!("\n{}", process.text(width)));
            }
            text.push('\n');
        }
        text.push_str(&format!("system: {}\n", self.surroundings.text()));
        self.warnings.iter().for_each(|warning| push_warning(&mut text, warning));
        text
    }
}

/// What is measured: `status: git status`, and what it is compared with.
pub(super) fn heading(measurement: &Measurement) -> String {
    let mut text = format!("{}: {}", measurement.scenario, measurement.old.display());
    if let Some(new) = &measurement.new {
        text.push_str(&format!(" against {}", new.display()));
    }
    for argument in &measurement.arguments {
        text.push(' ');
        text.push_str(argument);
    }
    let mut text = visible(&text).into_owned();
    text.push('\n');
    text
}

fn push_warning(text: &mut String, warning: &Warning) {
    text.push_str(&format!("note: {}\n", warning.text()));
}
