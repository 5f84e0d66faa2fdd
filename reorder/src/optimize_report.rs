//! The result of the whole pipeline: one summary and one table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::trades;
use crate::optimize_memories::{self, MemoryFaults};
use reorder_layout::Strategy;
use reorder_layout::Traded;
use reorder_layout::simulate::Simulation;
use reorder_relocate::apply::Applied;
use reorder_relocate::apply::clones::CloneSummary;
use reorder_report::table::{Table, change, grouped};
use reorder_report::{Report, Width};
use reorder_run::check::CheckedRun;
use reorder_run::measure::{FigureKind, Measurement, Warning};

/// What `reorder optimize` achieved.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OptimizeReport {
    /// The program as it was.
    pub image: PathBuf,
    /// The new program.
    pub output: PathBuf,
    /// Size of the new program.
    pub file_bytes: u64,
    /// Size of the program as it was, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_before: Option<u64>,
    /// Functions of the program.
    pub functions: u64,
    /// Of these, placed first or copied because a run needs them.
    pub functions_chosen: u64,
    /// Of these, at a new address.
    pub functions_moved: u64,
    /// Of these, kept at their address because a reference cannot be proven.
    pub functions_pinned: u64,
    /// What was copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clones: Option<CloneSummary>,
    /// How they were ordered.
    pub strategy: Strategy,
    /// What the strategy left to chance.
    pub seed: u64,
    /// Each `--run`, in the order given.
    pub runs: Vec<OptimizedRun>,
    /// All runs together.
    pub total: SimulatedPages,
    /// What was traded for size.
    #[serde(flatten)]
    pub traded: Traded,
    /// All runs in each kind of memory, where several layouts were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<MemoryFaults>,
}

/// One `--run`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OptimizedRun {
    /// As given.
    pub arguments: String,
    /// By the recorded traces.
    pub simulated: SimulatedPages,
    /// What both programs did alike.
    pub checked: CheckedRun,
    /// By real runs.
    pub measured: Option<Measurement>,
}

/// Faults of 4 KiB text pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SimulatedPages {
    /// In the program as it was.
    pub old_faults: u64,
    /// In the new one.
    pub new_faults: u64,
    /// No layout of whole functions has fewer, if all of their bytes are touched.
    pub lower_bound_faults: u64,
    /// No layout of the executed blocks has fewer; absent where functions count whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bound_faults: Option<u64>,
}

/// What was placed.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// Functions placed first or copied because a run needs them.
    pub functions: usize,
    /// Size of the program as it was.
    pub bytes_before: usize,
    /// What was traded for size.
    pub traded: Traded,
    /// All runs in each kind of memory, where several layouts were made.
    pub memories: Vec<MemoryFaults>,
}

impl SimulatedPages {
    /// The totals of a simulation under its first model, which is 4 KiB pages.
    pub(crate) fn of(simulation: &Simulation) -> Self {
        simulation.totals.first().map_or_else(Self::default, |total| Self {
            old_faults: total.faults,
            new_faults: total.new_faults.unwrap_or(total.faults),
            lower_bound_faults: total.lower_bound_faults,
            block_bound_faults: total.block_bound_faults,
        })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let block_bound = match (self.block_bound_faults, other.block_bound_faults) {
            (None, None) => None,
            (one, two) => {
                Some(one.unwrap_or(self.lower_bound_faults) + two.unwrap_or(other.lower_bound_faults))
            }
        };
        Self {
            old_faults: self.old_faults + other.old_faults,
            new_faults: self.new_faults + other.new_faults,
            lower_bound_faults: self.lower_bound_faults + other.lower_bound_faults,
            block_bound_faults: block_bound,
        }
    }
}

impl OptimizeReport {
    /// Puts the results of all phases together.
    pub(crate) fn new(
        image: &Path,
        output: &Path,
        (strategy, seed): (Strategy, u64),
        placed: Placed,
        applied: &Applied,
        runs: Vec<OptimizedRun>,
    ) -> Self {
        let total = runs.iter().fold(SimulatedPages::default(), |total, run| total.plus(run.simulated));
        let (before, after) = (placed.bytes_before, applied.bytes.len());
        Self {
            image: image.to_path_buf(),
            output: output.to_path_buf(),
            file_bytes: after as u64,
            bytes_before: (before != after).then_some(before as u64),
            clones: applied.summary.clones.clone(),
            functions: applied.summary.functions as u64,
            functions_chosen: placed.functions as u64,
            functions_moved: applied.summary.functions_moved as u64,
            functions_pinned: applied.summary.pinned.len() as u64,
            strategy,
            seed,
            runs,
            total,
            traded: placed.traded,
            memories: placed.memories,
        }
    }
}

impl Report for OptimizeReport {
    const COMMAND: &'static str = "optimize";

    fn text(&self, width: Width) -> String {
        let mut titles = vec!["run", "text pages and time", "old", "new", "change", "bound"];
        if self.total.block_bound_faults.is_some() {
            titles.push("of blocks");
        }
        let mut table = Table::new(titles).with_labels(2);
        for run in &self.runs {
            simulated_row(&mut table, &run.arguments, &run.simulated);
            if let Some(measured) = &run.measured {
                measured_rows(&mut table, measured);
            }
        }
        simulated_row(&mut table, "all runs", &self.total);
        let mut text = table.render(width);
        text.push_str(&optimize_memories::text(&self.memories, width));
        text.push_str(&format!(
            "\n{}: {} bytes{}; {} of {} functions moved, {} pinned, {} {}; verified\n",
            self.output.display(),
            grouped(self.file_bytes),
            match self.bytes_before {
                None => " as before".to_owned(),
                Some(before) => format!(", {} before", grouped(before)),
            },
            grouped(self.functions_moved),
            grouped(self.functions),
            grouped(self.functions_pinned),
            grouped(self.functions_chosen),
            if self.clones.is_some() { "copied" } else { "placed first" },
        ));
        text.push_str(&trades::text(&self.traded));
        text.extend(self.runs.iter().map(|run| run.checked.text()));
        for limit in self.limits() {
            text.push_str(&format!("note: {limit}\n"));
        }
        text
    }
}

impl OptimizeReport {
    /// What limits the measurements, each once.
    fn limits(&self) -> BTreeSet<String> {
        let measured = self.runs.iter().filter_map(|run| run.measured.as_ref());
        measured.flat_map(|measured| measured.limits().map(Warning::text)).collect()
    }
}

fn simulated_row(table: &mut Table, name: &str, pages: &SimulatedPages) {
    let mut row = vec![
        name.to_owned(),
        "page faults, simulated".to_owned(),
        grouped(pages.old_faults),
        grouped(pages.new_faults),
        change(pages.old_faults as f64, pages.new_faults as f64),
        grouped(pages.lower_bound_faults),
    ];
    row.extend(pages.block_bound_faults.map(grouped));
    table.row(row);
}

fn measured_rows(table: &mut Table, measured: &Measurement) {
    let wall = if measured.cold { "cold start, ms" } else { "warm start, ms" };
    for (name, figure, digits) in [
        ("pages touched, measured", FigureKind::TextPagesTouched, 0),
        ("major faults, measured", FigureKind::MajorFaults, 0),
        (wall, FigureKind::WallMilliseconds, 1),
    ] {
        let Some(figure) = measured.figures.comparison(figure) else { continue };
        table.row([
            "",
            name,
            &format!("{:.digits$}", figure.old.median),
            &format!("{:.digits$}", figure.new.median),
            &figure.shown_change(),
        ]);
    }
}
