//! The objective of a layout.

use super::FaultModel;

/// Which faults count, and how much earlier ones count more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Objective {
    /// The memory model.
    pub model: FaultModel,
    /// Share of the mean of the fault curve in a run's cost; the rest is the number of faults. 0 counts faults
    /// alone; with more, a fault is the cheaper the later it comes.
    pub early_percent: u32,
}

impl Default for Objective {
    fn default() -> Self {
        Self { model: FaultModel::Pages { size: 4096 }, early_percent: 25 }
    }
}

impl Objective {
    pub(crate) fn is_valid(self) -> bool {
        let (sizes, before) = match self.model {
            FaultModel::Pages { size } | FaultModel::FaultAround { block: size } => ([size, size], 0),
            FaultModel::ReadAround { page, window, before } => ([page, window], before),
        };
        let [page, window] = sizes;
        self.early_percent <= 100
            && sizes.iter().all(|size| size.is_power_of_two())
            && before.is_multiple_of(page)
            && (before == 0 || before < window)
    }
}
