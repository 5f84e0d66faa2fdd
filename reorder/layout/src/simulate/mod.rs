//! Traces and images to page faults: the cost of recorded startups in each layout, and a lower bound for all layouts.
//!
//! Takes an image's functions, the traces, and where the functions are in a second image; gives [`Simulation`].
//! No program is run. A function that runs is taken to touch all of its pages; pages are those of the true addresses.

mod curve;
mod report;
#[cfg(test)]
mod tests;

use std::path::Path;

use layout_algos::score::{FaultCurve, Span, lower_bound, touched_bytes};

pub use crate::memory::MemoryModel;
pub use curve::CurvePoint;
pub use report::{Faults, Simulation, TraceFaults};

use reorder_image::functions::FunctionTable;
use reorder_trace::{ResolvedTrace, ResolvedTraces};
use reorder_verify::AddressMoves;

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

/// Simulates all traces under `models` in the old image and, when `moves` gives the new addresses, in the new one.
///
/// Trace `weight`s count in the totals: a trace of weight 3 counts like three equal ones.
#[must_use]
pub fn simulate(
    names: ImageNames,
    functions: &FunctionTable<'_>,
    traces: &ResolvedTraces,
    moves: Option<&AddressMoves>,
    models: &[MemoryModel],
) -> Simulation {
    let traces: Vec<TraceFaults> =
        traces.traces.iter().map(|trace| simulate_trace(functions, trace, moves, models)).collect();
    let totals = models.iter().enumerate().map(|(index, model)| total(model, index, &traces)).collect();
    Simulation { image: names.old, new_image: names.new, totals, traces }
}

fn simulate_trace(
    functions: &FunctionTable<'_>,
    trace: &ResolvedTrace,
    moves: Option<&AddressMoves>,
    models: &[MemoryModel],
) -> TraceFaults {
    let old_spans = spans(functions, trace);
    let new_spans: Option<Vec<Span>> = moves.map(|moves| {
        let moved = |&index| {
            let function = functions.get(index);
            let start = moves.map(function.start).0;
            Span { start, end: start.saturating_add(function.size()) }
        };
        trace.functions.iter().map(moved).collect()
    });
    let bytes = touched_bytes(&old_spans);
    let under = |named: &MemoryModel| {
        let model = named.model;
        let old = model.faults(old_spans.iter().copied());
        let new = new_spans.as_ref().map(|spans| model.faults(spans.iter().copied()));
        Faults {
            model: named.name.clone(),
            title: named.title.clone(),
            lower_bound_faults: lower_bound(bytes, model),
            faults: old.total(),
            new_faults: new.as_ref().map(FaultCurve::total),
            fewer_percent: new.as_ref().and_then(|new| report::fewer_percent(old.total(), new.total())),
            curve: curve::points(&old, new.as_ref(), &trace.nanoseconds),
        }
    };
    TraceFaults {
        trace: trace.label.clone(),
        weight: trace.weight,
        functions: trace.functions.len() as u64,
        touched_bytes: bytes,
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
    let new_faults = is_compared.then(|| sum(&|model| model.new_faults.unwrap_or(0)));
    Faults {
        model: model.name.clone(),
        title: model.title.clone(),
        lower_bound_faults: sum(&|model| model.lower_bound_faults),
        faults,
        new_faults,
        fewer_percent: new_faults.and_then(|new| report::fewer_percent(faults, new)),
        curve: curve::sum(traces.iter().map(|trace| (trace.weight, trace.models[index].curve.as_slice()))),
    }
}
