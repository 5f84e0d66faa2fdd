//! Proves that an image with copies of functions does what it did without them.
//!
//! ```text
//! new bytes ─> record: the claim ─┬─> the file without copies ─> checked as any other image
//!                                 ├─> of functions: each way into a copy ─> follow: instruction by instruction the original's
//!                                 ├─> of fragments: every byte of a copy ─> pairing, fragments: the same
//!                                 └─> of jump tables: each entry; each use of the address ─> tables
//! ```
//!
//! This module shares no code with the one that makes copies. The claim only says where to look.

mod appended;
mod assumed;
mod before_entries;
mod branch;
mod claimed;
mod code;
mod conventions;
mod copies;
mod exception_lookup;
mod exceptions;
mod filler;
mod follow;
mod found_functions;
mod fragments;
mod guard;
mod insides;
mod instruction;
mod lost_notes;
mod pairing;
mod pointers;
mod record;
mod restartable;
mod rows;
mod search_table;
mod segments;
mod skipped_return;
mod symbols;
mod tables;
mod unwind;
mod unwind_fragments;
mod unwind_functions;
mod unwind_homes;

use std::collections::BTreeSet;
use std::ops::Range;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};

pub(super) use assumed::read_as_numbers;
pub(super) use code::lea_targets;
pub(super) use record::Record;
pub(super) use tables::provable;

use super::recover::moves_between;
use super::symbol_walk::{SymbolView, symbols};
use super::unwind_walk::UnwindEntries;
use crate::JudgedStarts;
use crate::debug::copies::{Point, check_copies};
use crate::elf::view::ElfView;
use crate::remark::Remark;
use crate::report::{Check, Difference, Findings};
use crate::unchanged::Claims;
use copies::Copies;
use record::Listed;
use reorder_base::address::Address;
use reorder_base::error::Result;

/// Bytes of the file header.
const FILE_HEADER: u64 = 64;
/// Bytes of a program header.
const PROGRAM_HEADER: u64 = 56;

/// Checks `new`, which claims to be `old` with copies.
///
/// # Errors
/// The files do not correspond.
pub(super) fn check(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    record: &Record<'_>,
    findings: &mut Findings,
) -> Result<()> {
    appended::check_appended(old, new, findings);
    lost_notes::check_lost_notes(old, new, findings);
    let segment = segments::added_segment(old, new)?;
    let section = segments::added_section(old, new, &segment)?;
    let index = old.sections.len();
    for section in old.sections.iter().filter(|section| segments::is_kept_relocations(section)) {
        let name = String::from_utf8_lossy(section.name).into_owned();
        findings.remark(Remark::KeptRelocationsLeftOut(name));
    }
    let described = moves_between(old, old)?;
    let evident = match found_functions::check_found(old, &record.found, &described, findings) {
        Ok(evident) => evident,
        Err(difference) => {
            findings.differs(difference);
            return Ok(());
        }
    };
    let functions = described.with_found(&record.found)?;
    let mut starts = function_starts(old)?;
    starts.extend(evident);
    let unit = match record.listed {
        Listed::Functions => "functions",
        Listed::Fragments => "fragments",
    };
    findings.checked(Check::Copies, unit, record.copies.len());
    let mut copies = match Copies::new((old, new), section, record, &functions, starts) {
        Ok(copies) => copies,
        Err(difference) => {
            findings.differs(difference);
            return Ok(());
        }
    };
    let mut claims = Claims::default();
    claims.add(0, FILE_HEADER);
    claims.add(old.header.e_phoff, u64::from(old.header.e_phnum) * PROGRAM_HEADER);
    pointers::check_pointers(&mut copies, index, &mut claims, findings);
    let assumed_words = assumed::check_words(&mut copies, &functions, &mut claims, findings);
    code::check_originals(&mut copies, &functions, &mut claims, findings);
    unwind::check_unwind(&mut copies, findings)?;
    let instructions = match record.listed {
        Listed::Functions => follow::follow(&mut copies, findings),
        Listed::Fragments => fragments::check_fragments(&mut copies, findings),
    };
    findings.checked(Check::Copies, "instructions", instructions);
    tables::check_tables(&copies, &functions, findings);
    if record.listed == Listed::Fragments {
        filler::check_filler(&copies, &segment, findings);
    }
    pointers::check_identity(&copies, &functions, findings);
    before_entries::check_before_entries(&copies, &functions, findings);
    assumed::tell(&copies, assumed_words, findings);
    insides::check_insides(&copies, &functions, findings);
    restartable::check_restartable(&copies, findings);
    symbols::check_added_symbols(&copies, index, findings);
    check_copies((old, new), described_points(&copies), findings)?;
    let compared = claims.compare_rest(old.bytes, new.bytes, |run| {
        let (expected, found) = (old.bytes[run.start].into(), new.bytes[run.start].into());
        let place = "a byte that no copy explains";
        findings.differs(Difference::number(Check::Unchanged, run.start as u64, place, expected, found));
    });
    findings.checked(Check::Unchanged, "bytes", compared);
    Ok(())
}

/// [`crate::judge_starts`] for ELF.
pub(super) fn judge_starts(
    image: &ElfView<'_>,
    found: &[Range<Address>],
    starts: &[Address],
) -> Result<JudgedStarts> {
    let described = moves_between(image, image)?;
    let evident = found_functions::check_found(image, found, &described, &mut Findings::new(0));
    let functions = described.with_found(found)?;
    let is_read =
        |start: &&Address| before_entries::is_read_from_before(image, functions.as_slice(), **start);
    let read_from_before = starts.iter().filter(is_read).copied().collect();
    Ok(JudgedStarts { evident: evident.unwrap_or_default(), read_from_before })
}

/// Where debug information of both images is compared: the first and the last byte of each copied instruction, and the first of its
/// guard.
fn described_points(copies: &Copies<'_>) -> Vec<Point> {
    let Some(map) = copies.fragments() else { return Vec::new() };
    let mut points = Vec::with_capacity(2 * map.len());
    for copied in &copies.by_copy {
        let repeated = map.of_fragment(copied);
        for (position, at) in repeated.iter().enumerate() {
            let guard = copies.guards.get(&at.original).map_or(0, |guard| guard.length);
            points.push(Point { copy: at.copy.plus(guard), original: at.original });
            if guard > 0 {
                // The statement begins after the guard, which is described as the inside of the instruction.
                points.push(Point { copy: at.copy, original: at.original.plus(1) });
            }
            let next = repeated.get(position + 1).map_or(copied.original_end(), |next| next.original);
            // The copy of a jump may be longer than the jump, and is described as one.
            let last = next.distance_from(at.original).saturating_sub(1);
            if last > 0 {
                points.push(Point { copy: at.copy.plus(guard + last), original: at.original.plus(last) });
            }
        }
    }
    points
}

/// Starts of functions, according to unwind entries and symbols.
pub(in crate::elf) fn function_starts(image: &ElfView<'_>) -> Result<BTreeSet<Address>> {
    let section = image.section(b".eh_frame");
    let mut starts = BTreeSet::new();
    for entry in section.into_iter().flat_map(UnwindEntries::of) {
        let entry = entry?;
        starts.extend((entry.size > 0).then_some(Address(entry.start)));
    }
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let sized = symbols(image, kind).filter(SymbolView::is_sized_function);
        starts.extend(sized.map(|symbol| Address(symbol.value)));
    }
    starts.retain(|start| image.code_at(start.0, start.0).is_some());
    Ok(starts)
}
