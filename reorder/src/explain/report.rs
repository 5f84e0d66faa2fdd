//! The report on some functions, for programs and for people.

use serde::Serialize;

use super::MAX_NAME_LENGTH;
use super::blocks::ExplainedBlocks;
use super::neighbours::Neighbour;
use super::placement::Placed;
use reorder_base::address::Address;
use reorder_image::pins::PinReason;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::visible::visible_start;
use reorder_report::{Report, Width};

/// The result of `reorder explain`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExplainReport {
    /// The image.
    pub image: String,
    /// Where new places come from: a second image, or a layout that `reorder apply` would choose.
    pub new: Option<String>,
    /// How faults are counted.
    pub model: String,
    /// In the order asked for.
    pub functions: Vec<ExplainedFunction>,
    /// What could not be determined.
    pub limits: Vec<String>,
}

/// One function.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedFunction {
    /// Demangled.
    pub name: String,
    /// As in the symbol table.
    pub symbols: Vec<String>,
    /// Its size.
    pub size_bytes: u64,
    /// Where it is.
    pub old: Side,
    /// Where it is or would be after relocation.
    pub new: Option<Side>,
    /// One entry for each scenario in which it runs.
    pub runs: Vec<Run>,
    /// What of it runs, where the traces have its basic blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<ExplainedBlocks>,
    /// Number of all scenarios.
    pub scenarios: u64,
    /// Why it stays, if it does.
    pub pin: Option<ExplainedPin>,
    /// Why it is where it is in the new image.
    pub placement: Option<Placed>,
}

/// A function's place in one image.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// First byte.
    pub address: Address,
    /// First addresses of its pages.
    pub pages: Vec<Address>,
    /// Functions before it, the nearest last.
    pub before: Vec<Neighbour>,
    /// Functions after it, the nearest first.
    pub after: Vec<Neighbour>,
    /// Other functions on its pages.
    pub page_mates: u64,
}

/// A scenario in which a function runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Which.
    pub scenario: String,
    /// Recordings of it that run the function.
    pub traces: u64,
    /// Number of all its recordings.
    pub of_traces: u64,
    /// Its position in the first of these recordings, from 1.
    pub rank: u64,
    /// Number of functions in that recording.
    pub of_functions: u64,
    /// Since the start of the run, if the trace has times.
    pub nanoseconds: Option<u64>,
    /// Page faults that it causes by running when it does.
    pub faults: u64,
    /// The same in the new image.
    pub new_faults: Option<u64>,
}

/// Why a function cannot be moved.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedPin {
    /// The obligation that failed.
    pub reason: PinReason,
    /// The same for people.
    pub because: String,
    /// The instruction, data word or byte that shows it.
    pub evidence: Address,
}

impl Report for ExplainReport {
    const COMMAND: &'static str = "explain";

    fn text(&self, width: Width) -> String {
        let mut text = String::new();
        for function in &self.functions {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&function.text(self, width));
        }
        for limit in &self.limits {
            text.push_str(&format!("note: {limit}\n"));
        }
        text
    }
}

impl ExplainedFunction {
    fn text(&self, report: &ExplainReport, width: Width) -> String {
        let mut text = format!("{}\n", width.cut(&self.name, 1, 1));
        for symbol in self.symbols.iter().filter(|symbol| **symbol != self.name) {
            let symbol = visible_start(symbol, MAX_NAME_LENGTH);
            text.push_str(&format!("  symbol   {}\n", width.cut(&symbol, 4, 5)));
        }
        let place = format!(
            "{}, {} in {}",
            self.old.shown(),
            counted(self.size_bytes, "byte"),
            visible_start(&report.image, MAX_NAME_LENGTH)
        );
        text.push_str(&format!("{}\n", width.hanging("  is       ", &place)));
        if let (Some(new), Some(name)) = (&self.new, &report.new) {
            let name = visible_start(name, MAX_NAME_LENGTH);
            let place = format!("{} in {name}", new.shown());
            text.push_str(&format!("{}\n", width.hanging("  becomes  ", &place)));
        }
        if let Some(pin) = &self.pin {
            let why = format!("{}; see {}", pin.because, pin.evidence);
            text.push_str(&format!("{}\n", width.hanging("  pinned   ", &why)));
        }
        match self.runs.is_empty() {
            true => {
                text.push_str(&format!("  runs     in none of {}\n", counted(self.scenarios, "scenario")))
            }
            false => text.push_str(&self.runs_text(&report.model, width)),
        }
        if let Some(blocks) = &self.blocks {
            text.push_str(&blocks.text(self.size_bytes, width));
        }
        if let Some(placement) = &self.placement {
            for (number, because) in placement.because.iter().enumerate() {
                let label = if number == 0 { "because" } else { "" };
                text.push_str(&format!("{}\n", width.hanging(&format!("  {label:<8} "), because)));
            }
        }
        let side = self.new.as_ref().unwrap_or(&self.old);
        text.push_str(&side.neighbours_text(&self.name, self.size_bytes, self.runs.len() as u64, width));
        text
    }

    fn runs_text(&self, model: &str, width: Width) -> String {
        let mut titles = vec!["  runs in", "recordings", "as number", "after ms"];
        let faults = format!("faults ({model})");
        titles.push(&faults);
        if self.new.is_some() {
            titles.push("new");
        }
        let mut table = Table::new(titles);
        for run in &self.runs {
            let mut row = vec![
                format!("    {}", visible_start(&run.scenario, MAX_NAME_LENGTH)),
                format!("{} of {}", run.traces, run.of_traces),
                format!("{} of {}", grouped(run.rank), grouped(run.of_functions)),
                run.nanoseconds.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", time as f64 / 1e6)),
                run.faults.to_string(),
            ];
            row.extend(run.new_faults.map(|faults| faults.to_string()));
            table.row(row);
        }
        table.render(width)
    }
}

impl Side {
    fn shown(&self) -> String {
        match (self.pages.first(), self.pages.len()) {
            (Some(page), 1) => format!("{} on page {page}", self.address),
            (Some(page), count) => format!("{} on {count} pages from {page}", self.address),
            (None, _) => self.address.to_string(),
        }
    }

    fn neighbours_text(&self, own: &str, size: u64, scenarios: u64, width: Width) -> String {
        let mut table = Table::new(["  beside it", "bytes", "scenarios"]);
        let row = |mark: &str, name: &str, size: u64, scenarios: u64| {
            [format!("  {mark} {name}"), grouped(size), scenarios.to_string()]
        };
        for one in &self.before {
            table.row(row(" ", &one.name, one.size_bytes, one.scenarios));
        }
        table.row(row(">", own, size, scenarios));
        for one in &self.after {
            table.row(row(" ", &one.name, one.size_bytes, one.scenarios));
        }
        table.render(width)
    }
}
