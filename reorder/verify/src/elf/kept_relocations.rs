//! Relocations that the linker kept in the file (`--emit-relocs`): they must describe the new image as well (or as badly) as
//! they described the old one.
//!
//! Places in code follow the map; type and symbol stay. If the bytes of the old image held an entry's value, the bytes of
//! the new image must hold its new value; that determines the addend without knowing where an instruction ends. Entries that
//! were already stale (relaxed code, discarded input) may stay unchanged.

use goblin::elf::section_header::SHT_RELA;
use goblin::elf::sym::STT_SECTION;

use super::compact_relocations::SHT_CREL;
use super::pair::{ImagePair, Ledger};
use super::pointers::RELA_SIZE;
use super::relocated_field::RelocatedField;
use super::symbol_walk::symbol_at;
use crate::bytes::{range, u64_at};
use crate::debug::layout::is_debug;
use crate::elf::view::{ElfView, SectionView};
use crate::remark::Remark;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, FileOffset, NewAddress};

/// One entry of a table, as stated in the file of either image. The place is a plain number: the caller knows whether it is
/// an old or a new address.
#[derive(Clone, Copy)]
struct Kept {
    place: u64,
    information: u64,
    addend: u64,
}

/// Checks all tables that are not loaded; `updated` is the one of `verify_pair`. Where debug information was rewritten, the
/// output leaves out the tables that described it: in `pair` they appear with the old debug information and the new symbols.
pub(crate) fn check_kept_relocations(
    pair: ImagePair<'_>,
    updated: Option<&ElfView<'_>>,
    ledger: &mut Ledger<'_>,
) {
    let mut count = 0;
    for (index, (old, new)) in pair.old.sections.iter().zip(&pair.new.sections).enumerate() {
        let is_left_out =
            |file: &ElfView<'_>| file.sections.get(index).is_some_and(|section| section.bytes.is_empty());
        let target = pair.old.sections.get(old.info as usize);
        if target.is_some_and(is_debug) && updated.is_some_and(is_left_out) {
            continue;
        }
        if old.kind == SHT_CREL && !old.is_loaded() && pair.moves.moved() > 0 && !new.bytes.is_empty() {
            check_emptied(old, new, ledger);
        }
        if old.kind == SHT_RELA && !old.is_loaded() && !new.bytes.is_empty() {
            count += check_table(pair, old, new, ledger);
        }
    }
    ledger.findings.checked(Check::StaticRelocations, "relocations", count);
}

/// Tables in the compact form have no room for new differences, so they are reduced to a header without entries.
fn check_emptied(old: &SectionView<'_>, new: &SectionView<'_>, ledger: &mut Ledger<'_>) {
    let name = String::from_utf8_lossy(old.name);
    if new.bytes.iter().all(|&byte| byte == 0) {
        ledger.claims.add(old.offset, old.bytes.len() as u64);
        ledger.findings.remark(Remark::KeptRelocationsLeftOut(name.into_owned()));
    } else {
        ledger.findings.differs(Difference::new(
            Check::StaticRelocations,
            Some(old.offset),
            name,
            "no relocations in the compact form",
            "relocations for the old addresses",
        ));
    }
}

fn entry_at(section: &SectionView<'_>, index: usize) -> Option<Kept> {
    let at = index.checked_mul(RELA_SIZE)?;
    Some(Kept {
        place: u64_at(section.bytes, at)?,
        information: u64_at(section.bytes, at + 8)?,
        addend: u64_at(section.bytes, at + 16)?,
    })
}

fn check_table(
    pair: ImagePair<'_>,
    old: &SectionView<'_>,
    new: &SectionView<'_>,
    ledger: &mut Ledger<'_>,
) -> usize {
    let (Some(old_target), Some(new_target)) =
        (pair.old.sections.get(old.info as usize), pair.new.sections.get(new.info as usize))
    else {
        return 0;
    };
    let places_follow = old_target.is_code();
    let mut index = 0;
    while let (Some(before), Some(after)) = (entry_at(old, index), entry_at(new, index)) {
        let offset = old.offset + (index * RELA_SIZE) as u64;
        index += 1;
        let place = match places_follow {
            // The words before a function may have moved with it.
            true if pair.leads_to(Address(before.place), NewAddress(after.place)) => NewAddress(after.place),
            true => pair.mapped(Address(before.place)),
            false => NewAddress(before.place),
        };
        if before.place != after.place {
            ledger.claims.add(offset, 8);
        }
        ledger.expect_address(
            Check::StaticRelocations,
            FileOffset(offset),
            "the place of a kept relocation",
            place,
            NewAddress(after.place),
        );
        if before.addend != after.addend {
            ledger.claims.add(offset + 16, 8);
        }
        let readings = readings(pair, old.link as usize, &before);
        let field = field(pair, &before);
        let fits = |target: &SectionView<'_>, entry: &Kept, symbol: u64| {
            field.and_then(|field| misfit(target, entry, field, symbol)) == Some(0)
        };
        let mut fitting =
            readings.iter().filter(|(symbol, _)| fits(old_target, &before, symbol.0)).peekable();
        let is_exact =
            fitting.peek().is_some().then(|| fitting.any(|(_, symbol)| fits(new_target, &after, symbol.0)));
        let is_partial = field.is_some_and(RelocatedField::is_partial);
        if is_exact == Some(true) {
            claim_word(pair, old_target, &before, ledger);
        }
        match is_exact {
            Some(true) if is_partial => check_stale_addend(pair, &before, &after, &readings, offset, ledger),
            Some(true) => {}
            // A field that holds part of an address may have agreed with its relocation only by chance and no longer agree.
            // The relocation must then still follow its target.
            Some(false) if is_partial && is_followed(pair, &before, &after, &readings) => {}
            Some(false) => {
                let name = format!("the addend of the kept relocation for {}", NewAddress(after.place));
                ledger.findings.differs(Difference::new(
                    Check::StaticRelocations,
                    Some(offset + 16),
                    name,
                    "the value in the bytes of the new image",
                    format!("{:#x}", after.addend),
                ));
            }
            None if before.addend == after.addend => {}
            None => check_stale_addend(pair, &before, &after, &readings, offset, ledger),
        }
    }
    index
}

/// What the symbol of an entry may stand for in the old and in the new image: its value and, for a section symbol, the
/// address in that section's header, because lld 22 uses symbols of other places for sections. `link` is the index of the
/// symbol table.
fn readings(pair: ImagePair<'_>, link: usize, entry: &Kept) -> Vec<(Address, NewAddress)> {
    let symbols = |image: &ElfView<'_>| {
        let symbol = symbol_at(image.sections.get(link)?, (entry.information >> 32) as usize)?;
        let section = image.sections.get(symbol.section as usize).filter(|_| symbol.kind == STT_SECTION);
        Some([symbol.value, section.map_or(symbol.value, |section| section.address)])
    };
    let both = symbols(pair.old).zip(symbols(pair.new));
    let typed = |(old, new)| (Address(old), NewAddress(new));
    both.map_or_else(Vec::new, |(old, new)| old.into_iter().zip(new).map(typed).collect())
}

fn field(pair: ImagePair<'_>, entry: &Kept) -> Option<RelocatedField> {
    RelocatedField::of(pair.old.processor, entry.information as u32)
}

/// What the bytes say minus what the relocation says, in the width of the field; `None` if there is no such field.
fn misfit(target: &SectionView<'_>, entry: &Kept, field: RelocatedField, symbol: u64) -> Option<u64> {
    let within = entry.place.checked_sub(target.address)?;
    let bytes = range(target.bytes, within, field.width())?;
    field.misfit(bytes, entry.place, symbol.wrapping_add(entry.addend))
}

/// Claims a word in data that the kept relocation describes in both images, because it follows its target: a distance, an
/// address in a section that is not loaded, or the copy that some linkers write of an address that the loader stores there.
fn claim_word(pair: ImagePair<'_>, target: &SectionView<'_>, entry: &Kept, ledger: &mut Ledger<'_>) {
    let Some(field) = field(pair, entry) else { return };
    if target.is_code() {
        return;
    }
    let offset = target.offset + (entry.place - target.address);
    let size = field.width();
    let words = range(pair.old.bytes, offset, size).zip(range(pair.new.bytes, offset, size));
    let Some((before, after)) = words.filter(|(before, after)| before != after) else { return };
    let follows = u64_at(before, 0).is_some_and(|address| {
        u64_at(after, 0).is_some_and(|found| pair.leads_to(Address(address), NewAddress(found)))
    });
    if field.is_relative() || follows {
        ledger.claims.add(offset, size);
    }
}

/// A stale entry that changed must at least still name the same byte.
fn check_stale_addend(
    pair: ImagePair<'_>,
    before: &Kept,
    after: &Kept,
    readings: &[(Address, NewAddress)],
    offset: u64,
    ledger: &mut Ledger<'_>,
) {
    if !is_followed(pair, before, after, readings) {
        ledger.findings.expect(
            Check::StaticRelocations,
            offset + 16,
            format_args!("the addend of a stale kept relocation for {}", NewAddress(after.place)),
            before.addend,
            after.addend,
        );
    }
}

/// Whether an entry names the new place of its old target, in one of its readings.
fn is_followed(pair: ImagePair<'_>, before: &Kept, after: &Kept, readings: &[(Address, NewAddress)]) -> bool {
    readings.iter().any(|(old_symbol, new_symbol)| {
        // A relative addend falls short of its target by the rest of the instruction: 4 to 8 bytes.
        [0u64, 4, 5, 6, 8].iter().any(|bias| {
            let target = old_symbol.plus(before.addend).plus(*bias);
            pair.leads_to(target, new_symbol.plus(after.addend).plus(*bias))
        })
    })
}
