//! A bound from prices of bytes.
//!
//! **Prices.** Functions that the same traces run form a class c, with the traces T_c and b_c bytes. A page touched by
//! the traces U costs their weight W(U). It holds x_c bytes of classes with T_c ⊆ U, no more than b_c of each and no
//! more than P in all. Give each byte of a class a price y_c ≥ 0 such that no page can hold more worth of bytes than it
//! costs:
//!
//! ```text
//! Σ x_c · y_c ≤ W(U)   for all U and all such x
//! ```
//!
//! Summed over the pages of any layout the left sides are Σ b_c · y_c or more, the right sides are its cost; so
//! Σ b_c · y_c bounds it. (This is duality in the linear program that covers all bytes by pages.) A class of less than a
//! page may get a higher price than W(T_c) / P, because no page can be full of it. The rounding of
//! layers misses that.
//!
//! **Any prices will do.** For given U the dearest content is found by filling the page with the dearest bytes
//! first. So for any prices the largest ratio r of worth to cost over all U is found by trying all of them,
//! and prices divided by r are valid. Good prices are found by rounds of multiplicative updates: classes that take up
//! more of the pages with the largest ratios than their share become cheaper, the others dearer.
//!
//! **Blocks.** To keep the number of sets U small, at most [`BLOCK_TRACES`] traces are bounded together, and the
//! bounds of such blocks add up. Weights are integers, and so is the cost: the sum is rounded up.

use std::collections::BTreeMap;

use super::lower_bounds::Occupancy;
use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, TraceView};

/// Traces in a block: all their sets are tried.
const BLOCK_TRACES: usize = 10;

/// Rounds that improve the prices of a block, as far as there is budget.
const MAX_ROUNDS: usize = 1500;

/// Classes that may be looked at over all rounds of all blocks: some seconds.
const MAX_STEPS: usize = 1 << 30;

/// Faults of all traces, by weight, that no layout is below.
pub(super) fn price_bound(problem: &LayoutProblem, occupancy: Occupancy) -> f64 {
    let traces: Vec<TraceView> = problem.traces().iter().collect();
    let granule = granule(problem, occupancy);
    let steps = MAX_STEPS / traces.len().div_ceil(BLOCK_TRACES).max(1);
    let bounds =
        traces.chunks(BLOCK_TRACES).map(|block| Block::of(problem, occupancy, granule, block).bound(steps));
    let bound: f64 = bounds.sum();
    // What rounding may have added to it must not lift it to the next integer.
    (bound * (1.0 - 1e-9)).ceil()
}

/// The alignment whose functions are counted, sizes rounded up to it: the one that leaves most bytes to count.
fn granule(problem: &LayoutProblem, occupancy: Occupancy) -> u64 {
    if occupancy != Occupancy::Aligned {
        return 1;
    }
    let page = problem.objective().model.bytes_per_fault().max(1);
    let bytes = |granule: u64| {
        let functions = problem.traces().iter().flat_map(|trace| trace.functions);
        let aligned = functions.filter(|&&function| u64::from(problem.alignment(function)) >= granule);
        aligned
            .fold(0u64, |sum, &function| sum.saturating_add(problem.size(function).next_multiple_of(granule)))
    };
    let granules = (0..=page.ilog2().min(31)).map(|exponent| 1u64 << exponent);
    granules.max_by_key(|&granule| bytes(granule)).unwrap_or(1)
}

/// Functions that the same traces of a block run.
struct Class {
    /// Bit k: trace number k of the block.
    traces: usize,
    bytes: f64,
    price: f64,
}

struct Block {
    classes: Vec<Class>,
    /// By set of traces: its weight.
    costs: Vec<f64>,
    page: f64,
}

impl Block {
    fn of(problem: &LayoutProblem, occupancy: Occupancy, granule: u64, traces: &[TraceView<'_>]) -> Self {
        let mut sets: BTreeMap<FunctionId, usize> = BTreeMap::new();
        for (number, trace) in traces.iter().enumerate() {
            for &function in trace.functions {
                *sets.entry(function).or_default() |= 1 << number;
            }
        }
        let mut bytes: BTreeMap<usize, u64> = BTreeMap::new();
        for (function, set) in sets {
            let size = match occupancy {
                Occupancy::Padded => problem.padded_size(function),
                Occupancy::Raw => problem.size(function),
                Occupancy::Aligned if u64::from(problem.alignment(function)) < granule => 0,
                Occupancy::Aligned => problem.size(function).next_multiple_of(granule),
            };
            let sum = bytes.entry(set).or_default();
            *sum = sum.saturating_add(size);
        }
        let weight = |set: usize| -> f64 {
            let members = traces.iter().enumerate().filter(|(number, _)| set >> number & 1 == 1);
            members.map(|(_, trace)| trace.weight as f64).sum()
        };
        let costs: Vec<f64> = (0..1 << traces.len()).map(weight).collect();
        let page = problem.objective().model.bytes_per_fault().max(1) as f64;
        let classes = bytes.into_iter().filter(|&(_, bytes)| bytes > 0).map(|(traces, bytes)| Class {
            traces,
            bytes: bytes as f64,
            price: costs[traces] / page,
        });
        Self { classes: classes.collect(), costs, page }
    }

    /// The best bound of all rounds that `steps` allow.
    fn bound(mut self, steps: usize) -> f64 {
        let rounds = (steps / (self.costs.len() * self.classes.len()).max(1)).clamp(1, MAX_ROUNDS);
        let mut best = 0.0f64;
        for round in 0..rounds {
            self.classes.sort_unstable_by(|one, other| {
                other.price.total_cmp(&one.price).then(one.traces.cmp(&other.traces))
            });
            let ratios: Vec<f64> =
                (1..self.costs.len()).map(|set| self.worth(set) / self.costs[set]).collect();
            let largest = ratios.iter().copied().fold(0.0, f64::max);
            let worth: f64 = self.classes.iter().map(|class| class.bytes * class.price).sum();
            if largest == 0.0 {
                return 0.0;
            }
            best = best.max(worth / largest);
            // Sharper and in smaller steps from round to round.
            self.adjust(&ratios, largest, worth, 50.0 + 2.5 * round as f64);
        }
        best
    }

    /// Calls `visit` with the classes of the dearest content of a page that the traces `set` touch, and their bytes.
    fn fill(&self, set: usize, mut visit: impl FnMut(usize, f64)) {
        let mut room = self.page;
        for (number, class) in self.classes.iter().enumerate() {
            if class.traces & !set == 0 {
                let bytes = room.min(class.bytes);
                visit(number, bytes);
                room -= bytes;
                if room <= 0.0 {
                    break;
                }
            }
        }
    }

    fn worth(&self, set: usize) -> f64 {
        let mut worth = 0.0;
        self.fill(set, |class, bytes| worth += bytes * self.classes[class].price);
        worth
    }

    /// Moves prices so that the largest ratio falls relative to the worth of all bytes. The larger `sharpness`, the
    /// fewer sets count in addition to those of the largest ratio.
    fn adjust(&mut self, ratios: &[f64], largest: f64, worth: f64, sharpness: f64) {
        let mut taken = vec![0.0; self.classes.len()];
        let mut total = 0.0;
        for (&ratio, set) in ratios.iter().zip(1..) {
            let importance = fading(sharpness * (1.0 - ratio / largest));
            if importance > 0.0 {
                total += importance;
                let factor = importance / (self.costs[set] * ratio);
                self.fill(set, |class, bytes| taken[class] += factor * bytes * self.classes[class].price);
            }
        }
        for (class, taken) in self.classes.iter_mut().zip(taken) {
            let share = class.bytes * class.price / worth;
            let excess = (taken / total / share - 1.0).clamp(-1.0, 3.0);
            class.price *= 1.0 - 4.0 / sharpness * excess;
        }
    }
}

/// About e⁻ˣ for x ≥ 0, and 0 from 16 on; rational, hence the same on every system.
fn fading(x: f64) -> f64 {
    let mut value = (1.0 - x / 16.0).max(0.0);
    for _ in 0..4 {
        value *= value;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Trace;
    use crate::score::{FaultModel, Objective};

    fn bound(sizes: &[u64], traces: &[(u64, &[u32])]) -> f64 {
        let traces: Vec<Trace> =
            traces.iter().map(|&(weight, functions)| Trace::of(weight, functions)).collect();
        let problem = LayoutProblem::new(sizes.to_vec(), &traces)
            .and_then(|problem| {
                problem.with_objective(Objective { model: FaultModel::Pages { size: 64 }, early_percent: 0 })
            })
            .unwrap();
        price_bound(&problem, Occupancy::Raw)
    }

    #[test]
    fn small_groups_cannot_fill_pages() {
        // A core of half a page and three extensions of half a page: layers say 4.
        assert_eq!(bound(&[32; 4], &[(1, &[0, 1]), (1, &[2, 0]), (1, &[0, 3])]), 5.0);
    }

    #[test]
    fn dense_traces_cost_their_bytes() {
        assert_eq!(bound(&[64, 128, 64], &[(2, &[0, 1]), (3, &[1, 2])]), 2.0 * 3.0 + 3.0 * 3.0);
        assert_eq!(bound(&[64], &[]), 0.0);
        assert_eq!(bound(&[0], &[(1, &[0])]), 0.0);
    }
}
