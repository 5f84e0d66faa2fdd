//! The report of a link: what it did for the startup of its program.

use std::collections::BTreeMap;

use layout_algos::score::{Span, lower_bound, touched_bytes};
use reorder_base::address::Address;
use reorder_image::functions::FunctionTable;
use reorder_layout::LayoutRequest;
use reorder_report::table::{counted, grouped};
use reorder_report::{Report, Width};
use reorder_trace::{Coverage, Missing, ResolvedTraces, Step};
use serde::{Deserialize, Serialize};

/// How much of what the traces name is in the image. Functions count once, no matter how many runs execute them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamesFound {
    /// Functions that the traces name.
    pub(crate) names: u64,
    /// Found as they are, or by their address.
    pub(crate) found: u64,
    /// Found under another spelling, by what decided.
    pub(crate) found_again: BTreeMap<String, u64>,
    /// Names that several functions have.
    pub(crate) ambiguous: u64,
    /// Not found.
    pub(crate) lost: u64,
    /// Some that were not found, with what they may be called now.
    pub(crate) examples: Vec<Missing>,
}

/// How many lost names are listed.
const EXAMPLES: usize = 20;

impl NamesFound {
    /// The account of functions that `coverage` holds.
    #[must_use]
    pub(crate) fn new(coverage: &Coverage) -> Self {
        let exact = [Step::Address, Step::Name, Step::Hash, Step::LoadAddress];
        let is_exact = |step: &Step| exact.contains(step);
        Self {
            names: coverage.events,
            found: coverage.found.iter().filter(|(step, _)| is_exact(step)).map(|(_, count)| count).sum(),
            found_again: coverage
                .found
                .iter()
                .filter(|(step, _)| !is_exact(step))
                .map(|(step, count)| (step.name().to_owned(), *count))
                .collect(),
            ambiguous: coverage.ambiguous,
            lost: coverage.unknown,
            examples: coverage.missing.iter().take(EXAMPLES).cloned().collect(),
        }
    }

    /// Found in any way.
    #[must_use]
    pub(crate) fn all_found(&self) -> u64 {
        self.found + self.found_again.values().sum::<u64>()
    }

    /// The same in percent, rounded down; 100 if there are no functions.
    #[must_use]
    pub(crate) fn percent(&self) -> u64 {
        (self.all_found() * 100).checked_div(self.names).unwrap_or(100)
    }

    /// Whether page faults of the functions that were found say something of the runs.
    #[must_use]
    pub(crate) fn tells_of_faults(&self) -> bool {
        const MIN_FOUND_PERCENT: u64 = 80;
        self.percent() >= MIN_FOUND_PERCENT
    }

    /// Lost names for a warning, none if none were lost.
    #[must_use]
    pub(crate) fn lost_text(&self) -> Option<String> {
        const MAX_LISTED: usize = 5;
        if self.lost + self.ambiguous == 0 {
            return None;
        }
        let listed: Vec<String> = self.examples.iter().take(MAX_LISTED).map(ToString::to_string).collect();
        let more = if self.examples.len() > MAX_LISTED { ", …" } else { "" };
        Some(format!(
            "{} of {} functions of the traces are not found: {}{more}",
            self.lost + self.ambiguous,
            self.names,
            listed.join(", ")
        ))
    }
}

/// Simulated page faults of all recorded runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// In the linker's own layout.
    pub(crate) before: u64,
    /// In the delivered output; absent where not all functions that ran are found again in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<u64>,
    /// No layout of whole functions has fewer.
    pub(crate) bound: u64,
}

/// What was done for one output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkReport {
    /// The output.
    pub(crate) output: String,
    /// Always; the report of a link that is not ordered has the reason instead of what follows.
    pub is_ordered: bool,
    /// The real linker and its version.
    pub(crate) linker: String,
    /// How the order got into the output.
    pub(crate) route: String,
    /// Functions of the image.
    pub(crate) functions: u64,
    /// Functions that recorded runs need.
    pub(crate) needed: u64,
    /// Functions that were given a place.
    pub(crate) ordered: u64,
    /// Their bytes.
    pub(crate) ordered_bytes: u64,
    /// Functions that the linker moves along because it cannot distinguish them from others.
    pub(crate) moved_along: u64,
    /// Functions that recorded runs need and that share their input section with others: they move together.
    pub(crate) sharing: u64,
    /// Recorded runs.
    pub(crate) starts: u64,
    /// How many names of the traces were found.
    pub(crate) names: NamesFound,
    /// Faults under the memory that the layout is for.
    pub(crate) faults: Option<Faults>,
    /// What was left out of the trace files, or is unreliable.
    pub(crate) notes: Vec<String>,
    /// The kind of layout, as text.
    pub(crate) layout: String,
    /// Whether the order comes from the cache: the same link was done before.
    pub(crate) is_remembered: bool,
}

impl Report for LinkReport {
    const COMMAND: &'static str = "link";

    fn text(&self, _: Width) -> String {
        let mut text = format!(
            "{}: {} of {} ({}) ordered, {} % of {} found",
            self.output,
            grouped(self.ordered),
            counted(self.functions, "function"),
            counted(self.ordered_bytes, "byte"),
            self.names.percent(),
            counted(self.names.names, "name"),
        );
        let again: u64 = self.names.found_again.values().sum();
        if again > 0 {
            text.push_str(&format!(" ({again} by another spelling or by their code)"));
        }
        if let Some(faults) = self.faults {
            let found = if self.names.lost + self.names.ambiguous > 0 { " from what was found" } else { "" };
            text.push_str(&format!(
                "; page faults of {}, simulated{found}: {} before, {}bound {}",
                counted(self.starts, "run"),
                grouped(faults.before),
                faults.after.map_or_else(String::new, |after| format!("{} now, ", grouped(after))),
                grouped(faults.bound)
            ));
        }
        if self.is_remembered {
            text.push_str("; as in the link before");
        }
        text
    }
}

/// What recorded runs touch, in order of first execution.
#[derive(Clone, Debug)]
pub(crate) struct StartSpans {
    /// Weight and places of each run.
    starts: Vec<(u64, Vec<Span>)>,
}

impl StartSpans {
    /// The places of the functions that `traces` run.
    #[must_use]
    pub(crate) fn new(functions: &FunctionTable<'_>, traces: &ResolvedTraces) -> Self {
        let span = |&index| {
            let function = functions.get(index);
            Span { start: function.start.0, end: function.end.0 }
        };
        let starts =
            traces.traces.iter().map(|trace| (trace.weight, trace.functions.iter().map(span).collect()));
        Self { starts: starts.collect() }
    }

    /// The faults as it is, and after each function went where `moved` says. Where that is not known of a function that ran,
    /// the faults afterwards are not known either.
    #[must_use]
    pub(crate) fn faults(
        &self,
        moved: impl Fn(Address) -> Option<Address>,
        request: &LayoutRequest,
    ) -> Faults {
        let model = request.memory.model();
        let mut sum = Faults { before: 0, after: Some(0), bound: 0 };
        for (weight, before) in &self.starts {
            let after = before.iter().map(|span| {
                let start = moved(Address(span.start))?.0;
                Some(Span { start, end: start.saturating_add(span.end - span.start) })
            });
            let after: Option<Vec<Span>> = after.collect();
            let plus = |sum: u64, value: u64| sum.saturating_add(value.saturating_mul(*weight));
            sum.bound = plus(sum.bound, lower_bound(touched_bytes(before), model));
            sum.before = plus(sum.before, model.faults(before.iter().copied()).total());
            sum.after = sum.after.zip(after).map(|(sum, after)| plus(sum, model.faults(after).total()));
        }
        sum
    }
}
