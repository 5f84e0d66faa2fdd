//! Compares all code of both images: atoms of `__text` in parallel, other code sections in place, and the bytes between
//! atoms.

use rayon::prelude::*;

use super::super::aarch64::{CodePair, Counts, MovedPages};
use super::super::bytes::range;
use super::super::processor::Processor;
use super::super::report::{Check, Difference};
use super::atoms::{is_padding, runs_on};
use super::dispatch::{TableUse, check_tables, tables_of};
use super::pair::{Ledger, MachPair};
use super::view::{MachView, SectionView};
use super::x86_64;
use crate::moves::Move;
use reorder_base::address::{Address, NewAddress};

/// The result for a part of the atoms.
#[derive(Default)]
struct Outcome {
    counts: Counts,
    differences: Vec<Difference>,
    tables: Vec<TableUse>,
}

/// Checks every code section and claims all of its bytes.
pub(super) fn check_code(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    /// Atoms per work item: enough to hide the cost of an item, few enough to balance large functions.
    const CHUNK: usize = 64;
    let pages = MovedPages::new(pair.moves);
    let atoms = pair.moves.as_slice();
    let mut outcomes: Vec<Outcome> = atoms
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(chunk, ranges)| {
            let mut outcome = Outcome::default();
            for (index, range) in ranges.iter().enumerate() {
                let atom = chunk * CHUNK + index;
                let difference = check_atom(pair, &pages, range, &mut outcome.counts)
                    .or_else(|| check_successor(pair, atom))
                    .or_else(|| tables_of(pair, atom, &mut outcome.tables));
                outcome.differences.extend(difference);
            }
            outcome
        })
        .collect();
    for section in pair.old.sections.iter().filter(|section| section.is_code()) {
        ledger.claims.add(section.offset, section.size);
        if section.header == pair.old.text().header {
            continue;
        }
        let range = Move {
            old_start: Address(section.address),
            new_start: NewAddress(section.address),
            size: section.size,
        };
        let mut outcome = Outcome::default();
        outcome.differences.extend(check_atom(pair, &pages, &range, &mut outcome.counts));
        outcomes.push(outcome);
    }
    let mut counts = Counts::default();
    let mut tables = Vec::new();
    for outcome in outcomes {
        tables.extend(outcome.tables);
        counts.instructions += outcome.counts.instructions;
        counts.fields += outcome.counts.fields;
        for difference in outcome.differences {
            ledger.findings.differs(difference);
        }
    }
    ledger.findings.checked(Check::Functions, "instructions", counts.instructions);
    ledger.findings.checked(Check::Functions, "address fields", counts.fields);
    check_tables(pair, tables, ledger);
    check_padding(pair, ledger);
}

/// The bytes of `size` at `address` in a section of code, and their position in the file.
pub(super) fn code_at<'data>(image: &MachView<'data>, address: u64, size: u64) -> Option<(u64, &'data [u8])> {
    let section = image.section_at(address).filter(|section| section.is_code())?;
    let bytes = range(section.bytes, address - section.address, size)?;
    Some((section.offset + (address - section.address), bytes))
}

fn check_atom(
    pair: MachPair<'_>,
    pages: &MovedPages,
    range: &Move,
    counts: &mut Counts,
) -> Option<Difference> {
    let old = code_at(pair.old, range.old_start.0, range.size);
    let new = code_at(pair.new, range.new_start.0, range.size);
    let (Some((_, old)), Some((offset, new))) = (old, new) else {
        return Some(Difference::new(
            Check::Functions,
            None,
            range.to_string(),
            "code in both files",
            "none",
        ));
    };
    match pair.old.processor {
        Processor::Aarch64 => {
            let code =
                CodePair { images: &pair, pages, range: *range, old, new, offset, check: Check::Functions };
            code.check(counts)
        }
        Processor::X86_64 => x86_64::check(pair, range, old, new, offset, counts),
    }
}

/// An atom whose control runs past its end must be followed by the same code.
fn check_successor(pair: MachPair<'_>, index: usize) -> Option<Difference> {
    let atoms = pair.moves.as_slice();
    let (atom, next) = (atoms[index], atoms.get(index + 1));
    let follows = |next: &Move| next.delta() == atom.delta() && next.old_start == atom.old_end();
    let is_kept = match next {
        Some(next) => follows(next),
        None => !atom.is_moved(),
    };
    if is_kept {
        return None;
    }
    let (_, bytes) = code_at(pair.old, atom.old_start.0, atom.size)?;
    runs_on(pair.old, bytes, atom.old_start.0).then(|| {
        Difference::new(
            Check::Functions,
            None,
            format!("the end of {atom}"),
            "the code that control runs into, after it",
            "something else",
        )
    })
}

/// Bytes of the new `__text` that no atom covers are the old bytes, or padding.
fn check_padding(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    let text: &SectionView<'_> = pair.new.text();
    let mut position = text.address;
    let mut padding = 0;
    let mut check = |start: u64, end: u64, ledger: &mut Ledger<'_>| {
        if start >= end {
            return;
        }
        padding += (end - start) as usize;
        let (from, to) = ((start - text.address) as usize, (end - text.address) as usize);
        let (old, new) = (&pair.old.text().bytes[from..to], &text.bytes[from..to]);
        if old != new && !is_padding(pair.new.processor, new) {
            let place = format!("the bytes between functions at {}", NewAddress(start));
            let offset = text.offset + from as u64;
            ledger.findings.differs(Difference::new(
                Check::Padding,
                Some(offset),
                place,
                "padding",
                "something else",
            ));
        }
    };
    for atom in pair.moves.iter_by_new_start() {
        check(position, atom.new_start.0, ledger);
        position = position.max(atom.new_end().0);
    }
    check(position, text.range().end, ledger);
    ledger.findings.checked(Check::Padding, "bytes", padding);
}
