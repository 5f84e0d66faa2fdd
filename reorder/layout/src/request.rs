//! The description of a layout: strategy, memory, effort.

use clap::ValueEnum;
use layout_algos::score::Objective;
use serde::Serialize;

use super::compression::Compression;
use super::{Memory, Strategy};

/// The description of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LayoutRequest {
    /// How functions are ordered.
    pub strategy: Strategy,
    /// Seed for the random choices of the strategy.
    pub seed: u64,
    /// The memory that the layout is made for.
    pub memory: Memory,
    /// Share of the mean of the fault curve in the cost of a startup, up to 100; the rest is the number of faults.
    pub early_percent: u32,
    /// How much work is done.
    pub effort: Effort,
    /// Where functions that no trace ran are placed.
    pub unseen: Unseen,
    /// What new startups may pay for a smaller compressed file, if anything.
    pub compress: Option<Compression>,
}

/// Where functions that no trace ran are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    /// In the linker's order, after all others
    Link,
    /// By references from code and data, if that suits held-out runs better than the linker's order
    References,
}

/// How much work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Fast enough for every link: about a second
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
            compress: None,
        }
    }

    /// Whether the layout needs the references from code and data.
    pub(super) fn uses_references(&self) -> bool {
        self.unseen == Unseen::References || self.strategy.uses_call_graph()
    }

    pub(super) fn objective(&self) -> Objective {
        Objective { model: self.memory.model(), early_percent: self.early_percent }
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
