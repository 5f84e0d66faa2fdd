//! What a simulation found, for programs and for people.

use serde::Serialize;

use super::curve::CurvePoint;
use super::size_changes::SizeChanges;
use reorder_report::table::{Table, grouped};
use reorder_report::{Report, Width};

/// Faults of all traces under all models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// The image that the traces belong to.
    pub image: String,
    /// The image it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_image: Option<String>,
    /// How the new image was compared, if it is another build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_build: Option<BuildPairs>,
    /// All traces together, weights applied, in the order of the models asked for.
    pub totals: Vec<Faults>,
    /// Each trace, in the order given.
    pub traces: Vec<TraceFaults>,
}

/// Functions of the traces that were looked for in another build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BuildPairs {
    /// Functions that some trace runs.
    pub functions: u64,
    /// Of these, not found in the other build, neither by name nor by code: they count in their own alone.
    pub missing: u64,
    /// Functions whose size differs.
    pub sizes: SizeChanges,
}

impl BuildPairs {
    /// The line that tells how far the builds can be compared.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "new is another build: {} of {} functions that ran are found in it, the others count in image alone\n",
            grouped(self.functions.saturating_sub(self.missing)),
            grouped(self.functions)
        )
    }
}

/// One trace under all models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceFaults {
    /// Which trace.
    pub trace: String,
    /// How many times it counts in the totals.
    pub weight: u64,
    /// Functions that ran.
    pub functions: u64,
    /// Bytes of these functions.
    pub touched_bytes: u64,
    /// Bytes of their executed blocks, where the trace has these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// In the order of the models asked for.
    pub models: Vec<Faults>,
}

/// One trace, or all of them together, under one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Faults {
    /// Name of the model.
    pub model: String,
    /// Its description.
    #[serde(skip)]
    pub title: String,
    /// No layout of whole functions has fewer faults, if all of their bytes are touched. Of all traces together: no single layout
    /// has fewer in the sum.
    pub lower_bound_faults: u64,
    /// The same of the executed blocks, each of which may go anywhere; absent where functions count whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bound_faults: Option<u64>,
    /// Faults in the image.
    pub faults: u64,
    /// Faults in the new image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_faults: Option<u64>,
    /// Faults of the copies alone, where the new image has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopyFaults>,
    /// How many per cent fewer the new image has; negative when it has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fewer_percent: Option<f64>,
    /// Faults over the course of the run.
    pub curve: Vec<CurvePoint>,
}

/// Faults of the copies of a new image as if it held nothing else: how good their order is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyFaults {
    /// Faults of the code that runs in copies, and of the copied jump tables that it reads.
    pub faults: u64,
    /// No order of them has fewer.
    pub bound_faults: u64,
}

impl CopyFaults {
    /// The sum with `other`, which counts `weight` times.
    pub(super) fn plus(self, other: Self, weight: u64) -> Self {
        let sum = |one: u64, other: u64| one.saturating_add(other.saturating_mul(weight));
        Self {
            faults: sum(self.faults, other.faults),
            bound_faults: sum(self.bound_faults, other.bound_faults),
        }
    }

    fn text(self) -> String {
        format!("faults of copies alone: {} (bound {})\n", grouped(self.faults), grouped(self.bound_faults))
    }
}

/// How many per cent fewer `new` is than `old`; `None` when there is nothing to compare with.
pub(super) fn fewer_percent(old: u64, new: u64) -> Option<f64> {
    (old > 0).then(|| (1.0 - new as f64 / old as f64) * 100.0)
}

impl Simulation {
    fn is_compared(&self) -> bool {
        self.new_image.is_some()
    }

    /// Whether executed blocks are known, so that functions do not count whole.
    fn is_by_block(&self) -> bool {
        self.totals.iter().any(|total| total.block_bound_faults.is_some())
    }

    fn faults_table(&self, index: usize, title: &str, width: Width) -> String {
        let mut titles = vec![title, "bound"];
        if self.is_by_block() {
            titles.push("of blocks");
        }
        titles.push("image");
        if self.is_compared() {
            titles.extend(["new", "fewer"]);
        }
        let mut table = Table::new(titles);
        for trace in &self.traces {
            table.row(faults_row(trace.trace.clone(), &trace.models[index], self.is_by_block()));
        }
        if self.traces.len() > 1 {
            table.row(faults_row(self.total_label(), &self.totals[index], self.is_by_block()));
        }
        table.render(width)
    }

    fn total_label(&self) -> String {
        let weights = self.traces.iter().map(|trace| trace.weight).fold(0, u64::saturating_add);
        if weights == self.traces.len() as u64 {
            "total".to_owned()
        } else {
            format!("total of {weights} weighted runs")
        }
    }

    fn curve_table(&self, width: Width) -> String {
        let mut titles = vec!["functions run".to_owned()];
        // All models but one are Linux's, and four of their whole names are wider than a terminal.
        let title = |model: &String| match width == Width::UNLIMITED {
            true => model.clone(),
            false => model.strip_prefix("linux-").unwrap_or(model).to_owned(),
        };
        titles.extend(self.totals.iter().map(|total| title(&total.model)));
        let mut table = Table::new(titles);
        let points = self.totals.first().map_or(0, |total| total.curve.len());
        // Every second point: ten lines say enough, all of them are in the JSON form.
        for index in (1..points).step_by(2) {
            let mut row = vec![format!("{} %", self.totals[0].curve[index].functions_percent)];
            row.extend(self.totals.iter().map(|total| curve_cell(&total.curve[index])));
            table.row(row);
        }
        table.render(width)
    }
}

impl Report for Simulation {
    const COMMAND: &'static str = "simulate";

    fn text(&self, width: Width) -> String {
        let mut text = format!("image  {}\n", self.image);
        if let Some(new) = &self.new_image {
            text.push_str(&format!("new    {new}\n"));
        }
        if let Some(pairs) = &self.other_build {
            text.push_str(&pairs.text());
        }
        text.push_str(match self.is_by_block() {
            false => "Simulated faults of the recorded runs; no layout has fewer than the bound.\n",
            true => {
                "Simulated faults of the recorded runs, by executed basic blocks. No layout of blocks has fewer than the \
                 bound of blocks; the other is that of functions of which every byte is needed.\n"
            }
        });
        for (index, total) in self.totals.iter().enumerate() {
            text.push('\n');
            text.push_str(&self.faults_table(index, &format!("{}: {}", total.model, total.title), width));
            text.push_str(&total.copies.map_or_else(String::new, CopyFaults::text));
        }
        text.push_str("\nFaults of all runs over their course");
        text.push_str(if self.is_compared() { ", image > new\n" } else { "\n" });
        text.push_str(&self.curve_table(width));
        if let Some(pairs) = &self.other_build {
            text.push_str(&sizes_table(&pairs.sizes, width));
        }
        text
    }
}

fn sizes_table(sizes: &SizeChanges, width: Width) -> String {
    let mut table = Table::new(["functions that changed most", "old bytes", "new bytes", "change"]);
    for change in &sizes.functions {
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), grouped);
        let sign = if change.difference() < 0 { "-" } else { "+" };
        let difference = format!("{sign}{}", grouped(change.difference().unsigned_abs()));
        table.row([change.name.clone(), bytes(change.old_bytes), bytes(change.new_bytes), difference]);
    }
    let all = format!("all functions; {} changed", grouped(sizes.changed));
    let difference = sizes.new_bytes.cast_signed() - sizes.old_bytes.cast_signed();
    let sign = if difference < 0 { "-" } else { "+" };
    let difference = format!("{sign}{}", grouped(difference.unsigned_abs()));
    table.row([all, grouped(sizes.old_bytes), grouped(sizes.new_bytes), difference]);
    format!("\n{}", table.render(width))
}

fn faults_row(label: String, faults: &Faults, is_by_block: bool) -> Vec<String> {
    let mut row = vec![label, grouped(faults.lower_bound_faults)];
    if is_by_block {
        row.push(faults.block_bound_faults.map_or_else(|| "-".to_owned(), grouped));
    }
    row.push(grouped(faults.faults));
    if let Some(new) = faults.new_faults {
        row.push(grouped(new));
        row.push(faults.fewer_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %")));
    }
    row
}

fn curve_cell(point: &CurvePoint) -> String {
    let old = grouped(point.faults);
    point.new_faults.map_or_else(|| old.clone(), |new| format!("{old} > {}", grouped(new)))
}
