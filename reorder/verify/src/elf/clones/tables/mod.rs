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

use rayon::prelude::*;

use super::copies::Copies;
use super::record::CopiedTable;
use crate::elf::tables::with_dispatches;
use crate::moves::AddressMoves;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;
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
    let held = places::held_inside(copies, functions);
    let seeds: Vec<(Address, usize)> =
        copies.formed_tables.iter().map(|(place, number)| (*place, *number)).collect();
    let faults: Vec<(Address, &CopiedTable, Fault)> = with_dispatches(copies.old, functions, |dispatches| {
        let around = Surroundings { image: copies.old, functions, dispatches, held: &held };
        let check = |&(seed, number): &(Address, usize)| {
            let table = copies.tables.get(number)?;
            let fault = check_uses(around, table, seed).err()?;
            Some((seed, table, fault))
        };
        seeds.par_iter().filter_map(check).collect()
    });
    findings.checked(Check::Copies, "addresses of copied jump tables", seeds.len());
    for (seed, table, fault) in faults {
        let name = format!("the address of the copied table at {}, formed at {seed}", table.original);
        let expected = "jumps through the copied entries alone";
        findings.differs(Difference::new(Check::Copies, None, name, expected, fault.describe()));
    }
}
