//! Traces and an image's functions to an order of all functions.
//!
//! Takes the function table and resolved traces; gives [`Layout`], a permutation of all functions with the part
//! that somebody chose in front. The algorithms are in `layout-algos`; here is only the translation.

use clap::ValueEnum;
use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::solve::{
    AverageTimeStamp, BalancedPartitioning, CacheDirected, CallChainClustering, FirstSeen, LinkOrder,
    LldPartitioning, LlvmProfdata, Orderer, PettisHansen, Shuffle, TraceSets,
};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::trace::ResolvedTrace;

/// How functions are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Functions that the same parts of the same traces need share pages
    Balanced,
    /// The heaviest trace's functions in time order, then what each further trace adds
    FirstSeen,
    /// Functions by their mean position in the traces
    AverageTimeStamp,
    /// Functions that the same traces run side by side, similar sets of traces chained
    TraceSets,
    /// Chains merged along the heaviest arcs of the call graph
    PettisHansen,
    /// Callees behind their heaviest callers, clusters by weight per byte (C3, hfsort)
    CallChainClustering,
    /// Chains merged for short calls and few misses of the address cache
    CacheDirected,
    /// As `llvm-profdata order` does it
    LlvmProfdata,
    /// As lld does it for `--bp-startup-sort=function`
    LldBp,
    /// The order the linker chose
    Link,
    /// A random permutation of everything: for tests
    Random,
}

impl Strategy {
    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::FirstSeen => "first-seen",
            Self::AverageTimeStamp => "average-time-stamp",
            Self::TraceSets => "trace-sets",
            Self::PettisHansen => "pettis-hansen",
            Self::CallChainClustering => "call-chain-clustering",
            Self::CacheDirected => "cache-directed",
            Self::LlvmProfdata => "llvm-profdata",
            Self::LldBp => "lld-bp",
            Self::Link => "link",
            Self::Random => "random",
        }
    }

    fn orderer(self, seed: u64) -> Box<dyn Orderer> {
        match self {
            Self::Balanced => Box::new(BalancedPartitioning { seed, ..BalancedPartitioning::default() }),
            Self::FirstSeen => Box::new(FirstSeen),
            Self::AverageTimeStamp => Box::new(AverageTimeStamp),
            Self::TraceSets => Box::new(TraceSets),
            Self::PettisHansen => Box::new(PettisHansen),
            Self::CallChainClustering => Box::new(CallChainClustering),
            Self::CacheDirected => Box::new(CacheDirected),
            Self::LlvmProfdata => Box::new(LlvmProfdata::default()),
            Self::LldBp => Box::new(LldPartitioning::default()),
            Self::Link => Box::new(LinkOrder),
            Self::Random => Box::new(Shuffle { seed }),
        }
    }
}

/// An order of all functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Every function once, the lowest address first.
    pub order: Vec<FunctionIndex>,
    /// So many functions in front were chosen; the others follow in their old order.
    pub chosen: usize,
}

impl Layout {
    /// `listed` in front of all other functions of a table of `count`; repeated entries count once.
    ///
    /// # Errors
    /// More functions than 32-bit indices can tell apart.
    pub fn of_listed(listed: &[FunctionIndex], count: usize) -> Result<Self> {
        let order = FunctionOrder::with_rest(listed.iter().map(|&index| to_id(index)), checked_count(count)?);
        let mut distinct = listed.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        Ok(Self { order: from_order(&order), chosen: distinct.len().min(count) })
    }
}

/// Orders `functions` by `strategy`; `seed` decides what the strategy leaves to chance.
///
/// # Errors
/// Traces that name functions outside the table or one function twice, which resolving does not produce.
pub fn lay_out(
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    strategy: Strategy,
    seed: u64,
) -> Result<Layout> {
    let problem = problem_of(functions, traces)?;
    let order = strategy.orderer(seed).order(&problem);
    let chosen = match strategy {
        Strategy::Link | Strategy::Random => functions.len(),
        _ => problem.traced().into_iter().filter(|&is_traced| is_traced).count(),
    };
    Ok(Layout { order: from_order(&order), chosen })
}

fn problem_of(functions: &FunctionTable<'_>, traces: &[ResolvedTrace]) -> Result<LayoutProblem> {
    checked_count(functions.len())?;
    let sizes = functions.iter().map(|(_, function)| function.size()).collect();
    let traces: Vec<Trace> = traces
        .iter()
        // A weight of zero says that the trace does not count.
        .filter(|trace| trace.weight > 0)
        .map(|trace| Trace {
            weight: trace.weight,
            functions: trace.functions.iter().map(|&index| to_id(index)).collect(),
        })
        .collect();
    LayoutProblem::new(sizes, &traces).map_err(|error| Error::usage(error.to_string()))
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
