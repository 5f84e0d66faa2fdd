//! The command-line flags that describe a layout.

use clap::Args;

use crate::compression::{Budget, Compression, Compressor};
use crate::{Effort, LayoutRequest, Memory, Strategy, Unseen};

/// The description of a layout, as flags.
#[derive(Args, Clone, Debug)]
pub struct LayoutArguments {
    /// How to order functions
    #[arg(long, value_enum, default_value = "auto", value_name = "NAME")]
    strategy: Strategy,
    /// The memory model that the layout is made for; 4k, 16k, fault-around, read-around and read-ahead are short names
    /// [default: 16k for Mach-O on arm64, else 4k]
    #[arg(long, value_parser = Memory::parser(), value_name = "MODEL")]
    memory: Option<Memory>,
    /// Weight of early faults: 0 counts all faults equally, 100 counts only how early they are
    #[arg(long, default_value_t = 25, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    early: u32,
    /// Where functions that no trace ran are placed [default: references for auto, link for all others]
    #[arg(long, value_enum, value_name = "WHERE")]
    unseen: Option<Unseen>,
    /// Order functions that no trace ran so that the file compresses better, as far as new startups then need at most this
    /// many per cent more pages; 2 if no number is given
    #[arg(long, value_name = "BUDGET", num_args = 0..=1, require_equals = true, default_missing_value = "2")]
    compress: Option<Budget>,
    /// What compresses the file: deflate, zstd, xz, or blocks:SIZE for a file system such as squashfs or EROFS
    /// [default: deflate]
    #[arg(long, value_name = "COMPRESSOR", requires = "compress")]
    compress_for: Option<Compressor>,
    /// How much work to do
    #[arg(long, value_enum, default_value = "normal", value_name = "LEVEL")]
    effort: Effort,
    /// Seed for the random choices of the strategy
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

impl LayoutArguments {
    /// The library's form; `default` is the memory for an image of this kind unless a flag names another.
    pub fn request(&self, default: Memory) -> LayoutRequest {
        LayoutRequest {
            strategy: self.strategy,
            seed: self.seed,
            memory: self.memory.unwrap_or(default),
            early_percent: self.early,
            effort: self.effort,
            unseen: self.unseen.unwrap_or(self.strategy.default_unseen()),
            compress: self
                .compress
                .map(|budget| Compression { budget, compressor: self.compress_for.unwrap_or_default() }),
        }
    }
}
