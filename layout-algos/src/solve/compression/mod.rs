//! A layout whose file compresses better, for a stated number of additional pages.
//!
//! Takes a finished order; gives one with the same recorded part. Of the functions after it, those are pulled forward that have much
//! content in common with what is placed there (see [`walk`]); all others stay in the order by pages. How much a pull must
//! bring is the exchange rate between pages and bytes.
//!
//! That rate is decided by runs that the order is not allowed to know (see [`held_out`]): the lowest one whose cost is within the
//! budget. Where the linker's order is within it, too, the estimate of compressed size decides, also against no change at all (see
//! [`estimate`]).

mod content;
mod estimate;
mod held_out;
mod partition;
mod tail;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::UnseenOrder;
use crate::control::Control;
use crate::ids::FunctionId;
use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;
use content::{CommonContent, Content};
use estimate::estimate;
use held_out::HeldOut;
use partition::content_ranks;
use tail::Tail;

/// Rearranges the functions after the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionAware {
    /// How much more new runs may cost, in thousandths: 20 is two per cent. The cost of recorded runs never grows.
    pub budget_permille: u32,
    /// How far back the compressor looks, in bytes.
    pub reach: u64,
    /// How the functions without traces are ordered: held-out runs are tried with the same order.
    pub unseen: UnseenOrder,
}

/// How the functions after the recorded ones are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TailOrder {
    /// By pages alone, as before.
    Pages,
    /// By pages, but for functions that have at least this many compressed bytes in common with one at another place.
    Content(u32),
    /// By content alone, for a compressor that looks far back.
    Partitioned,
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

/// Compressors that look back farther than this see what is far away, too.
const MAX_NEAR_REACH: u64 = 32 << 10;

/// The order as it was given.
const UNCHANGED: TradeOff =
    TradeOff { tail_order: TailOrder::Pages, growth_permille: 0, compressed_bytes: 0 };

/// What a function that leaves its place must have in common with one there, in compressed bytes: each step is a factor of 1.3 to 2.
const MIN_SHARED_BYTES: [u32; 14] = [3, 6, 12, 24, 48, 72, 96, 144, 192, 288, 384, 576, 768, 1152];

impl CompressionAware {
    /// The order that compresses best among those within the budget, and what each of `budgets`, in thousandths, would give. It
    /// is `order` itself if none within the budget compresses better, or if the problem has no fingerprints. Functions up to the last
    /// recorded one of `order` keep their places.
    ///
    /// Time is O(hashes · log hashes), and O(functions · log functions) for each order that is tried, on each part of the
    /// recorded runs, too.
    #[must_use]
    pub fn choose(
        &self,
        problem: &LayoutProblem,
        order: &FunctionOrder,
        budgets: &[u32],
        control: &Control<'_>,
    ) -> CompressedOrder {
        let Some(common) = CommonContent::new(problem) else {
            return CompressedOrder { order: order.clone(), chosen: UNCHANGED, curve: Vec::new() };
        };
        // Pulls of single functions make smaller files for all others.
        let ranks = match self.reach > MAX_NEAR_REACH {
            true => content_ranks(problem, control).unwrap_or_default(),
            false => Vec::new(),
        };
        let content = Content { common, ranks };
        let arranged =
            |tail: &Tail, tail_order| tail.arranged(problem, &content, tail_order, self.reach, control);
        let held_out = HeldOut::new(problem, self.unseen);
        let growth = |tail_order| held_out.growth_permille(|tail| arranged(tail, tail_order));
        let growths: Vec<(TailOrder, u64)> = tail_orders(self.reach)
            .into_par_iter()
            .map(|tail_order| (tail_order, growth(tail_order)))
            .collect();
        let tail = Tail::of(problem, order);
        let own = self.budget_permille;
        let wanted: BTreeSet<(TailOrder, u64)> =
            budgets.iter().chain([&own]).flat_map(|&budget| affordable(&growths, budget)).collect();
        let before = estimate(problem, &tail.functions, self.reach);
        let tried: Vec<(TradeOff, Vec<FunctionId>)> = wanted
            .into_par_iter()
            .map(|(tail_order, growth_permille)| {
                let functions = arranged(&tail, tail_order);
                let compressed_bytes = estimate(problem, &functions, self.reach) as i64 - before as i64;
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
        CompressedOrder { order: tail.whole_order(functions), chosen: trade(own), curve }
    }
}

/// What is tried for a budget, of all orders with their growths: the one with most pulls within it, the one by content alone, and the
/// linker's.
fn affordable(growths: &[(TailOrder, u64)], budget: u32) -> impl Iterator<Item = (TailOrder, u64)> {
    let first = move |is_of_kind: fn(TailOrder) -> bool| {
        let within = |&&(order, growth): &&(TailOrder, u64)| growth <= u64::from(budget) && is_of_kind(order);
        growths.iter().find(within).copied()
    };
    let kinds: [fn(TailOrder) -> bool; 3] = [
        |order| matches!(order, TailOrder::Content(_)),
        |order| order == TailOrder::Partitioned,
        |order| order == TailOrder::Link,
    ];
    kinds.into_iter().filter_map(first)
}

/// All that change something, for a compressor that looks back `reach` bytes, those that compress best first.
fn tail_orders(reach: u64) -> Vec<TailOrder> {
    let partitioned = (reach > MAX_NEAR_REACH).then_some(TailOrder::Partitioned);
    let content = MIN_SHARED_BYTES.into_iter().map(TailOrder::Content);
    content.chain(partitioned).chain([TailOrder::Link]).collect()
}
