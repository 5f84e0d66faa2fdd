//! What kind of layout is wanted.

use clap::ValueEnum;
use layout_algos::score::Objective;
use serde::Serialize;

use super::{Memory, Strategy};

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

impl From<Effort> for layout_algos::solve::Effort {
    fn from(effort: Effort) -> Self {
        match effort {
            Effort::Normal => Self::Normal,
            Effort::Thorough => Self::Thorough,
        }
    }
}
