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
mod guarded;
mod places;
mod registers;
mod walk;

pub(super) use places::check_table_places;
use places::{is_constant, is_written};

use std::ops::Range;

use iced_x86::Register;
use rayon::prelude::*;

use super::copies::Copies;
use super::record::CopiedTable;
use crate::elf::pointers::written_places;
use crate::elf::recover::moves_between;
use crate::elf::tables::with_dispatches;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use crate::{ProvenUse, TableUse};
use guarded::Sequence;
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
    let formed: Vec<Formed> = tables
        .filter_map(|(place, number)| {
            let guard = copies.guards.get(place).map(|guard| (Some(guard.index), guard.limit));
            Some(Formed { place: *place, table: *copies.tables.get(*number)?, guard })
        })
        .collect();
    let checked = checked(copies.old, functions, &formed);
    findings.checked(Check::Copies, "addresses of copied jump tables", formed.len());
    for (formed, checked) in formed.iter().zip(checked) {
        let Err(fault) = checked else { continue };
        let Formed { place: seed, table, .. } = formed;
        let name = format!("the address of the copied table at {}, formed at {seed}", table.original);
        let expected = "jumps through the copied entries alone";
        findings.differs(Difference::new(Check::Copies, None, name, expected, fault.describe()));
    }
}

/// An instruction of the old image whose copy forms the address of a copied table.
struct Formed {
    place: Address,
    table: CopiedTable,
    /// The register that a guard before the copy compares, if it is known, and the number that it is less than.
    guard: Option<(Option<Register>, u64)>,
}

/// For each instruction that forms the address of a table, the entries that are used with it, or why the address of a copy may
/// not stand for it.
fn checked(
    image: &ElfView<'_>,
    functions: &AddressMoves,
    formed: &[Formed],
) -> Vec<std::result::Result<ProvenUse, Fault>> {
    let held = places::held_inside(image, functions);
    with_dispatches(image, functions, |dispatches| {
        let around = Surroundings { image, functions, dispatches, held: &held };
        formed.par_iter().map(|formed| check(around, formed)).collect()
    })
}

fn check(around: Surroundings<'_>, formed: &Formed) -> std::result::Result<ProvenUse, Fault> {
    let Formed { place, table, guard } = formed;
    let Some((index, limit)) = guard else {
        // Value analysis is no proof where the end of the function is a guess.
        if around.functions.is_found(*place) {
            return Err(Fault::Jump(*place));
        }
        return check_uses(around, table, *place, None)
            .map(|entries| ProvenUse { entries, guarded_register: None });
    };
    let sequence = Sequence::of(around.image, table, (*place, *limit))?;
    if index.is_some_and(|index| index != sequence.index) {
        return Err(Fault::Jump(sequence.jump));
    }
    let entries = check_uses(around, table, *place, Some(&sequence))?;
    Ok(ProvenUse { entries, guarded_register: Some(sequence.index.number() as u8) })
}

/// [`crate::provable_tables`] for ELF.
pub(in crate::elf) fn provable(
    image: &ElfView<'_>,
    found: &[Range<Address>],
    uses: &[TableUse],
) -> Result<Vec<Option<ProvenUse>>> {
    if uses.is_empty() || image.processor != Processor::X86_64 {
        return Ok(vec![None; uses.len()]);
    }
    let functions = moves_between(image, image)?.with_found(found)?;
    let written = written_places(image);
    let held = places::held_inside(image, &functions);
    with_dispatches(image, &functions, |dispatches| {
        let around = Surroundings { image, functions: &functions, dispatches, held: &held };
        let proven = |usage: &TableUse| {
            let (original, count) = (usage.table, usage.count);
            let table = CopiedTable { original, copy: NewAddress(original.0), count, entry: usage.entry };
            if !is_constant(image, &table) || is_written(&written, &table) {
                return None;
            }
            let formed = |guard| Formed { place: usage.place, table, guard };
            let unguarded = check(around, &formed(None));
            unguarded.or_else(|_| check(around, &formed(Some((None, count))))).ok()
        };
        Ok(uses.par_iter().map(proven).collect())
    })
}
