//! What `reorder optimize --libraries` achieved: a line for each image that mattered, and the process as a whole.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::cli::trades;
use crate::optimize_report::SimulatedPages;
use reorder_layout::Traded;
use reorder_report::table::{Table, change, counted, grouped};
use reorder_report::visible::visible;
use reorder_report::{Report, Width};
use reorder_run::check::CheckedRun;
use reorder_run::measure::process::ProcessFaults;
use reorder_run::measure::{FigureKind, Measurement, Warning};

/// Images with a line of their own; the others share one.
const MAX_SHOWN: usize = 10;

/// The whole set.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OptimizeSetReport {
    /// The command line that runs the program with the set.
    pub start: String,
    /// Where the set is.
    pub directory: String,
    /// The program and the libraries that were moved, those with the most faults before first.
    pub images: Vec<OptimizedImage>,
    /// Number of other libraries, of which no run executes code: only their names were placed.
    pub only_names_placed: usize,
    /// Libraries that stay as they are: no run executes them, or they cannot be moved.
    pub left: Vec<KeptLibrary>,
    /// All images together.
    pub total: SimulatedPages,
    /// Each `--run`, in the order given.
    pub runs: Vec<OptimizedSetRun>,
}

/// What became of the images of a set.
pub(crate) struct SetOutcome {
    /// The program and the libraries that were moved.
    pub(crate) images: Vec<OptimizedImage>,
    /// Number of libraries of which only names were placed.
    pub(crate) only_names_placed: usize,
    /// Libraries that stay as they are.
    pub(crate) left: Vec<KeptLibrary>,
}

/// A library that stays as it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeptLibrary {
    /// Where it is.
    pub library: String,
    /// Why it was refused, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// One image of the set.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OptimizedImage {
    /// The image as it was.
    pub image: String,
    /// The new one.
    pub output: String,
    /// Its functions.
    pub functions: u64,
    /// Of these, at a new address.
    pub functions_moved: u64,
    /// Of these, kept at their address because a reference cannot be proven.
    pub functions_pinned: u64,
    /// By the recorded runs.
    #[serde(flatten)]
    pub pages: SimulatedPages,
    /// What was traded for size.
    #[serde(flatten)]
    pub traded: Traded,
}

/// One `--run`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OptimizedSetRun {
    /// As given.
    pub arguments: String,
    /// What the program did alike without and with the set.
    pub checked: CheckedRun,
    /// By real runs of the whole process.
    pub measured: Option<Measurement>,
}

impl OptimizeSetReport {
    /// Puts the results of all phases together.
    pub(crate) fn new(
        start: String,
        directory: &Path,
        SetOutcome { mut images, only_names_placed, left }: SetOutcome,
        runs: Vec<OptimizedSetRun>,
    ) -> Self {
        images.sort_by(|one, other| {
            let key = |image: &OptimizedImage| Reverse(image.pages.old_faults);
            (key(one), &one.image).cmp(&(key(other), &other.image))
        });
        let total = images.iter().fold(SimulatedPages::default(), |total, image| total.plus(image.pages));
        let directory = directory.display().to_string();
        Self { start, directory, images, only_names_placed, left, total, runs }
    }

    fn pages_table(&self, width: Width) -> String {
        let mut table = Table::new(["text page faults, simulated", "before", "after", "change", "bound"]);
        let mut row = |name: String, pages: SimulatedPages| {
            table.row([
                name,
                grouped(pages.old_faults),
                grouped(pages.new_faults),
                change(pages.old_faults as f64, pages.new_faults as f64),
                grouped(pages.lower_bound_faults),
            ]);
        };
        let (shown, rest) = self.images.split_at(self.images.len().min(MAX_SHOWN));
        for image in shown {
            row(image.image.clone(), image.pages);
        }
        if !rest.is_empty() {
            let pages = rest.iter().fold(SimulatedPages::default(), |sum, image| sum.plus(image.pages));
            row(counted(rest.len() as u64, "other image"), pages);
        }
        row("all images".to_owned(), self.total);
        table.render(width)
    }

    /// The first run for which it is known where faults happen.
    fn first_process(&self) -> Option<(&str, &ProcessFaults)> {
        self.runs
            .iter()
            .find_map(|run| Some((run.arguments.as_str(), run.measured.as_ref()?.process.as_ref()?)))
    }

    fn measured_table(&self, width: Width) -> Option<String> {
        self.runs.iter().find_map(|run| run.measured.as_ref())?;
        let mut table = Table::new(["run", "the whole process, measured", "before", "after", "change"]);
        table = table.with_labels(2);
        for run in &self.runs {
            let Some(measured) = &run.measured else { continue };
            let wall = if measured.cold { "cold start, ms" } else { "warm start, ms" };
            let kinds = [
                ("major faults", FigureKind::MajorFaults, 0),
                ("minor faults", FigureKind::MinorFaults, 0),
                ("read from the disk, KiB", FigureKind::KibibytesRead, 0),
                (wall, FigureKind::WallMilliseconds, 1),
            ];
            for (number, (name, kind, digits)) in kinds.into_iter().enumerate() {
                let Some(figure) = measured.figures.comparison(kind) else { continue };
                table.row([
                    if number == 0 { run.arguments.as_str() } else { "" },
                    name,
                    &format!("{:.digits$}", figure.old.median),
                    &format!("{:.digits$}", figure.new.median),
                    &figure.shown_change(),
                ]);
            }
        }
        Some(table.render(width))
    }
}

impl Report for OptimizeSetReport {
    const COMMAND: &'static str = "optimize_set";

    fn text(&self, width: Width) -> String {
        let mut text = self.pages_table(width);
        if let Some(table) = self.measured_table(width) {
            text.push_str(&format!("\n{table}"));
        }
        if let Some((run, process)) = self.first_process() {
            let title = format!("faults of `{}`, by kind", visible(run));
            text.push_str(&format!("\n{}", process.kinds_text(&title, width)));
        }
        text.push('\n');
        text.extend(self.runs.iter().map(|run| run.checked.text()));
        let limits: BTreeSet<String> = self
            .runs
            .iter()
            .filter_map(|run| run.measured.as_ref())
            .flat_map(|measured| measured.limits().map(Warning::text))
            .collect();
        text.extend(limits.iter().map(|limit| format!("note: {limit}\n")));
        for image in &self.images {
            text.extend(trades::choices(&image.traded).map(|choice| format!("{}: {choice}\n", image.image)));
        }
        for kept in &self.left {
            if let Some(refusal) = &kept.refusal {
                text.push_str(&format!("not moved: {}: {refusal}\n", kept.library));
            }
        }
        text.push_str(&format!(
            "{} moved and verified in {}{}; {} unchanged; run the program with:\n  {}\n",
            counted(self.images.len() as u64, "image"),
            self.directory,
            match self.only_names_placed as u64 {
                0 => String::new(),
                1 => "; in 1 more library only names were placed".to_owned(),
                others => format!("; in {} more libraries only names were placed", grouped(others)),
            },
            match self.left.len() as u64 {
                0 => "no other stays".to_owned(),
                1 => "1 library stays".to_owned(),
                left => format!("{} libraries stay", grouped(left)),
            },
            self.start
        ));
        text
    }
}
