//! Traces and images to page faults: the cost of recorded startups in each layout, and a lower bound for all layouts.
//!
//! Takes an image's functions, the traces, and where the functions are in a second image; gives [`Simulation`].
//! No program is run. A function that runs is taken to touch all of its pages, unless the trace has its basic blocks: then
//! those of the executed ones, or of their copies, and of code outside of functions that the loader or these blocks may
//! enter. Pages are those of the true addresses.

mod bounds;
mod comparison;
mod control;
mod curve;
mod entries;
mod other_build;
mod placement;
mod report;
mod saving;
mod size_changes;
#[cfg(test)]
mod tests;
mod touched;

use std::path::Path;

use layout_algos::score::{FaultCurve, Span, lower_bound, touched_bytes};

use bounds::Pieces;

pub use comparison::Comparison;
pub use curve::CurvePoint;
pub use other_build::{OtherBuild, simulate_builds};
pub use placement::Placement;
pub use report::{BuildPairs, CopyFaults, Faults, Simulation, TraceFaults};
pub use saving::functions_that_save_a_page;
pub use size_changes::{SizeChange, SizeChanges};
pub use touched::{Touched, placed, touched_pages};

use crate::memory::MemoryModel;
use reorder_image::functions::FunctionTable;
use reorder_trace::{ExecutedBlocks, ResolvedTrace, ResolvedTraces};

/// What the two images are called in the report.
#[derive(Clone, Debug)]
pub struct ImageNames {
    /// The image that the traces belong to.
    pub old: String,
    /// The relocated one.
    pub new: Option<String>,
}

impl ImageNames {
    /// By their paths.
    #[must_use]
    pub fn of(old: &Path, new: Option<&Path>) -> Self {
        Self { old: old.display().to_string(), new: new.map(|new| new.display().to_string()) }
    }
}

/// Simulates all traces under `models` in the old image and, with a `placement`, in the new one. `executed`
/// has the executed blocks of the traces; without it, functions count whole.
///
/// Trace `weight`s count in the totals: a trace of weight 3 counts like three equal ones.
#[must_use]
pub fn simulate(
    names: ImageNames,
    functions: &FunctionTable<'_>,
    traces: &ResolvedTraces,
    executed: Option<&ExecutedBlocks>,
    placement: Option<&Placement<'_>>,
    models: &[MemoryModel],
) -> Simulation {
    let touched = |(number, trace): (usize, &ResolvedTrace)| {
        Touched::of(functions, trace, executed.map(|executed| (executed, number)), placement)
    };
    let touched: Vec<Touched> = traces.traces.iter().enumerate().map(touched).collect();
    let simulated = |(trace, touched)| simulate_trace(functions, trace, touched, models);
    let faults: Vec<TraceFaults> = traces.traces.iter().zip(&touched).map(simulated).collect();
    let pieces = Pieces::of(functions, &traces.traces, &touched, placement);
    let total = |(index, model)| {
        let mut total = total(model, index, &faults);
        total.lower_bound_faults = total.lower_bound_faults.max(pieces.functions_bound(model.model));
        total.block_bound_faults =
            total.block_bound_faults.map(|bound| bound.max(pieces.blocks_bound(model.model)));
        if let Some(copies) = &mut total.copies {
            copies.bound_faults = copies.bound_faults.max(pieces.copies_bound(model.model));
        }
        total
    };
    let totals = models.iter().enumerate().map(total).collect();
    Simulation { image: names.old, new_image: names.new, other_build: None, totals, traces: faults }
}

fn simulate_trace(
    functions: &FunctionTable<'_>,
    trace: &ResolvedTrace,
    touched: &Touched,
    models: &[MemoryModel],
) -> TraceFaults {
    let bytes = touched_bytes(&spans(functions, trace));
    let block_bytes = touched.is_by_block.then(|| touched.least_bytes());
    let under = |named: &MemoryModel| {
        let model = named.model;
        let (old, new) = (touched.old_curve(model), touched.new_curve(model));
        Faults {
            model: named.name.clone(),
            title: named.title.clone(),
            lower_bound_faults: lower_bound(bytes, model),
            block_bound_faults: block_bytes.map(|bytes| lower_bound(bytes, model)),
            faults: old.total(),
            new_faults: new.as_ref().map(FaultCurve::total),
            copies: touched.in_copies.as_ref().map(|spans| CopyFaults {
                faults: model.faults(spans.iter().copied()).total(),
                bound_faults: lower_bound(touched_bytes(spans), model),
            }),
            fewer_percent: new.as_ref().and_then(|new| report::fewer_percent(old.total(), new.total())),
            curve: curve::points(&old, new.as_ref(), &touched.nanoseconds),
        }
    };
    TraceFaults {
        trace: trace.label.clone(),
        weight: trace.weight,
        functions: trace.functions.len() as u64,
        touched_bytes: bytes,
        block_bytes,
        models: models.iter().map(under).collect(),
    }
}

/// Where the functions of a trace are, in order of first execution.
#[must_use]
pub fn spans(functions: &FunctionTable<'_>, trace: &ResolvedTrace) -> Vec<Span> {
    let span = |&index| {
        let function = functions.get(index);
        Span { start: function.start.0, end: function.end.0 }
    };
    trace.functions.iter().map(span).collect()
}

/// Sums up model number `index` over all traces.
fn total(model: &MemoryModel, index: usize, traces: &[TraceFaults]) -> Faults {
    let sum = |value: &dyn Fn(&Faults) -> u64| {
        traces
            .iter()
            .map(|trace| value(&trace.models[index]).saturating_mul(trace.weight))
            .fold(0, u64::saturating_add)
    };
    let is_compared =
        traces.iter().all(|trace| trace.models[index].new_faults.is_some()) && !traces.is_empty();
    let faults = sum(&|model| model.faults);
    let is_by_block = traces.iter().any(|trace| trace.block_bytes.is_some());
    let block_bound = |model: &Faults| model.block_bound_faults.unwrap_or(model.lower_bound_faults);
    let new_faults = is_compared.then(|| sum(&|model| model.new_faults.unwrap_or(0)));
    Faults {
        model: model.name.clone(),
        title: model.title.clone(),
        lower_bound_faults: sum(&|model| model.lower_bound_faults),
        block_bound_faults: is_by_block.then(|| sum(&block_bound)),
        faults,
        new_faults,
        copies: sum_of_copies(traces.iter().map(|trace| (trace.weight, trace.models[index].copies))),
        fewer_percent: new_faults.and_then(|new| report::fewer_percent(faults, new)),
        curve: curve::sum(traces.iter().map(|trace| (trace.weight, trace.models[index].curve.as_slice()))),
    }
}

/// Nothing of images without copies, nor without traces.
fn sum_of_copies(mut traces: impl Iterator<Item = (u64, Option<CopyFaults>)>) -> Option<CopyFaults> {
    let (weight, first) = traces.next()?;
    let first = CopyFaults::default().plus(first?, weight);
    traces.try_fold(first, |sum, (weight, copies)| Some(sum.plus(copies?, weight)))
}
