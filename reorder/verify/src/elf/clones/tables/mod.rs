//! Copies of jump tables: tables of distances from their own start, for x86-64.
//!
//! ```text
//! original:  lea table, %rdx ─> movslq (%rdx,%rax,4) ─> add %rdx ─> jmp      distances from the table
//! copy:      lea copy, %rdx  ─> movslq (%rdx,%rax,4) ─> add %rdx ─> jmp      distances from the copy
//! ```
//!
//! Each entry of a copy leads where the original's leads, or to the copy of exactly that instruction. The address of the copy
//! is formed in copies of fragments alone, but originals may run with it: so its uses are followed through all code of the
//! old image, and each may only be a jump through the table, at indices that the copy has.

mod contents;
mod places;
mod registers;
mod walk;

pub(super) use places::check_table_places;

use std::ops::Range;

use rayon::prelude::*;

use super::copies::Copies;
use super::record::CopiedTable;
use crate::TableUse;
use crate::elf::recover::moves_between;
use crate::elf::tables::with_dispatches;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use walk::{Fault, Surroundings, check_uses};

/// Checks the contents of copied tables, and all uses of their addresses.
pub(super) fn check_tables(copies: &Copies<'_>, functions: &AddressMoves, findings: &mut Findings) {
    if copies.tables.is_empty() {
        return;
    }
    findings.checked(Check::Copies, "jump tables", copies.tables.len());
    let mut entries = 0;
    for table in &copies.tables {
        match contents::check_contents(copies, table) {
            Ok(()) => entries += table.count,
            Err(difference) => findings.differs(difference),
        }
    }
    findings.checked(Check::Copies, "entries of jump tables", usize::try_from(entries).unwrap_or(usize::MAX));
    let tables = copies.formed_tables.iter();
    let formed: Vec<(Address, CopiedTable)> =
        tables.filter_map(|(place, number)| Some((*place, *copies.tables.get(*number)?))).collect();
    let checked = checked(copies.old, functions, &formed);
    findings.checked(Check::Copies, "addresses of copied jump tables", formed.len());
    for ((seed, table), checked) in formed.iter().zip(checked) {
        let Err(fault) = checked else { continue };
        let name = format!("the address of the copied table at {}, formed at {seed}", table.original);
        let expected = "jumps through the copied entries alone";
        findings.differs(Difference::new(Check::Copies, None, name, expected, fault.describe()));
    }
}

/// For each instruction that forms the address of a table, the number of entries that are used with it, or why the address of a
/// copy may not stand for it.
fn checked(
    image: &ElfView<'_>,
    functions: &AddressMoves,
    formed: &[(Address, CopiedTable)],
) -> Vec<std::result::Result<u64, Fault>> {
    let held = places::held_inside(image, functions);
    with_dispatches(image, functions, |dispatches| {
        let around = Surroundings { image, functions, dispatches, held: &held };
        formed.par_iter().map(|(place, table)| check_uses(around, table, *place)).collect()
    })
}

/// [`crate::provable_tables`] for ELF.
pub(in crate::elf) fn provable(
    image: &ElfView<'_>,
    found: &[Range<Address>],
    uses: &[TableUse],
) -> Result<Vec<Option<u64>>> {
    if uses.is_empty() || image.processor != Processor::X86_64 {
        return Ok(vec![None; uses.len()]);
    }
    let functions = moves_between(image, image)?.with_found(found)?;
    let formed: Vec<(Address, CopiedTable)> = uses
        .iter()
        .map(|usage| {
            let (original, count) = (usage.table, usage.count);
            (usage.place, CopiedTable { original, copy: NewAddress(original.0), count, entry: usage.entry })
        })
        .collect();
    Ok(checked(image, &functions, &formed).into_iter().map(|checked| checked.ok()).collect())
}
