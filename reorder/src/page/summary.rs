//! The figures of a page, for programs and for people.

use std::collections::BTreeMap;

use layout_algos::score::Span;
use serde::Serialize;

use super::PageRequest;
use super::names::{name_of, printable};
use super::pins::PinnedFunctions;
use super::processes::MeasuredProcess;
use super::scenarios::{FirstTouch, ModelResult, Results, ScenarioResult};
use crate::sizes::Sizes;
use reorder_image::functions::FunctionIndex;
use reorder_image::pins::PinReason;
use reorder_layout::simulate::BuildPairs;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::{Report, Width};
use reorder_trace::{Coverage, Missing};

/// Functions listed by size.
const MAX_LISTED: usize = 20;

/// Functions listed that were not found.
const MAX_MISSING: usize = 1000;

/// The main figures. Faults are simulated; a scenario's are means over its recordings, and those of all scenarios are the
/// sums of these means.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The image that the traces belong to.
    pub image: String,
    /// The image it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_image: Option<String>,
    /// Where the page is; empty inside the page itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub page: String,
    /// Bytes of code.
    pub text_bytes: u64,
    /// Functions of the image.
    pub functions: u64,
    /// Functions that any recording runs.
    pub functions_run: u64,
    /// How the second image was compared, if it is another build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_build: Option<BuildPairs>,
    /// How much of the functions that run is executed; absent where no recording has basic blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<ExecutedSummary>,
    /// The copies of the second image, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesSummary>,
    /// Functions at another address in the second image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions_moved: Option<u64>,
    /// Functions that are not pinned and still keep their address; absent if pins are unknown, and of images with copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions_kept: Option<u64>,
    /// All scenarios together, in the order of the models asked for.
    pub models: Vec<ModelTotal>,
    /// Each scenario, by name.
    pub scenarios: Vec<ScenarioTotal>,
    /// What cannot be moved.
    pub pins: Pins,
    /// The coverage of the traces.
    pub coverage: CoverageSummary,
    /// The biggest functions that any recording runs, biggest first.
    pub biggest_functions: Vec<BiggestFunction>,
    /// Faults of the whole process, in the program and its libraries, as they were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<MeasuredProcess>,
    /// What the images cost in packages and updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
}

/// What of the functions that run is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExecutedSummary {
    /// Bytes that any recording executes; functions of which no blocks are known count whole.
    pub bytes: u64,
    /// Bytes of all functions that any recording runs.
    pub function_bytes: u64,
}

/// The copies that an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CopiesSummary {
    /// How many.
    pub fragments: u64,
    /// Functions of which they are.
    pub functions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A memory model and what all scenarios cost under it.
#[derive(Clone, Debug, Serialize)]
pub struct ModelTotal {
    /// Its description.
    pub title: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The most that a fault brings.
    pub bytes_per_fault: u64,
    /// The figures.
    #[serde(flatten)]
    pub faults: ModelFaults,
}

/// Faults under one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelFaults {
    /// Name of the model.
    pub model: String,
    /// In the image.
    pub faults: f64,
    /// In the second image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_faults: Option<f64>,
    /// No layout of whole functions has fewer.
    pub lower_bound_faults: f64,
    /// By how many percent the second image has fewer; negative if it has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fewer_percent: Option<f64>,
}

/// One scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioTotal {
    /// Its name.
    pub name: String,
    /// Its recordings.
    pub recordings: u64,
    /// Functions that any of them runs.
    pub functions: u64,
    /// Mean bytes of the functions that a recording runs.
    pub touched_bytes: f64,
    /// In the order of the models asked for.
    pub models: Vec<ModelFaults>,
}

/// Functions that cannot be moved.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pins {
    /// Why they are unknown; the other figures are 0 then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<String>,
    /// How many there are.
    pub functions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them any recording runs.
    pub functions_run: u64,
    /// By reason, the most frequent first.
    pub reasons: Vec<PinReasonTotal>,
}

/// Functions that are pinned for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct PinReasonTotal {
    /// The obligation that failed.
    pub reason: PinReason,
    /// The same in words.
    pub title: String,
    /// How many functions.
    pub functions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How much of the traces was found in the image.
#[derive(Clone, Debug, Serialize)]
pub struct CoverageSummary {
    /// Events in traces of this image.
    pub events: u64,
    /// Events for which a function was found, by kind of evidence.
    pub found: Vec<FoundBy>,
    /// Events whose name several functions have.
    pub ambiguous: u64,
    /// Events that match no function.
    pub unknown: u64,
    /// How many functions of the traces the image does not have.
    pub missing_functions: u64,
    /// The most frequent of them.
    pub missing: Vec<Missing>,
    /// Traces of other images, left out, by image.
    pub other_images: BTreeMap<String, u64>,
}

/// Events that were found by one kind of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundBy {
    /// The kind of evidence.
    pub by: &'static str,
    /// How many events.
    pub events: u64,
}

/// A function and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BiggestFunction {
    /// Demangled.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// How many of these bytes any recording executes, where blocks are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed_bytes: Option<u64>,
}

/// Sums up what was found.
pub(super) fn summarise(request: &PageRequest<'_>, results: &Results, pins: &PinnedFunctions) -> Summary {
    let functions = request.functions;
    let places = request.new_places();
    let is_moved = |places: &[Option<Span>], index: FunctionIndex| {
        let place = places.get(index.0 as usize).copied().flatten();
        place.is_some_and(|place| place.start != functions.get(index).start.0)
    };
    // Pins say why a function kept its address in an image that was made from this one; another build has no reason to, and
    // copies are made so that functions keep theirs.
    let copies = copies(request);
    let made_places = places.as_deref().filter(|_| request.other_build().is_none() && copies.is_none());
    Summary {
        image: printable(&request.names.old),
        new_image: request.names.new.as_deref().map(printable),
        page: String::new(),
        text_bytes: request.text().iter().map(|range| range.end.distance_from(range.start)).sum(),
        functions: functions.len() as u64,
        functions_run: results.all.order.len() as u64,
        other_build: request.other_build().map(|build| {
            build.pairs(request.scenarios.iter().flat_map(|scenario| scenario.traces.iter().copied()))
        }),
        executed: executed(request, &results.all),
        copies,
        functions_moved: places
            .as_ref()
            .map(|places| functions.iter().filter(|(index, _)| is_moved(places, *index)).count() as u64),
        functions_kept: made_places.zip(pins.as_ref().ok()).map(|(places, pins)| {
            let is_pinned = |index| pins.binary_search_by_key(&index, |(pinned, _)| *pinned).is_ok();
            let is_kept = |index| !is_moved(places, index) && !is_pinned(index);
            functions.iter().filter(|(index, _)| is_kept(*index)).count() as u64
        }),
        models: model_totals(request, &results.all),
        scenarios: request
            .scenarios
            .iter()
            .zip(&results.scenarios)
            .map(|(scenario, result)| ScenarioTotal {
                name: printable(&scenario.name),
                recordings: scenario.traces.len() as u64,
                functions: result.order.len() as u64,
                touched_bytes: rounded(result.touched_bytes),
                models: model_faults(request, result),
            })
            .collect(),
        pins: pin_totals(request, results, pins),
        coverage: coverage_summary(request.coverage),
        biggest_functions: biggest(request, &results.all),
        processes: request.processes.to_vec(),
        sizes: request.sizes.cloned(),
    }
}

fn model_totals(request: &PageRequest<'_>, all: &ScenarioResult) -> Vec<ModelTotal> {
    use layout_algos::score::FaultModel;
    let page_bytes = |model| match model {
        FaultModel::Pages { size } | FaultModel::FaultAround { block: size } => size,
        FaultModel::ReadAround { page, .. } => page,
    };
    let total = |(model, faults): (&reorder_layout::memory::MemoryModel, ModelFaults)| ModelTotal {
        title: printable(&model.title),
        page_bytes: page_bytes(model.model),
        bytes_per_fault: model.model.bytes_per_fault(),
        faults,
    };
    request.models.iter().zip(model_faults(request, all)).map(total).collect()
}

fn model_faults(request: &PageRequest<'_>, result: &ScenarioResult) -> Vec<ModelFaults> {
    let faults = |(model, result): (&reorder_layout::memory::MemoryModel, &ModelResult)| {
        let (old, new, bound) = result.totals();
        let fewer = |new: f64| (old > 0.0).then(|| rounded((1.0 - new / old) * 100.0));
        ModelFaults {
            model: printable(&model.name),
            faults: rounded(old),
            new_faults: new.map(rounded),
            lower_bound_faults: rounded(bound),
            fewer_percent: new.and_then(fewer),
        }
    };
    request.models.iter().zip(&result.models).map(faults).collect()
}

/// Rounds to hundredths: means of whole numbers are sums of shares, which are slightly inexact.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn pin_totals(request: &PageRequest<'_>, results: &Results, pins: &PinnedFunctions) -> Pins {
    let pinned = match pins {
        Ok(pinned) => pinned,
        Err(because) => return Pins { unknown_because: Some(printable(because)), ..Pins::default() },
    };
    let mut is_run = vec![false; request.functions.len()];
    results.all.order.iter().for_each(|touch| is_run[touch.function.0 as usize] = true);
    let size = |index: FunctionIndex| request.functions.get(index).size();
    let mut by_reason: BTreeMap<PinReason, (u64, u64)> = BTreeMap::new();
    for (function, pin) in pinned {
        let (count, bytes) = by_reason.entry(pin.reason).or_default();
        *count += 1;
        *bytes += size(*function);
    }
    let mut reasons: Vec<PinReasonTotal> = by_reason
        .into_iter()
        .map(|(reason, (functions, bytes))| PinReasonTotal {
            reason,
            title: reason.to_string(),
            functions,
            bytes,
        })
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.functions));
    Pins {
        unknown_because: None,
        functions: pinned.len() as u64,
        bytes: pinned.iter().map(|(function, _)| size(*function)).sum(),
        functions_run: pinned.iter().filter(|(function, _)| is_run[function.0 as usize]).count() as u64,
        reasons,
    }
}

fn coverage_summary(coverage: &Coverage) -> CoverageSummary {
    let missing = |missing: &Missing| Missing {
        name: printable(&missing.name),
        events: missing.events,
        likely: missing.likely.as_deref().map(printable),
    };
    let found = coverage.found.iter().map(|(step, &events)| FoundBy { by: step.name(), events });
    let others = coverage.other_images.iter();
    CoverageSummary {
        events: coverage.events,
        found: found.collect(),
        ambiguous: coverage.ambiguous,
        unknown: coverage.unknown,
        missing_functions: coverage.missing.len() as u64,
        missing: coverage.missing.iter().take(MAX_MISSING).map(missing).collect(),
        other_images: others.map(|(image, &traces)| (printable(image), traces)).collect(),
    }
}

fn executed(request: &PageRequest<'_>, all: &ScenarioResult) -> Option<ExecutedSummary> {
    let parts = all.parts.as_ref().filter(|_| request.has_blocks())?;
    let sum =
        |bytes: &dyn Fn(FunctionIndex) -> u64| all.order.iter().map(|touch| bytes(touch.function)).sum();
    Some(ExecutedSummary {
        bytes: sum(&|function| parts.old.bytes(function)),
        function_bytes: sum(&|function| request.functions.get(function).size()),
    })
}

fn copies(request: &PageRequest<'_>) -> Option<CopiesSummary> {
    let fragments = request.fragments();
    let mut functions: Vec<FunctionIndex> = fragments.iter().map(|fragment| fragment.function).collect();
    functions.dedup();
    (!fragments.is_empty()).then(|| CopiesSummary {
        fragments: fragments.len() as u64,
        functions: functions.len() as u64,
        bytes: fragments.iter().map(|fragment| fragment.copy.end - fragment.copy.start).sum(),
    })
}

fn biggest(request: &PageRequest<'_>, all: &ScenarioResult) -> Vec<BiggestFunction> {
    let parts = all.parts.as_ref().filter(|_| request.has_blocks());
    let size = |touch: &FirstTouch| request.functions.get(touch.function).size();
    let mut biggest: Vec<&FirstTouch> = all.order.iter().collect();
    biggest.sort_by_key(|touch| (std::cmp::Reverse(size(touch)), touch.function));
    biggest
        .into_iter()
        .take(MAX_LISTED)
        .map(|touch| BiggestFunction {
            name: name_of(request.functions, touch.function),
            size_bytes: size(touch),
            executed_bytes: parts.map(|parts| parts.old.bytes(touch.function)),
        })
        .collect()
}

impl Report for Summary {
    const COMMAND: &'static str = "report";

    fn text(&self, width: Width) -> String {
        let mut text = format!("{}\nimage  {}\n", self.page, self.image);
        if let Some(new) = &self.new_image {
            text.push_str(&format!("new    {new}\n"));
        }
        if let Some(pairs) = &self.other_build {
            text.push_str(&pairs.text());
        }
        text.push_str(&format!("\n{}", self.faults_table(width)));
        let found: u64 = self.coverage.found.iter().map(|found| found.events).sum();
        text.push_str(&format!(
            "\n{} of {} run in {}; {} of {} found\n",
            grouped(self.functions_run),
            counted(self.functions, "function"),
            counted(self.scenarios.len() as u64, "scenario"),
            grouped(found),
            counted(self.coverage.events, "event"),
        ));
        if let Some(ExecutedSummary { bytes, function_bytes }) = self.executed {
            let percent = bytes as f64 * 100.0 / function_bytes.max(1) as f64;
            let (bytes, all) = (grouped(bytes), counted(function_bytes, "byte"));
            text.push_str(&format!("{bytes} of {all} of these functions are executed ({percent:.0} %)\n"));
        }
        if let Some(CopiesSummary { fragments, functions, bytes }) = self.copies {
            let (fragments, functions) = (counted(fragments, "fragment"), counted(functions, "function"));
            text.push_str(&format!("{fragments} of {functions} are copied, {}\n", counted(bytes, "byte")));
        }
        text.push_str(&match &self.pins.unknown_because {
            Some(because) => format!("{because}\n"),
            None => format!(
                "{} pinned, {} of them run\n",
                counted(self.pins.functions, "function"),
                grouped(self.pins.functions_run)
            ),
        });
        if let Some(kept) = self.functions_kept.filter(|kept| *kept > 0) {
            text.push_str(&format!(
                "{} keep their address, without being pinned\n",
                counted(kept, "function")
            ));
        }
        if let Some(sizes) = &self.sizes {
            text.push_str(&format!("\n{}", sizes.text(width)));
        }
        text + &self.processes_text(width)
    }
}

impl Summary {
    /// Faults of the whole process, after an empty line.
    #[must_use]
    pub fn processes_text(&self, width: Width) -> String {
        self.processes.iter().map(|process| format!("\n{}", process.text(width))).collect()
    }

    fn faults_table(&self, width: Width) -> String {
        let mut titles = vec!["faults, all scenarios", "bound", "image"];
        if self.new_image.is_some() {
            titles.extend(["new", "fewer"]);
        }
        let mut table = Table::new(titles);
        for ModelTotal { title, faults, .. } in &self.models {
            let mut row = vec![
                format!("{}: {title}", faults.model),
                count(faults.lower_bound_faults),
                count(faults.faults),
            ];
            if let Some(new) = faults.new_faults {
                row.push(count(new));
                row.push(
                    faults.fewer_percent.map_or_else(|| "-".to_owned(), |fewer| format!("{fewer:.1} %")),
                );
            }
            table.row(row);
        }
        table.render(width)
    }
}

fn count(faults: f64) -> String {
    grouped(faults.round() as u64)
}
