//! Strategies that turn a problem into an order.
//!
//! Every strategy puts the functions of the traces first, except [`Shuffle`], which moves everything. After them [`Auto`]
//! orders all others as well; the other strategies keep their link order.

mod auto;
mod average_time_stamp;
mod balanced_partitioning;
mod cache_directed;
mod call_chain_clustering;
mod call_graph;
mod candidate;
mod compression;
mod first_seen;
mod link_order;
mod llvm;
mod local_search;
mod logarithm;
mod memberships;
mod pettis_hansen;
mod previous;
mod read_around;
mod replay_search;
mod shuffle;
mod trace_sets;
mod unseen;

pub use auto::{Auto, AutoOrder, Candidate, Effort};
pub use average_time_stamp::AverageTimeStamp;
pub use balanced_partitioning::{BalancedPartitioning, MAX_PREFIXES};
pub use cache_directed::CacheDirected;
pub use call_chain_clustering::CallChainClustering;
pub use compression::{CompressedOrder, CompressionAware, TailOrder, TradeOff};
pub use first_seen::FirstSeen;
pub use link_order::LinkOrder;
pub use llvm::{LldPartitioning, LlvmProfdata};
pub use local_search::LocalSearch;
pub use pettis_hansen::PettisHansen;
pub use previous::{FavourPrevious, FavouredOrder};
pub use read_around::centre_windows;
pub use replay_search::ReplaySearch;
pub use shuffle::Shuffle;
pub use trace_sets::TraceSets;
pub use unseen::{Children, CrossValidation, Parent, ReferenceWalk, Roots, UnseenOrder, Validated};

use crate::order::FunctionOrder;
use crate::problem::LayoutProblem;

/// A way to order functions.
pub trait Orderer {
    /// An order of all functions of `problem`; depends only on `self` and `problem`.
    fn order(&self, problem: &LayoutProblem) -> FunctionOrder;
}
