//! Traces and an image's functions to an order of all functions.
//!
//! Takes the image, its function table and resolved traces; gives [`Layout`], a permutation of all functions that begins
//! with those placed deliberately. The algorithms are in `layout-algos`; this crate only translates.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod arguments;
pub mod compression;
pub mod configuration;
pub mod last_link;
pub mod memory;
pub mod opened;
pub mod order_file;
pub mod previous;
mod problem;
mod request;
pub mod scenario;
pub mod simulate;
mod strategy;
#[cfg(test)]
mod tests;

use layout_algos::control::Control;
use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::LayoutProblem;
use layout_algos::solve::{Auto, CompressionAware, CrossValidation, UnseenOrder};
use serde::Serialize;

use compression::Trades;
pub use memory::Memory;
use previous::PreviousTrade;
pub use problem::Room;
pub use request::{Effort, LayoutRequest, Unseen};
pub use strategy::Strategy;

use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::ResolvedTrace;

/// An order of all functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Every function once, the lowest address first.
    pub order: Vec<FunctionIndex>,
    /// Number of leading functions placed deliberately; the others follow in their old order.
    pub chosen: usize,
    /// Number of leading functions that recorded startups need.
    pub needed: usize,
    /// What was traded for size.
    pub traded: Traded,
}

/// What a layout gives up for small files and updates, as far as they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traded {
    /// For a smaller compressed file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trades: Option<Trades>,
    /// For closeness to the last release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousTrade>,
}

impl Layout {
    /// `listed` before all other functions of a table of `count`; repeated entries count once.
    ///
    /// # Errors
    /// More functions than 32-bit indices can tell apart.
    pub fn of_listed(listed: &[FunctionIndex], count: usize) -> Result<Self> {
        let order = FunctionOrder::with_rest(listed.iter().map(|&index| to_id(index)), checked_count(count)?);
        let mut distinct = listed.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let chosen = distinct.len().min(count);
        Ok(Self { order: from_order(&order), chosen, needed: chosen, traded: Traded::default() })
    }
}

impl Layout {
    /// The same with functions that ran according to `counts` (by function; empty for none) right after those that
    /// startups need, those with the most executions per byte first.
    ///
    /// Counts have no order of execution: they do not distinguish startup from what ran later, so they order only the
    /// functions that no startup needs.
    #[must_use]
    pub fn with_hot(self, counts: &[u64], functions: &FunctionTable<'_>) -> Self {
        let count_of = |function: FunctionIndex| counts.get(function.0 as usize).copied().unwrap_or(0);
        let (needed, rest) = self.order.split_at(self.needed.min(self.order.len()));
        let is_hot = |function: &&FunctionIndex| count_of(**function) > 0;
        let chosen_rest = &rest[..self.chosen.saturating_sub(needed.len()).min(rest.len())];
        let chosen_cold = chosen_rest.iter().filter(|function| !is_hot(function)).count();
        let (mut hot, cold): (Vec<_>, Vec<_>) = rest.iter().partition(is_hot);
        let weighted = |function: FunctionIndex, other: FunctionIndex| {
            u128::from(count_of(function)) * u128::from(functions.get(other).size())
        };
        hot.sort_by(|&left, &right| weighted(right, left).cmp(&weighted(left, right)));
        let chosen = needed.len() + hot.len() + chosen_cold;
        let order = needed.iter().copied().chain(hot).chain(cold).collect();
        Self { order, chosen, ..self }
    }
}

/// Orders `functions` of `file` as described by `request`, for a place with this `room`.
///
/// # Errors
/// Traces that name functions outside the table or one function twice, which resolving does not produce; images
/// with too many references; compression or an order of unseen code with a strategy that places everything itself.
pub fn lay_out(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    room: Room<'_>,
    request: &LayoutRequest,
) -> Result<Layout> {
    if !request.strategy.needs_traces()
        && (request.compress.is_some() || request.unseen == Unseen::References)
    {
        let name = request.strategy.name();
        return Err(Error::usage(format!("the strategy {name} places all functions by itself"))
            .with_hint("leave out the options compress and unseen, or choose another strategy"));
    }
    // References from code are known for one processor only.
    match file.processor {
        Processor::X86_64 => arrange(Some(file), functions, traces, room, request),
        Processor::Aarch64 | Processor::Other => lay_out_functions_in(functions, traces, room, request),
    }
}

/// Orders functions of which only addresses and sizes are known, for a linker: references are unknown.
///
/// # Errors
/// As [`lay_out`], and compression, which looks at contents.
pub fn lay_out_functions(
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    request: &LayoutRequest,
) -> Result<Layout> {
    lay_out_functions_in(functions, traces, Room::Linker, request)
}

/// The same for a place with this `room`.
///
/// # Errors
/// As [`lay_out_functions`].
pub fn lay_out_functions_in(
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    room: Room<'_>,
    request: &LayoutRequest,
) -> Result<Layout> {
    if request.compress.is_some() {
        return Err(Error::usage(
            "the contents of the functions are unknown, so similar functions cannot be placed next to each other",
        )
        .with_hint("leave out the option compress"));
    }
    arrange(None, functions, traces, room, request)
}

/// What one startup needs of pieces that are copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceTrace {
    /// How many times it counts.
    pub weight: u64,
    /// Numbers of pieces, each once, in order of first execution.
    pub pieces: Vec<u32>,
}

/// A piece of code that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes.
    pub size: u64,
    /// What it is aligned to, a power of two.
    pub alignment: u32,
}

/// Orders `pieces` of code that are copied one after the other; gives their numbers. Pieces that no trace needs come last.
///
/// # Errors
/// Traces that name unknown pieces or one piece twice.
pub fn lay_out_pieces(
    pieces: &[Piece],
    traces: &[PieceTrace],
    request: &LayoutRequest,
) -> Result<Vec<usize>> {
    let problem = problem::problem_of_pieces(pieces, traces, request)?;
    Ok(order_of(&problem, request).order.iter().map(|piece| piece.index()).collect())
}

fn arrange(
    file: Option<&ElfFile<'_>>,
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    room: Room<'_>,
    request: &LayoutRequest,
) -> Result<Layout> {
    let problem = problem::problem_of(file, functions, traces, room, request)?;
    let Ordered { order, trades } = order_of(&problem, request);
    let traded = Traded { trades, previous: None };
    let order = from_order(&order);
    if !request.strategy.needs_traces() {
        return Ok(Layout { chosen: order.len(), needed: order.len(), order, traded });
    }
    // Pinned functions that startups need are in no trace of the problem; they keep their addresses in any case.
    let mut is_needed = vec![false; order.len()];
    for function in traces.iter().filter(|trace| trace.weight > 0).flat_map(|trace| &trace.functions) {
        is_needed[function.0 as usize] = true;
    }
    let (mut order, rest): (Vec<_>, Vec<_>) =
        order.into_iter().partition(|function| is_needed[function.0 as usize]);
    let needed = order.len();
    order.extend(rest);
    // Functions at the end that are in link order were left there.
    let chosen = (order.len() - in_link_order_at_end(&order)).max(needed);
    Ok(Layout { order, chosen, needed, traded })
}

/// Above this number of functions, only [`Effort::Thorough`] computes what other budgets give: that takes half as
/// long again.
const MAX_FUNCTIONS_WITH_CURVE: usize = 30_000;

/// An order, and what was traded for compression.
struct Ordered {
    order: FunctionOrder,
    trades: Option<Trades>,
}

fn order_of(problem: &LayoutProblem, request: &LayoutRequest) -> Ordered {
    let (order, unseen) = match request.strategy {
        // It places unseen code itself, as far as the problem has references.
        Strategy::Auto => {
            let auto = Auto { seed: request.seed, effort: request.effort.into() };
            let chosen = auto.choose(problem, &Control::default());
            (chosen.order, chosen.unseen)
        }
        strategy => {
            let order = strategy.orderer(request.seed, request.effort).order(problem);
            match request.unseen {
                Unseen::Link => (order, UnseenOrder::Link),
                Unseen::References => with_unseen(problem, &order),
            }
        }
    };
    let Some(compression) = request.compress else { return Ordered { order, trades: None } };
    let aware = CompressionAware {
        budget_permille: compression.budget.permille,
        reach: compression.compressor.reach(),
        unseen,
    };
    let tells_others =
        request.effort == Effort::Thorough || problem.function_count() <= MAX_FUNCTIONS_WITH_CURVE;
    let budgets = match tells_others {
        true => compression.budget.with_others(),
        false => vec![compression.budget.permille],
    };
    let compressed = aware.choose(problem, &order, &budgets, &Control::default());
    Ordered { order: compressed.order.clone(), trades: Some(compressed.into()) }
}

/// The traced functions as in `order`, then all others in the order that is best for startups left out of the comparison.
fn with_unseen(problem: &LayoutProblem, order: &FunctionOrder) -> (FunctionOrder, UnseenOrder) {
    let compared = CrossValidation::default().compare(problem);
    let unseen = compared.first().map_or(UnseenOrder::Link, |best| best.order);
    let is_traced = problem.traced();
    let traced = order.iter().filter(|function| is_traced[function.index()]);
    let functions = traced.chain(unseen.order(problem));
    (FunctionOrder::with_rest(functions, problem.function_count() as u32), unseen)
}

/// How many functions at the end are in link order.
fn in_link_order_at_end(order: &[FunctionIndex]) -> usize {
    let ascending = order.windows(2).rev().take_while(|pair| pair[0] < pair[1]).count();
    ascending + usize::from(!order.is_empty())
}

fn checked_count(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::usage(format!("{count} functions are too many to order")))
}

fn to_id(index: FunctionIndex) -> FunctionId {
    FunctionId(index.0)
}

fn from_order(order: &FunctionOrder) -> Vec<FunctionIndex> {
    order.iter().map(|function| FunctionIndex(function.0)).collect()
}
