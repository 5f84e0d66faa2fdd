//! Entries for data.

use crate::elf::analysis::absolute_fields::{AbsoluteField, Role};
use crate::elf::analysis::blocks::Partition;
use crate::elf::analysis::relative_words::RelativeWord;
use crate::elf::code::{CodeSpace, Region};
use crate::elf::file::ElfFile;
use crate::elf::kept_relocations::{KeptEntry, KeptTable, KeptTables};
use crate::elf::relocation_types::Meaning;
use crate::elf::symbol::Symbol;
use crate::pins::PinReason;
use reorder_base::address::Address;

use super::Outcome;
use super::absolute::{Verdict, judge};

/// The words of data that, as their bytes confirm, hold addresses of code: known before code is divided into blocks.
pub(crate) fn absolute_words(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    tables: &KeptTables<'_>,
) -> Vec<AbsoluteField> {
    if !code.is_fixed_address {
        return Vec::new();
    }
    let tables = tables.tables.iter().filter(|table| !table.target.is_executable());
    tables
        .flat_map(|table| {
            table.entries.iter().filter_map(|entry| match absolute_word(file, code, table, entry)? {
                (width, _, Verdict::Code(target)) => {
                    Some(AbsoluteField { place: entry.place, width, target, role: Role::Word })
                }
                _ => None,
            })
        })
        .collect()
}

/// Width, contents and verdict of the word that an absolute entry is for.
fn absolute_word(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    table: &KeptTable<'_>,
    entry: &KeptEntry,
) -> Option<(u8, u64, Verdict)> {
    let Meaning::Absolute(width) = entry.meaning else { return None };
    let stored = stored_word(file, entry.place, width)?;
    let symbol = table.symbol(entry)?;
    Some((width, stored, judge(code, table, entry, &symbol, stored, (width, 0))))
}

/// The word of four or eight bytes at `place`, zero-extended.
pub(super) fn stored_word(file: &ElfFile<'_>, place: Address, width: u8) -> Option<u64> {
    let bytes = file.bytes_at(place, u64::from(width))?;
    match bytes.try_into() {
        Ok(four) => Some(u64::from(u32::from_le_bytes(four))),
        Err(_) => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
    }
}

pub(super) fn compare_data(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    table: &KeptTable<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut run: Option<(Address, Address)> = None;
    for entry in &table.entries {
        if code.is_fixed_address {
            compare_absolute_word(file, code, partition, table, entry, &mut outcome);
        }
        let Meaning::Relative(width) = entry.meaning else { continue };
        let start = run.filter(|(_, end)| *end == entry.place).map_or(entry.place, |(start, _)| start);
        run = Some((start, entry.place.plus(u64::from(width))));
        let Some(word) = relative_word(code, table, entry, start) else { continue };
        let Some(stored) = stored_word(file, entry.place, width) else { continue };
        let stored = match width {
            4 => entry.place.plus(i64::from(stored as u32 as i32) as u64),
            _ => entry.place.plus(stored),
        };
        outcome.evaluated += 1;
        outcome.words.push(word);
        // Where a reference goes through a stub, the word holds the way to the stub.
        if stored != word.value && code.region(stored) != Region::FixedCode {
            outcome.disagreeing += 1;
            outcome.words.push(RelativeWord { value: stored, named: None, ..word });
        }
    }
    outcome
}

fn compare_absolute_word(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    table: &KeptTable<'_>,
    entry: &KeptEntry,
    outcome: &mut Outcome,
) {
    let Some((width, stored, verdict)) = absolute_word(file, code, table, entry) else { return };
    outcome.evaluated += 1;
    match verdict {
        Verdict::Code(target) => {
            outcome.absolute.push(AbsoluteField { place: entry.place, width, target, role: Role::Word });
        }
        Verdict::Other => {}
        Verdict::Unclear | Verdict::Contradiction => {
            let mut targets = vec![Address(stored)];
            if let Some(symbol) = table.symbol(entry) {
                targets.extend(named_places(table, entry, &symbol));
            }
            if verdict == Verdict::Contradiction {
                outcome.disagrees(partition, entry, &targets);
            } else {
                for target in targets {
                    outcome.pin(partition, target, PinReason::AbsoluteAddress, entry.place);
                }
            }
        }
    }
}

/// All that an entry may mean: its sum in both readings, and the symbol itself unless that is a whole section.
pub(super) fn named_places(
    table: &KeptTable<'_>,
    entry: &KeptEntry,
    symbol: &Symbol<'_>,
) -> impl Iterator<Item = Address> + use<> {
    let named = (!symbol.is_section()).then_some(symbol.value);
    named.into_iter().chain(table.values(entry, symbol))
}

/// What a word at the entry's place, which is no part of an instruction, refers to; none unless that is code.
pub(super) fn relative_word(
    code: &CodeSpace<'_>,
    table: &KeptTable<'_>,
    entry: &KeptEntry,
    run_start: Address,
) -> Option<RelativeWord> {
    let symbol = table.symbol(entry)?;
    let [value, other] = table.values(entry, &symbol);
    let value = if code.arena_of(value).is_some() { value } else { other };
    let named = (!symbol.is_section() && code.arena_of(symbol.value).is_some()).then_some(symbol.value);
    // The sum for a late entry of a table may lie after the code that the entry leads to.
    let is_code = table.names_code(&symbol) || code.arena_of(value).is_some();
    is_code.then_some(RelativeWord { place: entry.place, run_start, value, named })
}
