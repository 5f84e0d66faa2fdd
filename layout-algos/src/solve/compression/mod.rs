//! A layout whose file compresses better, for a stated number of additional pages.
//!
//! Takes a finished order; gives one with the same recorded part. The functions after it are cut into units (see [`units`])
//! that are ordered by content (see [`content`], [`partition`]). The size of the units is the exchange rate between pages
//! and bytes: large units keep together what new runs need together, units of single functions compress best. Within the
//! reach of the compressor the units return to the order by pages, which costs no bytes and saves pages.
//!
//! How small the units may be is decided by runs that the order is not allowed to know (see [`held_out`]): the smallest ones
//! whose cost is within the budget. Where the linker's order is within it, too, the estimate of compressed size decides,
//! also against no change at all (see [`novelty`]).

mod content;
mod held_out;
mod novelty;
mod partition;
#[cfg(test)]
mod tests;
mod units;

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::UnseenOrder;
use crate::control::Control;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use crate::random::Random;
use held_out::HeldOut;
use novelty::novelty;
use units::{Unit, units};

/// Rearranges the functions after the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionAware {
    /// How much more new runs may cost, in thousandths: 20 is two per cent. The cost of recorded runs never grows.
    pub budget_permille: u32,
    /// How far back the compressor looks, in bytes.
    pub reach: u64,
    /// How the functions without traces are ordered: held-out runs are tried with the same order.
    pub unseen: UnseenOrder,
    /// Seed for random choices.
    pub seed: u64,
}

/// How the functions after the recorded ones are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TailOrder {
    /// By pages alone, as before.
    Pages,
    /// In units of this many bytes, by content.
    Units(u64),
    /// As the linker placed them.
    Link,
}

/// What one order costs and gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TradeOff {
    /// The order of the functions after the recorded ones.
    pub tail_order: TailOrder,
    /// Estimated growth of a new run's cost, in thousandths.
    pub growth_permille: u64,
    /// Estimated change of the compressed bytes; negative is smaller.
    pub compressed_bytes: i64,
}

/// An order, and what was known when it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedOrder {
    /// The order of all functions.
    pub order: FunctionOrder,
    /// What was chosen.
    pub chosen: TradeOff,
    /// What each of the given budgets, in thousandths, gives.
    pub curve: Vec<(u32, TradeOff)>,
}

/// The order as it was given.
const UNCHANGED: TradeOff =
    TradeOff { tail_order: TailOrder::Pages, growth_permille: 0, compressed_bytes: 0 };

/// Bytes that a unit may have, the smallest first: each step is a factor of about 1.4. With one byte each function is a unit.
const UNIT_BYTES: [u64; 14] =
    [1, 512, 724, 1024, 1448, 2048, 2896, 4096, 5793, 8192, 11_585, 16_384, 23_170, 32_768];

/// Compressed bytes for each hash that is not in reach: one in four windows of four bytes has one, and what is new costs
/// about as many bytes as it has. Measured with gzip on two large programs: 3.1 and 4.2.
const BYTES_PER_NOVELTY: i64 = 4;

/// The functions after the recorded ones, which may move.
struct Tail<'problem> {
    problem: &'problem LayoutProblem,
    front: Vec<FunctionId>,
    functions: Vec<FunctionId>,
    novelty: u64,
}

impl CompressionAware {
    /// The order that compresses best among those within the budget, and what each of `budgets`, in thousandths, would give. It
    /// is `order` itself if none within the budget compresses better, or if the problem has no fingerprints. Functions up to the last
    /// recorded one of `order` keep their places.
    ///
    /// Time is O(hashes of all functions · log² functions), for each of the budgets that differ in what they give.
    #[must_use]
    pub fn choose(
        &self,
        problem: &LayoutProblem,
        order: &FunctionOrder,
        budgets: &[u32],
        control: &Control<'_>,
    ) -> CompressedOrder {
        if problem.fingerprints().is_none() {
            return CompressedOrder { order: order.clone(), chosen: UNCHANGED, curve: Vec::new() };
        }
        let tail = self.tail(problem, order);
        let held_out = HeldOut::new(problem, self.unseen);
        let growths: Vec<(TailOrder, u64)> = tail_orders()
            .into_par_iter()
            .map(|tail_order| (tail_order, self.growth(&held_out, tail_order)))
            .collect();
        let own = self.budget_permille;
        let wanted: BTreeSet<(TailOrder, u64)> =
            budgets.iter().chain([&own]).flat_map(|&budget| affordable(&growths, budget)).collect();
        let tried: Vec<(TradeOff, Vec<FunctionId>)> = wanted
            .into_par_iter()
            .map(|(tail_order, growth_permille)| {
                let functions = self.arranged(&tail, tail_order, control);
                let compressed_bytes = self.gain(&tail, &functions);
                (TradeOff { tail_order, growth_permille, compressed_bytes }, functions)
            })
            .collect();
        let best = |budget: u32| {
            let is_affordable = |trade: &TradeOff| {
                affordable(&growths, budget).any(|(tail_order, _)| tail_order == trade.tail_order)
            };
            let smaller =
                tried.iter().filter(|(trade, _)| trade.compressed_bytes < 0 && is_affordable(trade));
            smaller.min_by_key(|(trade, _)| trade.compressed_bytes)
        };
        let trade = |budget: u32| best(budget).map_or(UNCHANGED, |(trade, _)| *trade);
        let curve = budgets.iter().map(|&budget| (budget, trade(budget))).collect();
        let functions = best(own).map_or(&tail.functions, |(_, functions)| functions);
        let functions = tail.front.iter().chain(functions).copied();
        CompressedOrder {
            order: FunctionOrder::with_rest(functions, problem.function_count() as u32),
            chosen: trade(own),
            curve,
        }
    }

    fn tail<'problem>(&self, problem: &'problem LayoutProblem, order: &FunctionOrder) -> Tail<'problem> {
        let is_traced = problem.traced();
        let mut front: Vec<FunctionId> = order.iter().collect();
        let recorded =
            front.iter().rposition(|function| is_traced[function.index()]).map_or(0, |last| last + 1);
        let functions = front.split_off(recorded);
        Tail { problem, front, novelty: novelty(problem, &functions, self.reach), functions }
    }

    fn gain(&self, tail: &Tail<'_>, functions: &[FunctionId]) -> i64 {
        let novelty = novelty(tail.problem, functions, self.reach);
        (novelty as i64 - tail.novelty as i64).saturating_mul(BYTES_PER_NOVELTY)
    }

    /// What new runs pay. Content is not looked at: where it would place the units is as good as random for runs.
    fn growth(&self, held_out: &HeldOut, tail_order: TailOrder) -> u64 {
        held_out.growth_permille(|problem, tail| match tail_order {
            TailOrder::Pages => tail.to_vec(),
            TailOrder::Link => in_link_order(tail),
            TailOrder::Units(bytes) => {
                let mut units = units(problem, tail, bytes);
                Random::new(self.seed, &[bytes]).shuffle(&mut units);
                units.into_iter().flat_map(|unit| unit.functions).collect()
            }
        })
    }

    fn arranged(&self, tail: &Tail<'_>, tail_order: TailOrder, control: &Control<'_>) -> Vec<FunctionId> {
        let (TailOrder::Units(bytes), Some(fingerprints)) = (tail_order, tail.problem.fingerprints()) else {
            return match tail_order {
                TailOrder::Link => in_link_order(&tail.functions),
                TailOrder::Pages | TailOrder::Units(_) => tail.functions.clone(),
            };
        };
        let mut units = units(tail.problem, &tail.functions, bytes);
        // Halving begins with the linker's order, which is good for compressors already.
        units.sort_by_key(|unit| unit.functions.iter().copied().min());
        let order = content::by_content(fingerprints, &units, self.seed, control);
        let mut result = Vec::with_capacity(tail.functions.len());
        let mut near: Vec<&Unit> = Vec::new();
        let mut near_bytes = 0u64;
        for unit in order.into_iter().map(|number| &units[number]) {
            near.push(unit);
            let bytes = unit.functions.iter().map(|&function| tail.problem.size(function));
            near_bytes = bytes.fold(near_bytes, u64::saturating_add);
            if near_bytes >= self.reach {
                release(&mut near, &mut result);
                near_bytes = 0;
            }
        }
        release(&mut near, &mut result);
        result
    }
}

/// Appends units in reach of each other in the order by pages.
fn release(near: &mut Vec<&Unit>, result: &mut Vec<FunctionId>) {
    near.sort_by_key(|unit| unit.position);
    result.extend(near.drain(..).flat_map(|unit| &unit.functions));
}

fn in_link_order(functions: &[FunctionId]) -> Vec<FunctionId> {
    let mut functions = functions.to_vec();
    functions.sort_unstable();
    functions
}

/// What is tried for a budget, of all orders with their growths: the smallest units within it, and the linker's order.
fn affordable(growths: &[(TailOrder, u64)], budget: u32) -> impl Iterator<Item = (TailOrder, u64)> {
    let within = |is_link: bool| {
        let of_kind = move |&&(it, growth): &&(TailOrder, u64)| {
            growth <= u64::from(budget) && (it == TailOrder::Link) == is_link
        };
        growths.iter().find(of_kind).copied()
    };
    within(false).into_iter().chain(within(true))
}

/// All that change something, those that compress best first.
fn tail_orders() -> Vec<TailOrder> {
    UNIT_BYTES.into_iter().map(TailOrder::Units).chain([TailOrder::Link]).collect()
}
