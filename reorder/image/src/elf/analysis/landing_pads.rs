//! Where functions continue after exceptions: entries that no instruction names.

use crate::elf::analysis::blocks::Partition;
use crate::elf::analysis::exception_tables::exception_table;
use crate::elf::analysis::references::Finding;
use crate::elf::analysis::sorted;
use crate::elf::file::ElfFile;
use crate::elf::functions::ElfFunctions;
use crate::exception_table::TableBudget;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// The landing pads of all tables that can be read, sorted.
pub(super) fn readable_landing_pads(file: &ElfFile<'_>, functions: &ElfFunctions<'_>) -> Vec<Address> {
    let mut budget = TableBudget::new(file.bytes.len());
    let pads = functions.frame_entries.iter().filter_map(|entry| {
        let table = exception_table(file, entry.exception_table?).ok()?;
        Some(table.landing_pads(entry.start, &mut budget).ok()?.addresses)
    });
    sorted(pads.flatten().collect())
}

/// All landing pads, sorted. One in another block than its function keeps both where they are.
///
/// # Errors
/// Refuses (R8) tables in an unknown form; reports malformed ones.
pub(super) fn landing_pads(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    partition: &Partition,
) -> Result<(Vec<Address>, Vec<Finding>)> {
    let mut budget = TableBudget::new(file.bytes.len());
    let (mut all, mut findings) = (Vec::new(), Vec::new());
    for entry in &functions.frame_entries {
        let Some(table) = entry.exception_table else { continue };
        let pads = exception_table(file, table)?.landing_pads(entry.start, &mut budget)?;
        let home = partition.block_containing(entry.start);
        for &pad in &pads.addresses {
            let block = partition.block_containing(pad);
            if block != home {
                let pin = Pin { reason: PinReason::LandingPadBase, evidence: table };
                findings.extend(block.into_iter().chain(home).map(|block| Finding::Pin(block, pin)));
            }
        }
        all.extend(pads.addresses);
    }
    Ok((sorted(all), findings))
}
