//! The flags that say what kind of layout is wanted.

use clap::Args;

use crate::{Effort, LayoutRequest, Memory, Strategy, Unseen};

/// What kind of layout is wanted.
#[derive(Args, Clone, Debug)]
pub struct LayoutArguments {
    /// How to order functions
    #[arg(long, value_enum, default_value = "auto", value_name = "NAME")]
    strategy: Strategy,
    /// Memory model to optimize for [default: 16k for Mach-O on arm64, otherwise 4k]
    #[arg(long, value_enum, value_name = "MODEL")]
    memory: Option<Memory>,
    /// Weight of early faults: 0 counts all faults equally, 100 counts only how early they are
    #[arg(long, default_value_t = 25, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    early: u32,
    /// Where to place functions that no trace executed [default: references for auto, link for all others]
    #[arg(long, value_enum, value_name = "WHERE")]
    unseen: Option<Unseen>,
    /// Group functions with similar contents where that costs at most 1 % of the pages
    #[arg(long)]
    compress: bool,
    /// How much work to do
    #[arg(long, value_enum, default_value = "normal", value_name = "LEVEL")]
    effort: Effort,
    /// Seed of the strategy's random choices
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

impl LayoutArguments {
    /// The library's form; `default_memory` is the memory model of the image's systems.
    pub fn request(&self, default_memory: Memory) -> LayoutRequest {
        LayoutRequest {
            strategy: self.strategy,
            seed: self.seed,
            memory: self.memory.unwrap_or(default_memory),
            early_percent: self.early,
            effort: self.effort,
            unseen: self.unseen.unwrap_or(self.strategy.default_unseen()),
            compress: self.compress,
        }
    }
}
