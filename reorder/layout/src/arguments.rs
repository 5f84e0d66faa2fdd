//! The flags that say what kind of layout is wanted.

use clap::Args;

use crate::{Effort, LayoutRequest, Memory, Strategy, Unseen};

/// What kind of layout is wanted.
#[derive(Args, Clone, Debug)]
pub struct LayoutArguments {
    /// How functions are ordered
    #[arg(long, value_enum, default_value = "auto", value_name = "NAME")]
    strategy: Strategy,
    /// The memory model that the layout is made for; 4k, 16k, fault-around, read-around and read-ahead are short names
    /// [default: 16k for Mach-O on arm64, else 4k]
    #[arg(long, value_parser = Memory::parser(), value_name = "MODEL")]
    memory: Option<Memory>,
    /// How much earlier faults count more: 0 counts all alike, 100 only how early they are
    #[arg(long, default_value_t = 25, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    early: u32,
    /// Where functions go that no trace ran [default: references for auto, link for all others]
    #[arg(long, value_enum, value_name = "WHERE")]
    unseen: Option<Unseen>,
    /// Gather functions of similar content where that costs at most 1 % of the pages
    #[arg(long)]
    compress: bool,
    /// How much work is done
    #[arg(long, value_enum, default_value = "normal", value_name = "LEVEL")]
    effort: Effort,
    /// Decides what the strategy leaves to chance
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

impl LayoutArguments {
    /// The library's form, for an image whose systems usually have the memory `usual`.
    pub fn request(&self, usual: Memory) -> LayoutRequest {
        LayoutRequest {
            strategy: self.strategy,
            seed: self.seed,
            memory: self.memory.unwrap_or(usual),
            early_percent: self.early,
            effort: self.effort,
            unseen: self.unseen.unwrap_or(self.strategy.default_unseen()),
            compress: self.compress,
        }
    }
}
