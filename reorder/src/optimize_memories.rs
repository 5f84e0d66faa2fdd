//! What the layouts that `reorder optimize --layout auto` made need in each kind of memory.
//!
//! The choice is made for pages of 4 KiB. Copies lie apart from the code that was not copied, so a layout that needs fewer
//! pages can need more of the larger blocks that other systems read.

use serde::Serialize;

use reorder_layout::memory::MemoryModel;
use reorder_layout::simulate::{Faults, Simulation};
use reorder_report::Width;
use reorder_report::table::{Table, change, grouped};

/// The simulated runs of each layout, in the same order.
pub(crate) struct MadeLayouts<'run> {
    /// With functions moved.
    pub functions: &'run [Simulation],
    /// With blocks copied.
    pub blocks: &'run [Simulation],
}

/// Page faults of all runs in one kind of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MemoryFaults {
    /// Name of the memory model.
    pub model: String,
    /// Its description.
    #[serde(skip)]
    pub title: String,
    /// In the program as it was.
    pub old_faults: u64,
    /// With functions moved.
    pub functions_faults: u64,
    /// With blocks copied.
    pub blocks_faults: u64,
}

impl MadeLayouts<'_> {
    /// The sums of all runs under each of the `models` that they were simulated under.
    pub(crate) fn in_each_memory(&self, models: &[MemoryModel]) -> Vec<MemoryFaults> {
        let faults = |(index, model): (usize, &MemoryModel)| MemoryFaults {
            model: model.name.clone(),
            title: model.title.clone(),
            old_faults: sum(self.functions, index, |total| total.faults),
            functions_faults: sum(self.functions, index, new_faults),
            blocks_faults: sum(self.blocks, index, new_faults),
        };
        models.iter().enumerate().map(faults).collect()
    }
}

fn new_faults(total: &Faults) -> u64 {
    total.new_faults.unwrap_or(total.faults)
}

/// Of all runs, under the model with this index.
fn sum(simulations: &[Simulation], index: usize, faults: impl Fn(&Faults) -> u64) -> u64 {
    simulations.iter().filter_map(|simulation| simulation.totals.get(index)).map(faults).sum()
}

/// A table, a line for each kind of memory, with the change from functions to blocks; nothing where one layout alone was made.
pub(crate) fn text(memories: &[MemoryFaults], width: Width) -> String {
    if memories.is_empty() {
        return String::new();
    }
    let titles = ["simulated page faults", "old", "functions", "blocks", "change"];
    let mut table = Table::new(titles);
    for memory in memories {
        let [old, functions, blocks] = [memory.old_faults, memory.functions_faults, memory.blocks_faults];
        table.row([
            memory.title.clone(),
            grouped(old),
            grouped(functions),
            grouped(blocks),
            change(functions as f64, blocks as f64),
        ]);
    }
    format!("\n{}", table.render(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_memory_is_a_line() {
        let memory = |title: &str, [old_faults, functions_faults, blocks_faults]: [u64; 3]| MemoryFaults {
            model: String::new(),
            title: title.to_owned(),
            old_faults,
            functions_faults,
            blocks_faults,
        };
        let memories = [memory("4 KiB pages", [90, 18, 9]), memory("4 MiB blocks", [2, 2, 3])];
        let told = text(&memories, Width::UNLIMITED);
        let lines: Vec<Vec<&str>> =
            told.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            vec!["4", "KiB", "pages", "90", "18", "9", "-50", "%"],
            vec!["4", "MiB", "blocks", "2", "2", "3", "+50", "%"],
        ];
        assert_eq!(lines, expected);
        assert_eq!(text(&[], Width::UNLIMITED), "");
    }
}
