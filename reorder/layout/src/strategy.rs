//! How functions are ordered, by name.

use clap::ValueEnum;
use layout_algos::solve::{
    Auto, AverageTimeStamp, BalancedPartitioning, CacheDirected, CallChainClustering, FirstSeen, LinkOrder,
    LldPartitioning, LlvmProfdata, Orderer, PettisHansen, Shuffle, TraceSets,
};
use serde::Serialize;

use super::request::{Effort, Unseen};

/// How functions are ordered. Hidden values are for comparison only; GUIDE.md lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Tries several strategies, improves the one with the lowest cost, and orders functions that no trace ran, too
    Auto,
    /// Functions that the same parts of the same traces need are placed on the same pages
    Balanced,
    /// The heaviest trace's functions in time order, then what each further trace adds
    FirstSeen,
    /// Functions by their mean position in the traces
    AverageTimeStamp,
    /// Functions run by the same traces are placed together, and similar sets of traces follow each other
    TraceSets,
    /// Chains merged along the heaviest arcs of the call graph
    #[value(hide = true)]
    PettisHansen,
    /// Callees after their heaviest callers, clusters by weight per byte (C3, hfsort)
    #[value(hide = true)]
    CallChainClustering,
    /// Chains merged for short calls and few misses of the address cache
    #[value(hide = true)]
    CacheDirected,
    /// As `llvm-profdata order` does it
    #[value(hide = true)]
    LlvmProfdata,
    /// As lld does it for `--bp-startup-sort=function`
    #[value(hide = true)]
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
            Self::Auto => "auto",
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

    /// Whether it orders by traces.
    #[must_use]
    pub fn needs_traces(self) -> bool {
        !matches!(self, Self::Link | Self::Random)
    }

    /// The default place for functions that no trace ran.
    #[must_use]
    pub fn default_unseen(self) -> Unseen {
        if self == Self::Auto { Unseen::References } else { Unseen::Link }
    }

    /// Whether it uses the call graph.
    pub(super) fn uses_call_graph(self) -> bool {
        matches!(self, Self::PettisHansen | Self::CallChainClustering | Self::CacheDirected)
    }

    pub(super) fn orderer(self, seed: u64, effort: Effort) -> Box<dyn Orderer> {
        match self {
            Self::Auto => Box::new(Auto { seed, effort: effort.into() }),
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
