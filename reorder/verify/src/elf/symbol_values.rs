//! Symbol tables: the same symbols, with the values of code symbols mapped.

use goblin::elf::section_header::{SHN_XINDEX, SHT_DYNSYM, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC, STT_SECTION, STT_TLS};

use super::pair::{ImagePair, Ledger};
use super::symbol_walk::{SYMBOL_SIZE, SymbolView, VALUE_FIELD, symbol_at};
use crate::elf::view::SectionView;
use crate::report::Check;
use reorder_base::address::{Address, FileOffset, NewAddress};

/// Checks `.symtab` and `.dynsym`.
pub(crate) fn check_symbols(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    let mut count = 0;
    for (old, new) in pair.old.sections.iter().zip(&pair.new.sections) {
        if matches!(old.kind, SHT_SYMTAB | SHT_DYNSYM) {
            count += check_table(pair, old, new, ledger);
        }
    }
    ledger.findings.checked(Check::Symbols, "symbols", count);
}

fn check_table(
    pair: ImagePair<'_>,
    old: &SectionView<'_>,
    new: &SectionView<'_>,
    ledger: &mut Ledger<'_>,
) -> usize {
    let mut index = 0;
    while let (Some(before), Some(after)) = (symbol_at(old, index), symbol_at(new, index)) {
        let place = FileOffset(old.offset).plus((index * SYMBOL_SIZE + VALUE_FIELD) as u64);
        // All other fields are left to the byte comparison.
        if before.value != after.value {
            ledger.claim(place, 8);
        }
        // Other images can take the address of any symbol that they can name.
        if old.kind == SHT_DYNSYM && stands_for_code(pair, old, &before) {
            ledger.findings.found(pair.lost_alignment(Check::Symbols, Address(before.value)));
        }
        if !is_accepted(pair, old, &before, NewAddress(after.value)) {
            ledger.expect_address(
                Check::Symbols,
                place,
                format_args!("the value of symbol {index} of {}", String::from_utf8_lossy(old.name)),
                expected_value(pair, old, &before),
                NewAddress(after.value),
            );
        }
        index += 1;
    }
    index
}

/// The value that the old symbol `symbol` of `table` must have in the new image.
fn expected_value(pair: ImagePair<'_>, table: &SectionView<'_>, symbol: &SymbolView) -> NewAddress {
    match stands_for_code(pair, table, symbol) {
        true => pair.mapped(Address(symbol.value)),
        false => NewAddress(symbol.value),
    }
}

/// Values in sections that are not loaded are relative to the section, so they may look like code addresses.
///
/// The value of a dynamic symbol is an address regardless of the section it names, because the loader reads it that way
/// (gABI, "Symbol Values"). The section only decides to which of two adjacent sections a value at their boundary belongs.
fn stands_for_code(pair: ImagePair<'_>, table: &SectionView<'_>, symbol: &SymbolView) -> bool {
    let named = pair.old.sections.get(symbol.section as usize);
    let is_code = match named {
        _ if symbol.section == SHN_XINDEX => true,
        Some(section) if table.kind == SHT_DYNSYM => {
            let is_at_end = symbol.value == section.end() && symbol.size == 0;
            let holds = (section.address..section.end()).contains(&symbol.value) || is_at_end;
            let misses = !section.is_loaded() || !holds;
            section.is_code() || misses && pair.old.code_at(symbol.value, symbol.value).is_some()
        }
        section => section.is_some_and(SectionView::is_code),
    };
    is_code && symbol.is_defined() && !matches!(symbol.kind, STT_SECTION | STT_TLS)
}

/// Labels of size zero may mark the end of a function, or a bound of their section, which does not move.
fn is_accepted(pair: ImagePair<'_>, table: &SectionView<'_>, symbol: &SymbolView, found: NewAddress) -> bool {
    if found == expected_value(pair, table, symbol) {
        return true;
    }
    if symbol.size > 0 || !stands_for_code(pair, table, symbol) {
        return false;
    }
    if pair.leads_to(Address(symbol.value), found) {
        return true;
    }
    let is_label = !matches!(symbol.kind, STT_FUNC | STT_GNU_IFUNC);
    let marks_end =
        || pair.moves.ending_at(Address(symbol.value)).is_some_and(|range| range.new_end() == found);
    let marks_bound = || {
        found.0 == symbol.value
            && pair.old.code_sections().any(|section| [section.address, section.end()].contains(&found.0))
    };
    is_label && (marks_end() || marks_bound())
}
