//! Recorded runs in another build of the image that they are of: an older one, or one that was linked with an order.
//!
//! The builds are paired function by function. Functions count whole, each with its size in its own build; those that the
//! other build does not have count in their own alone.

use std::ops::Range;

use layout_algos::score::Span;

use super::{BuildPairs, ImageNames, Simulation, SizeChanges, Touched, simulate_trace, spans, total};
use crate::memory::MemoryModel;
use reorder_base::address::Address;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::{Pairing, ResolvedTrace, ResolvedTraces};

/// More functions that changed are counted, not listed.
const MAX_LISTED: usize = 10;

/// Where the functions of an image are in another build.
#[derive(Clone, Debug)]
pub struct OtherBuild {
    places: Vec<Option<Span>>,
    text: Vec<Range<Address>>,
    sizes: SizeChanges,
}

impl OtherBuild {
    /// The places in `new`, whose code is in `text`, of the functions of `old`.
    #[must_use]
    pub fn new(old: &FunctionTable<'_>, new: &FunctionTable<'_>, text: Vec<Range<Address>>) -> Self {
        let pairing = Pairing::of(old, new);
        let place = |partner: &Option<FunctionIndex>| {
            partner.map(|partner| {
                let function = new.get(partner);
                Span { start: function.start.0, end: function.end.0 }
            })
        };
        let sizes = SizeChanges::of(old, new, &pairing, MAX_LISTED);
        Self { places: pairing.partners.iter().map(place).collect(), text, sizes }
    }

    /// How many of the functions that some trace runs have a partner.
    #[must_use]
    pub fn pairs<'run>(&self, traces: impl IntoIterator<Item = &'run ResolvedTrace>) -> BuildPairs {
        let mut run: Vec<FunctionIndex> =
            traces.into_iter().flat_map(|trace| trace.functions.iter().copied()).collect();
        run.sort_unstable();
        run.dedup();
        let missing = run.iter().filter(|index| self.place(**index).is_none()).count();
        BuildPairs { functions: run.len() as u64, missing: missing as u64, sizes: self.sizes.clone() }
    }

    /// The ranges of code in the other build.
    #[must_use]
    pub fn text(&self) -> &[Range<Address>] {
        &self.text
    }

    pub(super) fn place(&self, index: FunctionIndex) -> Option<Span> {
        self.places.get(index.0 as usize).copied().flatten()
    }
}

impl Touched {
    /// What `trace` touches in its own build and in `other`.
    pub(super) fn of_builds(
        functions: &FunctionTable<'_>,
        trace: &ResolvedTrace,
        other: &OtherBuild,
    ) -> Self {
        let old = spans(functions, trace);
        let mut new = Vec::with_capacity(old.len());
        let mut new_counts = Vec::with_capacity(old.len());
        for index in &trace.functions {
            new.extend(other.place(*index));
            new_counts.push(new.len());
        }
        let nanoseconds = trace.nanoseconds.clone();
        Self { old, new: Some(new), new_counts, nanoseconds, ..Self::default() }
    }
}

/// Simulates all traces under `models` in their own build and in `other`.
#[must_use]
pub fn simulate_builds(
    names: ImageNames,
    functions: &FunctionTable<'_>,
    resolved: &ResolvedTraces,
    other: &OtherBuild,
    models: &[MemoryModel],
) -> Simulation {
    let simulated = |trace: &ResolvedTrace| {
        simulate_trace(functions, trace, &Touched::of_builds(functions, trace, other), models)
    };
    let traces: Vec<_> = resolved.traces.iter().map(simulated).collect();
    let totals = models.iter().enumerate().map(|(index, model)| total(model, index, &traces)).collect();
    let other_build = Some(other.pairs(&resolved.traces));
    Simulation { image: names.old, new_image: names.new, other_build, totals, traces }
}
