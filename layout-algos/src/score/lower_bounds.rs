//! Lower bounds of the cost of any layout, for each run alone and for all together.
//!
//! Two kinds of joint bound are combined: [`layer_bound`](super::layer_bound), which rounds up to whole pages and knows
//! the fault curve, and [`price_bound`](super::price_bound), which knows that small groups of functions cannot fill
//! pages of their own, for the number of faults alone. The cost of a run is a weighted mean of its faults and
//! the mean of its curve, and bounds of the two add up to a bound of the cost.
//!
//! Read-around: windows of different runs lie differently, so there are no pages that several runs share, and
//! only single traces are bounded. Each fault makes at most one window present, and the faults until a function has run
//! have made present all bytes of the functions up to it.
//!
//! Numbers are in floating point: a bound may exceed the exact one by rounding, at most 10⁻⁹ of it.

use super::FaultModel;
use super::layer_bound::layer_bounds;
use super::price_bound::price_bound;
use crate::ids::FunctionId;
use crate::problem::LayoutProblem;

/// Bytes that functions keep others from using.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occupancy {
    /// The bytes of the functions. Proven for every layout.
    Raw,
    /// Proven for every layout in which each function starts at a multiple of its alignment. Let a be a power of two
    /// up to the page size. Of the functions with alignment a or more, no two share one of the aligned blocks of a
    /// bytes, and a page with such a block is touched if the block's function is. So those functions need as many
    /// bytes as their sizes rounded up to a. The bound takes the best a for each set of functions; less aligned ones
    /// count only for smaller a, because they may lie in the padding of the others.
    Aligned,
    /// Sizes rounded up to each function's own alignment. The same as `Aligned`, hence proven, if all alignments are
    /// equal and no larger than a page; otherwise what is reached in practice by layouts that do not fill padding, but
    /// not proven: a function of little alignment fits into the padding after one of much.
    Padded,
}

/// Least cost of all runs of a problem by its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBounds {
    /// Sum of what each run alone costs at least.
    pub per_trace: f64,
    /// The best that was found for all runs together; at least `per_trace`.
    pub joint: f64,
}

/// The bounds of `problem` under its objective, sizes counted as `occupancy` says.
///
/// Time is O(events · log events) and, for the joint bound, some seconds at most.
#[must_use]
pub fn lower_bounds(problem: &LayoutProblem, occupancy: Occupancy) -> LowerBounds {
    let early = f64::from(problem.objective().early_percent) / 100.0;
    let (per_trace, joint) = layer_bounds(problem, occupancy, early);
    if matches!(problem.objective().model, FaultModel::ReadAround { .. }) {
        return LowerBounds { per_trace, joint: per_trace };
    }
    let layers = |early| layer_bounds(problem, occupancy, early).1;
    let faults = if early < 1.0 { layers(0.0).max(price_bound(problem, occupancy)) } else { 0.0 };
    let curve = if early > 0.0 { layers(1.0) } else { 0.0 };
    LowerBounds { per_trace, joint: joint.max((1.0 - early) * faults + early * curve) }
}

/// Bytes of a growing set of functions.
#[derive(Default)]
pub(super) struct Occupied {
    /// By binary logarithm of a block size: bytes of the functions aligned to it, sizes rounded up to it.
    by_alignment: [u64; 32],
}

impl Occupied {
    pub(super) fn add(
        &mut self,
        problem: &LayoutProblem,
        function: FunctionId,
        occupancy: Occupancy,
        page: u64,
    ) {
        let size = problem.size(function);
        let alignment = u64::from(problem.alignment(function)).min(page);
        let finest = match occupancy {
            Occupancy::Aligned => alignment.ilog2(),
            Occupancy::Raw | Occupancy::Padded => 0,
        };
        let size = if occupancy == Occupancy::Padded { size.next_multiple_of(alignment) } else { size };
        for (exponent, bytes) in self.by_alignment.iter_mut().enumerate().take(finest as usize + 1) {
            *bytes = bytes.saturating_add(size.next_multiple_of(1 << exponent));
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.by_alignment.into_iter().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;
    use crate::score::Objective;

    fn bounds(
        sizes: &[u64],
        alignments: &[u32],
        traces: &[(u64, &[u32])],
        early_percent: u32,
    ) -> [LowerBounds; 3] {
        let traces: Vec<Trace> =
            traces.iter().map(|&(weight, functions)| Trace::of(weight, functions)).collect();
        let objective = Objective { model: FaultModel::Pages { size: 128 }, early_percent };
        let problem = LayoutProblem::new(sizes.to_vec(), &traces)
            .and_then(|problem| problem.with_alignments(alignments.to_vec()))
            .and_then(|problem| problem.with_objective(objective))
            .unwrap();
        [Occupancy::Raw, Occupancy::Aligned, Occupancy::Padded].map(|way| lower_bounds(&problem, way))
    }

    #[test]
    fn two_traces_share_one_layout() {
        // Either run fits a page, but not both the common half and the two own ones.
        let [raw, ..] = bounds(&[64, 64, 64], &[1; 3], &[(1, &[0, 1]), (1, &[0, 2])], 0);
        assert_eq!(raw, LowerBounds { per_trace: 2.0, joint: 3.0 });
        let [raw, ..] = bounds(&[64, 64, 64], &[1; 3], &[(5, &[0, 1]), (3, &[0, 2])], 0);
        assert_eq!(raw, LowerBounds { per_trace: 8.0, joint: 11.0 });
        // Runs without anything in common are best bounded apart.
        let [raw, ..] = bounds(&[64, 64], &[1; 2], &[(1, &[0]), (1, &[1])], 0);
        assert_eq!(raw, LowerBounds { per_trace: 2.0, joint: 2.0 });
    }

    #[test]
    fn prefixes_bound_the_curve() {
        // After each third: 1, 2 and 2 pages.
        let [raw, ..] = bounds(&[100, 100, 56], &[1; 3], &[(3, &[2, 0, 1])], 100);
        assert!((raw.per_trace - 5.0).abs() < 1e-9 && raw.joint >= raw.per_trace);
    }

    #[test]
    fn only_equal_alignments_prove_the_padding() {
        let trace: [(u64, &[u32]); 1] = [(1, &[0, 1, 2])];
        let totals =
            |alignments: &[u32]| bounds(&[65, 33, 30], alignments, &trace, 0).map(|bound| bound.joint);
        assert_eq!(totals(&[1, 1, 1]), [1.0, 1.0, 1.0]);
        assert_eq!(totals(&[16, 16, 16]), [1.0, 2.0, 2.0]);
        // The last function may follow the first: 65 + 30 + 33 bytes.
        assert_eq!(totals(&[64, 16, 1]), [1.0, 1.0, 2.0]);
    }
}
