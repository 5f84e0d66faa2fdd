//! Exception tables of Mach-O images.

use crate::exception_table::{ExceptionTable, TableBudget};
use crate::macho::file::MachOFile;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};

/// Landing pads of the function at `function_start`, sorted, each once.
///
/// # Errors
/// Refuses (M11) tables that are not relative to the function's start or have an unknown form.
pub fn landing_pads(
    file: &MachOFile<'_>,
    table: Address,
    function_start: Address,
    budget: &mut TableBudget,
) -> Result<Vec<Address>> {
    let Some(section) = file.section_at(table).filter(|section| section.has_bytes()) else {
        return Err(Error::malformed(0, format!("the exception table at {table} lies in no section")));
    };
    let start = table.distance_from(section.address) as usize;
    let bytes = &file.section_bytes(section)[start..];
    let origin = (section.offset + start) as u64;
    let table = ExceptionTable { bytes, origin, address: table, refusal: RefusalCode::MachOUnwindEncoding };
    let pads = table.landing_pads(function_start, budget)?;
    if pads.base.is_some() {
        let what = "an exception table counts from elsewhere than its function";
        let cure =
            "build it with clang, rustc or GCC for macOS, which write tables that count from the function";
        return Err(Refusal::new(RefusalCode::MachOUnwindEncoding, what, cure).at(table.address).into());
    }
    Ok(pads.addresses)
}
