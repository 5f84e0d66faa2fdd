//! Entries for AArch64 code.
//!
//! Addresses are formed relative to the instruction, also at a fixed address; what the entries are good for is to tell
//! whether the linker's tables are to be believed, and to find data in the text. Instructions that linkers made of
//! others keep the old type, so each form is accepted in all its disguises.
//! Source: ELF for the Arm 64-bit Architecture, "Relocation" and "Relocation optimization".

use std::collections::BTreeSet;

use crate::decode::aarch64::{Operation, decode};
use crate::elf::analysis::absolute_fields::{AbsoluteField, Role};
use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::code::{CodeSpace, Region};
use crate::elf::file::ElfFile;
use crate::elf::kept_relocations::{KeptEntry, KeptTable};
use crate::elf::relocation_types::{InstructionForm, Meaning};
use crate::elf::symbol::Symbol;
use crate::pins::PinReason;
use reorder_base::address::Address;

use super::Outcome;
use super::data::{named_places, relative_word, stored_word};

/// Addresses that share their upper bits are on one page.
const PAGE_MASK: u64 = !0xfff;

/// How an instruction goes together with its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// It holds what the entry says, or a part of it.
    Same,
    /// It leads somewhere else.
    Other(Address),
    /// It is no instruction that this entry can be for.
    Foreign,
}

pub(super) fn compare_code(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    table: &KeptTable<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    if code.is_fixed_address {
        slots(file, code, table, &mut outcome);
    }
    for entry in &table.entries {
        let Some(symbol) = table.symbol(entry) else { continue };
        let block = partition.block_containing(entry.place);
        let is_plain = symbol.defining_section().is_some() && symbol.kind != object::elf::STT_GNU_IFUNC.0;
        match entry.meaning {
            // An undefined weak function leaves a no-operation; an import or a chosen function, a stub.
            Meaning::Instruction(InstructionForm::Wide) => {
                keep(partition, entry, named_places(table, entry, &symbol), &mut outcome);
            }
            Meaning::Instruction(form) if is_plain => {
                let Some(word) = stored_word(file, entry.place, 4) else { continue };
                let values = table.values(entry, &symbol);
                outcome.evaluated += 1;
                match compare(form, word as u32, entry.place, values) {
                    Match::Same => {}
                    Match::Other(target) if is_stub(code, &symbol, target) => {}
                    Match::Other(target) => {
                        disagrees(code, partition, entry, block, &values, target, &mut outcome)
                    }
                    Match::Foreign => {
                        disagrees(code, partition, entry, block, &values, entry.place, &mut outcome);
                    }
                }
            }
            // Data in the text is never written.
            Meaning::Absolute(width) => {
                let stored = stored_word(file, entry.place, width).map(Address);
                let targets = stored.into_iter().chain(named_places(table, entry, &symbol));
                keep(partition, entry, targets, &mut outcome);
            }
            Meaning::Relative(_) => {
                outcome.words.extend(relative_word(code, table, entry, entry.place));
            }
            Meaning::FromOffsetTable => {
                keep(partition, entry, named_places(table, entry, &symbol), &mut outcome);
            }
            _ => {}
        }
    }
    outcome
}

/// Slots of the GOT, which no entry is for: words there that are the address of a symbol that code reaches through it.
fn slots(file: &ElfFile<'_>, code: &CodeSpace<'_>, table: &KeptTable<'_>, outcome: &mut Outcome) {
    const WIDTH: u8 = 8;
    let through_slots = table.entries.iter().filter(|entry| entry.meaning == Meaning::Slot);
    let named: BTreeSet<Address> = through_slots
        .filter_map(|entry| table.symbol(entry))
        .filter(|symbol| table.names_code(symbol) && code.arena_of(symbol.value).is_some())
        .map(|symbol| symbol.value)
        .collect();
    for section in
        file.sections.iter().filter(|section| section.is_loaded() && section.name.starts_with(b".got"))
    {
        for place in
            (0..section.size / u64::from(WIDTH)).map(|at| section.address.plus(u64::from(WIDTH) * at))
        {
            let target = stored_word(file, place, WIDTH).map(Address);
            if let Some(target) = target.filter(|target| named.contains(target)) {
                outcome.absolute.push(AbsoluteField { place, width: WIDTH, target, role: Role::Word });
            }
        }
    }
}

/// Linkers lead calls of what may be replaced or is far through stubs of their own.
fn is_stub(code: &CodeSpace<'_>, symbol: &Symbol<'_>, target: Address) -> bool {
    code.region(target) == Region::FixedCode && symbol.binding != object::elf::STB_LOCAL.0
}

fn keep(
    partition: &Partition,
    entry: &KeptEntry,
    targets: impl Iterator<Item = Address>,
    outcome: &mut Outcome,
) {
    for target in targets {
        outcome.pin(partition, target, PinReason::ComputedAddress, entry.place);
    }
}

/// Only what may be code is worth a pin: a wrong page of data leads nowhere else after a move.
fn disagrees(
    code: &CodeSpace<'_>,
    partition: &Partition,
    entry: &KeptEntry,
    block: Option<BlockIndex>,
    values: &[Address; 2],
    target: Address,
    outcome: &mut Outcome,
) {
    let mut targets = values.to_vec();
    targets.push(target);
    targets.extend(block.map(|block| partition.block(block).start));
    let matters =
        code.arena_of(target).is_some() || values.iter().any(|&value| code.arena_of(value).is_some());
    if matters {
        outcome.disagrees(partition, entry, &targets);
    }
}

/// Whether the instruction `word` at `place` holds `value`, or the part of it that `form` has room for.
pub fn holds(form: InstructionForm, word: u32, place: Address, value: Address) -> bool {
    compare(form, word, place, [value, value]) == Match::Same
}

fn compare(form: InstructionForm, word: u32, place: Address, values: [Address; 2]) -> Match {
    let is_page = |page: Address| values.iter().any(|value| value.0 & PAGE_MASK == page.0);
    let is_low = |low: u64| values.iter().any(|value| value.0 & !PAGE_MASK == low);
    let whole = |target: Address| match values.contains(&target) {
        true => Match::Same,
        false => Match::Other(target),
    };
    match (form, decode(word, place)) {
        (InstructionForm::Branch, Operation::Branch(target) | Operation::Call(target)) => whole(target),
        (InstructionForm::Near | InstructionForm::Test, Operation::ConditionalBranch(target)) => {
            whole(target)
        }
        (InstructionForm::Near, Operation::LoadLiteral(_, target)) => whole(target),
        (InstructionForm::Page, Operation::Adrp(_, page)) => match is_page(page) {
            true => Match::Same,
            false => Match::Other(page),
        },
        (
            InstructionForm::Page | InstructionForm::Distance | InstructionForm::LowAddition,
            Operation::Adr(_, target),
        ) => whole_or_page(target, values),
        (InstructionForm::LowAddition, Operation::AddImmediate(_, _, low)) => match is_low(low) {
            true => Match::Same,
            false => Match::Foreign,
        },
        (InstructionForm::LowAccess(_), Operation::Access(_, low, _)) => match is_low(low) {
            true => Match::Same,
            false => Match::Foreign,
        },
        (InstructionForm::LowAccess(_), Operation::LoadLiteral(_, target)) => whole(target),
        // What relaxation leaves, and the branch to the linker's way around an erratum.
        (_, Operation::Nop) => Match::Same,
        (InstructionForm::LowAccess(_) | InstructionForm::LowAddition, Operation::Branch(_)) => Match::Same,
        _ => Match::Foreign,
    }
}

/// A relaxed pair: the whole address, or, where an erratum forbids `adrp`, the page's.
fn whole_or_page(target: Address, values: [Address; 2]) -> Match {
    let is_page = values.iter().any(|value| value.0 & PAGE_MASK == target.0);
    if is_page || values.contains(&target) { Match::Same } else { Match::Other(target) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Address = Address(0x40_1000);

    fn judged(form: InstructionForm, word: u32, value: u64) -> Match {
        compare(form, word, PLACE, [Address(value), Address(value)])
    }

    #[test]
    fn relaxed_instructions_are_recognised() {
        // bl +8; adrp x0, +1 page; add x0, x0, #0x18; ldr x1, [x1, #8]; adr x0, +8.
        let (call, page, addition) = (0x9400_0002, 0xb000_0000, 0x9100_6000);
        let (access, distance, nop) = (0xf940_0421, 0x1000_0040, 0xd503_201f);
        assert_eq!(judged(InstructionForm::Branch, call, 0x40_1008), Match::Same);
        assert_eq!(judged(InstructionForm::Branch, call, 0x40_100c), Match::Other(Address(0x40_1008)));
        assert_eq!(judged(InstructionForm::Page, page, 0x40_2018), Match::Same);
        assert_eq!(judged(InstructionForm::LowAddition, addition, 0x40_2018), Match::Same);
        assert_eq!(judged(InstructionForm::LowAccess(8), access, 0x40_2008), Match::Same);
        assert_eq!(judged(InstructionForm::LowAddition, distance, 0x40_1008), Match::Same);
        assert_eq!(judged(InstructionForm::Page, nop, 0x40_1008), Match::Same);
    }

    #[test]
    fn an_entry_on_the_wrong_instruction_is_noticed() {
        // cmp w0, #3, where a call should be.
        assert_eq!(judged(InstructionForm::Branch, 0x7100_0c1f, 0x40_1008), Match::Foreign);
        assert_eq!(judged(InstructionForm::LowAddition, 0x9100_6000, 0x40_2020), Match::Foreign);
    }
}
