//! Lower bounds for all recorded runs together: one layout serves them all, so their sum is more than what each needs alone.

use layout_algos::ids::FunctionId;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::score::{FaultModel, Objective, Occupancy, Span, lower_bounds};

use super::{Placement, Touched, spans};
use reorder_image::functions::FunctionTable;
use reorder_trace::ResolvedTrace;

/// What each kind of layout may order: functions, blocks, or the code in copies.
pub(super) struct Pieces {
    functions: Option<LayoutProblem>,
    blocks: Option<LayoutProblem>,
    copies: Option<LayoutProblem>,
}

impl Pieces {
    /// Of `traces`, which touch what `touched`, parallel to them, says.
    pub(super) fn of(
        functions: &FunctionTable<'_>,
        traces: &[ResolvedTrace],
        touched: &[Touched],
        placement: Option<&Placement<'_>>,
    ) -> Self {
        let weights = || traces.iter().map(|trace| trace.weight);
        let whole: Vec<Vec<Span>> = traces.iter().map(|trace| spans(functions, trace)).collect();
        let size = |span: &Span| span.end - span.start;
        // Branches of copies may be shorter than those of the originals.
        let size_of_block = |span: &Span| match placement {
            Some(placement) => {
                let places = placement.of_spans(std::slice::from_ref(span));
                let bytes: u64 =
                    places.iter().flatten().map(|place| place.end.saturating_sub(place.start)).sum();
                bytes.min(size(span))
            }
            None => size(span),
        };
        let is_by_block = touched.iter().any(|touched| touched.is_by_block);
        let copied: Option<Vec<&[Span]>> =
            touched.iter().map(|touched| touched.in_copies.as_deref()).collect();
        let executed = touched.iter().map(|touched| touched.old.as_slice());
        Self {
            functions: problem(weights().zip(whole.iter().map(Vec::as_slice)), size),
            blocks: is_by_block.then(|| problem(weights().zip(executed), size_of_block)).flatten(),
            copies: copied.and_then(|copied| problem(weights().zip(copied.iter().copied()), size)),
        }
    }

    pub(super) fn functions_bound(&self, model: FaultModel) -> u64 {
        bound(self.functions.as_ref(), model)
    }

    pub(super) fn copies_bound(&self, model: FaultModel) -> u64 {
        bound(self.copies.as_ref(), model)
    }

    pub(super) fn blocks_bound(&self, model: FaultModel) -> u64 {
        bound(self.blocks.as_ref(), model)
    }
}

/// The problem of ordering the pieces into which the boundaries of all spans cut what the traces touch.
fn problem<'spans>(
    traces: impl Iterator<Item = (u64, &'spans [Span])> + Clone,
    size: impl Fn(&Span) -> u64,
) -> Option<LayoutProblem> {
    let ends = |span: &Span| [span.start, span.end];
    let mut cuts: Vec<u64> = traces.clone().flat_map(|(_, spans)| spans.iter().flat_map(ends)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let sizes = cuts.windows(2).map(|cut| size(&Span { start: cut[0], end: cut[1] })).collect();
    let trace = |(weight, spans): (u64, &[Span])| {
        let mut is_known = vec![false; cuts.len()];
        let mut functions = Vec::new();
        for span in spans {
            let first = cuts.partition_point(|&cut| cut < span.start);
            let last = cuts.partition_point(|&cut| cut < span.end);
            for (piece, is_known) in (first as u32..).zip(&mut is_known[first..last.max(first)]) {
                if !std::mem::replace(is_known, true) {
                    functions.push(FunctionId(piece));
                }
            }
        }
        Trace { weight, functions }
    };
    let traces: Vec<Trace> = traces.filter(|(weight, _)| *weight > 0).map(trace).collect();
    // Code is smaller than 4 GiB, and so are the numbers of its pieces.
    LayoutProblem::new(sizes, &traces).ok()
}

/// Zero for models of windows, whose bounds together are hardly above those of each run alone, and for one run.
fn bound(problem: Option<&LayoutProblem>, model: FaultModel) -> u64 {
    if !matches!(model, FaultModel::Pages { .. }) {
        return 0;
    }
    let objective = Objective { model, early_percent: 0 };
    let problem = problem.filter(|problem| problem.traces().len() > 1);
    let problem = problem.and_then(|problem| problem.clone().with_objective(objective).ok());
    // Rounding must not lift it to the next integer.
    let whole = |bound: f64| (bound * (1.0 - 1e-9)).ceil() as u64;
    problem.map_or(0, |problem| whole(lower_bounds(&problem, Occupancy::Raw).joint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_share_little_need_more_together() {
        let span = |start, end| Span { start, end };
        let (one, other) = ([span(0, 3000), span(5000, 6000)], [span(0, 3000), span(7000, 8000)]);
        let pages = FaultModel::Pages { size: 4096 };
        let bound_of = |traces: &[(u64, &[Span])]| {
            bound(problem(traces.iter().copied(), |span| span.end - span.start).as_ref(), pages)
        };
        assert_eq!(bound_of(&[(1, &one)]), 0, "one run has its own bound");
        assert_eq!(bound_of(&[(1, &one), (1, &other)]), 3, "5,000 bytes do not fit into a page");
        assert_eq!(bound_of(&[(0, &one)]), 0);
        assert_eq!(bound_of(&[]), 0);
    }
}
