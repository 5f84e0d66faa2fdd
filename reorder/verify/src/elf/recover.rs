//! Recovers where functions went from the two images alone, without trusting the program that wrote the second.
//!
//! Relocating keeps the order of symbols, and of unwind entries unless they are sorted ([`unwind_order`]), so the i-th of the old
//! image is the i-th of the new one. Takes both files; gives [`AddressMoves`]: sorted, disjoint ranges with their old and new start.
//! Guarantees that no two sources disagree, that no two ranges overlap in either image, and that each range stays
//! inside its executable section.

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};

use super::clones::Record;
use super::symbol_walk::symbols;
use super::unwind_order;
use super::unwind_walk::UnwindEntries;
use crate::elf::view::ElfView;
use crate::moves::{AddressMoves, Move};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// Pairs the functions of the `old` file with those of the `new` one, and with the copies that only the new one has.
///
/// # Errors
/// `Malformed` when a file cannot be read; `Verification` when unwind entries or symbols of the two images do not
/// correspond, disagree about a move, or describe functions that overlap or leave their section.
pub(crate) fn recover_moves(old: &[u8], new: &[u8]) -> Result<AddressMoves> {
    let (old, new) = (ElfView::parse(old)?, ElfView::parse(new)?);
    // The places in an image with copies are those of the image without them.
    let whole = match Record::of(&old)? {
        Some(record) if old.bytes != new.bytes => Some(record.without_copies(old.bytes)),
        _ => None,
    };
    let old = whole.as_deref().map(ElfView::parse).transpose()?.unwrap_or(old);
    match Record::of(&new)? {
        Some(record) if Record::of(&old)?.is_none() => {
            let whole = record.without_copies(new.bytes);
            Ok(moves_to(&old, &ElfView::parse(&whole)?)?.with_copies(record.placed(), record.placed_tables()))
        }
        _ => moves_to(&old, &new),
    }
}

/// [`moves_between`] for a new image whose unwind entries may be in another order.
fn moves_to(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<AddressMoves> {
    match unwind_order::are_sorted(old, new) {
        false => moves_between(old, new),
        true => moves_between(old, &ElfView::parse(&unwind_order::put_back(old, new)?)?),
    }
}

/// [`recover_moves`] for images whose headers are read already.
pub(crate) fn moves_between(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<AddressMoves> {
    let mut evidence = Vec::new();
    unwind_evidence(old, new, &mut evidence)?;
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        symbol_evidence(old, new, kind, &mut evidence)?;
    }
    AddressMoves::from_evidence(evidence)
}

fn unwind_evidence(old: &ElfView<'_>, new: &ElfView<'_>, evidence: &mut Vec<Move>) -> Result<()> {
    let of = |image| ElfView::section(image, b".eh_frame").into_iter().flat_map(UnwindEntries::of);
    let (mut entries, mut found) = (of(old), of(new));
    loop {
        let (before, after) = match (entries.next().transpose()?, found.next().transpose()?) {
            (None, None) => return Ok(()),
            (Some(before), Some(after)) => (before, after),
            (before, _) => {
                let which = if before.is_some() { "more" } else { "fewer" };
                return Err(Error::verification(format!("there were {which} unwind entries before")));
            }
        };
        if before.size != after.size || before.offset != after.offset {
            return Err(Error::verification(format!(
                "the unwind entry of {:#x} does not correspond to that of {:#x} at the same position",
                before.start, after.start
            )));
        }
        push_evidence(old, new, Address(before.start), NewAddress(after.start), before.size, evidence)?;
    }
}

fn symbol_evidence(old: &ElfView<'_>, new: &ElfView<'_>, kind: u32, evidence: &mut Vec<Move>) -> Result<()> {
    let mut before = symbols(old, kind);
    let mut after = symbols(new, kind);
    loop {
        match (before.next(), after.next()) {
            (None, None) => return Ok(()),
            (Some(before), Some(after)) => {
                let pair = (before.is_sized_function(), after.is_sized_function());
                if pair.0 != pair.1 || before.size != after.size {
                    return Err(Error::verification(format!(
                        "the symbol of {:#x} does not correspond to that of {:#x} at the same position",
                        before.value, after.value
                    )));
                }
                if pair.0 {
                    push_evidence(
                        old,
                        new,
                        Address(before.value),
                        NewAddress(after.value),
                        before.size,
                        evidence,
                    )?;
                }
            }
            _ => return Err(Error::verification("the numbers of symbols differ")),
        }
    }
}

/// Records one function if it lies in code; the description of anything else must not have changed.
fn push_evidence(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    before: Address,
    after: NewAddress,
    size: u64,
    evidence: &mut Vec<Move>,
) -> Result<()> {
    let found = Move { old_start: before, new_start: after, size };
    let section = |image: &ElfView<'_>, start: u64| {
        let end = start.checked_add(size)?;
        image.code_at(start, end).map(|section| (section.offset, section.bytes.len()))
    };
    match section(old, before.0) {
        Some(_) if size == 0 => Ok(()),
        Some(home) if section(new, after.0) == Some(home) => {
            evidence.push(found);
            Ok(())
        }
        Some(_) => Err(Error::verification(format!("a function left its section: {found}"))),
        None if before.0 == after.0 => Ok(()),
        None => {
            Err(Error::verification(format!("a description of something that is not code changed: {found}")))
        }
    }
}
