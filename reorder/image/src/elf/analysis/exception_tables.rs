//! Language-specific data areas: what they and their personality routines keep in place.

use super::blocks::Partition;
use super::references::Finding;
use crate::elf::file::ElfFile;
use crate::elf::functions::ElfFunctions;
use crate::exception_table::ExceptionTable;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::RefusalCode;

/// Landing pads are distances from the function's start unless the table names another base.
pub(super) fn check_exception_tables(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    partition: &Partition,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in &functions.frame_entries {
        if let Some(block) = entry.personality.and_then(|routine| partition.block_containing(routine)) {
            // Named by a distance or an address inside the unwind entries, which are not rewritten for it.
            let pin = Pin { reason: PinReason::RelativePointer, evidence: entry.start_field_address };
            findings.push(Finding::Pin(block, pin));
        }
        let Some(table) = entry.exception_table else { continue };
        let base = exception_table(file, table)?.base()?;
        for address in base.into_iter().flat_map(|base| [base, entry.start]) {
            if let Some(block) = partition.block_containing(address) {
                let pin = Pin { reason: PinReason::LandingPadBase, evidence: table };
                findings.push(Finding::Pin(block, pin));
            }
        }
    }
    Ok(findings)
}

/// The exception table at `address`.
///
/// # Errors
/// There is no data in the file.
pub fn exception_table<'data>(file: &ElfFile<'data>, address: Address) -> Result<ExceptionTable<'data>> {
    let section = file.sections.iter().find(|section| {
        section.is_loaded() && section.has_bytes() && !section.is_thread_local() && section.contains(address)
    });
    let Some(section) = section else {
        return Err(Error::malformed(0, format!("the exception table at {address} lies in no section")));
    };
    let start = address.distance_from(section.address);
    let bytes = file.section_bytes(section).get(start as usize..).unwrap_or_default();
    Ok(ExceptionTable {
        bytes,
        origin: section.offset.0 + start,
        address,
        refusal: RefusalCode::UnwindEncoding,
    })
}
