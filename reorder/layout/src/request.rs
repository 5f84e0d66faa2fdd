//! What kind of layout is wanted.

use clap::ValueEnum;
use layout_algos::score::{FaultModel, Objective};
use serde::Serialize;

use super::Strategy;

/// What kind of layout is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LayoutRequest {
    /// How functions are ordered.
    pub strategy: Strategy,
    /// Decides what the strategy leaves to chance.
    pub seed: u64,
    /// The memory that the layout shall suit.
    pub memory: Memory,
    /// Share of the mean of the fault curve in the cost of a start, up to 100; the rest is the number of faults.
    pub early_percent: u32,
    /// How much work is done.
    pub effort: Effort,
    /// Where functions go that no trace ran.
    pub unseen: Unseen,
    /// Similar functions are gathered where that costs hardly any pages.
    pub compress: bool,
}

/// Where functions go that no trace ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    /// They follow in the linker's order
    Link,
    /// By what code and data refer to, if that serves recorded starts that are left out better
    References,
}

/// How memory answers a first touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Memory {
    /// Pages of 4 KiB: most of Linux, macOS on x86-64
    #[default]
    #[value(name = "4k", alias = "linux-4k", alias = "macos-4k")]
    #[serde(rename = "4k")]
    Pages4K,
    /// Pages of 16 KiB: iOS, macOS on arm64, new Android devices
    #[value(name = "16k", alias = "android-16k", alias = "ios-16k")]
    #[serde(rename = "16k")]
    Pages16K,
    /// Blocks of 64 KiB around each fault: Linux with the file in memory
    #[value(name = "fault-around", alias = "linux-4k-faultaround-64k")]
    #[serde(rename = "fault-around")]
    FaultAround,
    /// Windows of 128 KiB around each fault: Linux up to 6.16 with the file on disk
    #[value(name = "read-around", alias = "linux-readahead-128k")]
    #[serde(rename = "read-around")]
    ReadAround,
    /// The 128 KiB from each fault on: Linux from 6.17 on with the file on disk
    #[value(name = "read-ahead", alias = "linux-6.17-readahead-128k")]
    #[serde(rename = "read-ahead")]
    ReadAhead,
}

/// How much work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// For every link: about a second
    #[default]
    Normal,
    /// For releases: ten times as long
    Thorough,
}

impl LayoutRequest {
    /// The default for a strategy and a seed.
    #[must_use]
    pub fn of(strategy: Strategy, seed: u64) -> Self {
        let Objective { early_percent, .. } = Objective::default();
        Self {
            strategy,
            seed,
            memory: Memory::default(),
            early_percent,
            effort: Effort::default(),
            unseen: strategy.default_unseen(),
            compress: false,
        }
    }

    /// Whether what code and data refer to is asked for.
    pub(super) fn uses_references(&self) -> bool {
        self.unseen == Unseen::References || self.strategy.uses_call_graph()
    }

    pub(super) fn objective(&self) -> Objective {
        Objective { model: self.memory.model(), early_percent: self.early_percent }
    }
}

impl Memory {
    /// The memory of the systems that run Mach-O images for the processor that linkers call `architecture`.
    #[must_use]
    pub fn of_macho(architecture: &str) -> Self {
        match architecture {
            "x86_64" => Self::Pages4K,
            _ => Self::Pages16K,
        }
    }

    /// The model in numbers.
    #[must_use]
    pub fn model(self) -> FaultModel {
        match self {
            Self::Pages4K => FaultModel::Pages { size: 4 << 10 },
            Self::Pages16K => FaultModel::Pages { size: 16 << 10 },
            Self::FaultAround => FaultModel::FaultAround { block: 64 << 10 },
            Self::ReadAround => FaultModel::ReadAround { page: 4 << 10, window: 128 << 10, before: 64 << 10 },
            Self::ReadAhead => FaultModel::ReadAround { page: 4 << 10, window: 128 << 10, before: 0 },
        }
    }
}

impl From<Effort> for layout_algos::solve::Effort {
    fn from(effort: Effort) -> Self {
        match effort {
            Effort::Normal => Self::Normal,
            Effort::Thorough => Self::Thorough,
        }
    }
}
