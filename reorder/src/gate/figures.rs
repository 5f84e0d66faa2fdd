//! Computes the figures of an image and its scenarios.

use std::ops::Range;

use layout_algos::score::{Span, lower_bound, touched_bytes};
use rayon::prelude::*;

use super::compressed::Compression;
use super::metric::{Figure, Key, Metric};
use crate::sizes::{self, Tier};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::memory::MemoryModel;
use reorder_layout::opened::OpenedImage;
use reorder_layout::order_file::read::OrderCoverage;
use reorder_layout::scenario::Scenario;
use reorder_layout::simulate::{Placement, Touched, spans};
use reorder_trace::{Coverage, ResolvedTrace};

/// What figures are computed from.
#[derive(Clone, Copy)]
pub struct Subject<'files> {
    /// The whole file.
    pub bytes: &'files [u8],
    /// Its code.
    pub text: &'files [Range<Address>],
    /// The same, parsed; of an image with copies the one without them.
    pub image: &'files OpenedImage<'files>,
    /// Where code of `image` runs in an image with copies.
    pub placement: Option<&'files Placement<'files>>,
    /// Its functions.
    pub functions: &'files FunctionTable<'files>,
    /// Its scenarios.
    pub scenarios: &'files [Scenario<'files>],
    /// How many of their events were found.
    pub coverage: &'files Coverage,
    /// The coverage of the order file, if there is one.
    pub order: Option<&'files OrderCoverage>,
    /// Functions that cannot be moved, where that is known.
    pub pinned: Option<usize>,
    /// The memory models that faults are counted by.
    pub models: &'files [MemoryModel],
    /// The compressors and block sizes.
    pub compressions: &'files [Compression],
}

/// All figures: by memory model, of the scenarios, of the image.
///
/// # Errors
/// When a compressor fails.
pub fn figures(subject: &Subject<'_>) -> Result<Vec<Figure>> {
    let mut figures = of_scenarios(subject);
    let text_bytes: u64 = subject.text.iter().map(|range| range.end.distance_from(range.start)).sum();
    let mut of_image = |metric, part: &str, value: f64| {
        figures.push(Figure::new(Key::of_image(metric, part), value));
    };
    of_image(Metric::TextBytes, "", text_bytes as f64);
    of_image(Metric::FileBytes, "", subject.bytes.len() as f64);
    let sizes: Vec<u64> =
        subject.compressions.par_iter().map(|one| one.size(subject.bytes)).collect::<Result<_>>()?;
    for (compression, size) in subject.compressions.iter().zip(sizes) {
        of_image(Metric::Compressed, &compression.name(), size as f64);
    }
    for (part, size) in by_tier(subject)? {
        of_image(Metric::CompressedCode, &part, size as f64);
    }
    if let Some(pinned) = subject.pinned {
        of_image(Metric::PinnedFunctions, "", pinned as f64);
    }
    of_image(Metric::TraceCoverage, "", percent(subject.coverage.resolved(), subject.coverage.events));
    if let Some(order) = subject.order {
        of_image(Metric::OrderCoverage, "", percent(order.found() as u64, order.lines as u64));
    }
    Ok(figures)
}

/// The part of the key and the compressed bytes for each tier's code, by the first compressor that is given for whole files.
fn by_tier(subject: &Subject<'_>) -> Result<Vec<(String, u64)>> {
    let whole = subject.compressions.iter().find(|one| one.block_kib.is_none());
    let Some(compressor) = whole.map(|one| one.compressor) else { return Ok(Vec::new()) };
    let traces = subject.scenarios.iter().flat_map(|scenario| scenario.traces.iter().copied());
    let tiers = sizes::tiers(subject.image, subject.functions, traces)?;
    let places = sizes::own_places(subject.functions);
    let sizes = sizes::compressed_code(subject.image, &places, &tiers, compressor)?;
    let part = |(tier, size): (Tier, u64)| (format!("{}.{}", tier.name(), compressor.name()), size);
    let known = |(tier, _): &(Tier, u64)| tiers.known.contains(tier);
    Ok(sizes
        .map_or_else(Vec::new, |sizes| Tier::ALL.into_iter().zip(sizes).filter(known).map(part).collect()))
}

/// 0 for an empty total: an order file without lines orders no function.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// What one run touches in the judged image, and the least that it could touch.
struct Run {
    spans: Vec<Span>,
    /// Executed bytes where blocks are known, else those of functions.
    bytes: u64,
}

impl Run {
    fn of(subject: &Subject<'_>, trace: &ResolvedTrace) -> Self {
        let executed = subject.image.executed(std::slice::from_ref(trace), subject.functions);
        let executed = executed.as_ref().map(|executed| (executed, 0));
        let touched = Touched::of(subject.functions, trace, executed, subject.placement);
        Self { bytes: touched.least_bytes(), spans: touched.all_new().unwrap_or_else(|| touched.all_old()) }
    }
}

fn of_scenarios(subject: &Subject<'_>) -> Vec<Figure> {
    let functions = subject.functions;
    let run = |trace: &&ResolvedTrace| Run::of(subject, trace);
    let runs: Vec<Vec<Run>> =
        subject.scenarios.par_iter().map(|scenario| scenario.traces.iter().map(run).collect()).collect();
    let mut figures = Vec::new();
    for model in subject.models {
        let (mut sum, mut bounds) = (0.0, 0.0);
        for (scenario, runs) in subject.scenarios.iter().zip(&runs) {
            let mean = |value: &dyn Fn(&Run) -> u64| {
                let mut runs = runs.iter();
                scenario.mean(|_| runs.next().map_or(0.0, |run| value(run) as f64))
            };
            let faults = mean(&|run| model.model.faults(run.spans.iter().copied()).total());
            let bound = mean(&|run| lower_bound(run.bytes, model.model));
            let key = Key::of_scenario(Metric::Faults, &model.name, &scenario.name);
            figures.push(Figure::new(key, faults).with_bound(bound));
            (sum, bounds) = (sum + faults, bounds + bound);
        }
        figures.push(Figure::new(Key::of_image(Metric::Faults, &model.name), sum).with_bound(bounds));
    }
    for scenario in subject.scenarios {
        let bytes = scenario.mean(|trace: &ResolvedTrace| touched_bytes(&spans(functions, trace)) as f64);
        let count = scenario.mean(|trace| trace.functions.len() as f64);
        for (metric, value) in [(Metric::StartupBytes, bytes), (Metric::StartupFunctions, count)] {
            figures.push(Figure::new(Key::of_scenario(metric, "", &scenario.name), value));
        }
    }
    figures
}
