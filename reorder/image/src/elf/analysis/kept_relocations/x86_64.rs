//! Entries for x86-64 code.
//!
//! Source: System V ABI AMD64, "Relocation Types".

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use rayon::prelude::*;

use crate::elf::analysis::absolute_fields::{AbsoluteField, Role};
use crate::elf::analysis::blocks::{BlockIndex, GapContent, Partition};
use crate::elf::code::{CodeSpace, Region};
use crate::elf::file::ElfFile;
use crate::elf::kept_relocations::{KeptEntry, KeptTable};
use crate::elf::relocation_types::Meaning;
use crate::elf::symbol::Symbol;
use crate::pins::PinReason;
use reorder_base::address::Address;

use super::Outcome;
use super::absolute::{Verdict, judge, truncated};
use super::data::{named_places, relative_word, stored_word};

/// The entry of a GOT reference counts from the end of its field.
const SLOT_BIAS: u64 = 4;

/// An address field as the decoder sees it.
struct RelativeField {
    place: Address,
    /// One past the instruction.
    end: Address,
    target: Address,
}

/// An operand that could be an absolute address.
struct Constant {
    place: Address,
    width: u8,
    role: Role,
}

/// The operands of some code, each list by place.
#[derive(Default)]
struct Operands {
    relative: Vec<RelativeField>,
    constants: Vec<Constant>,
}

impl Operands {
    /// `None` if some bytes are not instructions.
    fn decode(code: &CodeSpace<'_>, range: Range<Address>) -> Option<Self> {
        let mut decoder =
            Decoder::with_ip(64, code.bytes(range.clone()), range.start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut operands = Self::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return None;
            }
            let constants = decoder.get_constant_offsets(&instruction);
            let start = Address(instruction.ip());
            let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
            let is_relative = instruction.is_ip_rel_memory_operand();
            if is_branch || is_relative {
                let (target, offset) = match is_branch {
                    true => (instruction.near_branch_target(), constants.immediate_offset()),
                    false => (instruction.ip_rel_memory_address(), constants.displacement_offset()),
                };
                operands.relative.push(RelativeField {
                    place: start.plus(offset as u64),
                    end: Address(instruction.next_ip()),
                    target: Address(target),
                });
            }
            let mut push = |offset: usize, size: usize, role: Role| {
                if size == 4 || size == 8 {
                    let place = start.plus(offset as u64);
                    operands.constants.push(Constant { place, width: size as u8, role });
                }
            };
            if code.is_fixed_address && !is_branch {
                if !is_relative {
                    push(constants.displacement_offset(), constants.displacement_size(), Role::Displacement);
                }
                push(constants.immediate_offset(), constants.immediate_size(), Role::Immediate);
            }
        }
        Some(operands)
    }

    fn relative_at(&self, place: Address) -> Option<&RelativeField> {
        let found = self.relative.binary_search_by_key(&place, |field| field.place).ok()?;
        Some(&self.relative[found])
    }

    fn constant_at(&self, place: Address) -> Option<&Constant> {
        let found = self.constants.binary_search_by_key(&place, |constant| constant.place).ok()?;
        Some(&self.constants[found])
    }
}

pub(super) fn compare_code(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    table: &KeptTable<'_>,
) -> Outcome {
    let comparison = Comparison { file, code, partition, table };
    let outcomes: Vec<Outcome> = groups(code, partition, &table.entries)
        .into_par_iter()
        .with_min_len(16)
        .map(|(owner, entries)| match owner {
            Owner::Block(block) => comparison.block(entries, block),
            Owner::Gap(gap) => comparison.gap(entries, gap),
        })
        .collect();
    let mut total = Outcome::default();
    outcomes.into_iter().for_each(|outcome| total.append(outcome));
    let stubs = table.entries.iter().filter(|entry| code.arena_of(entry.place).is_none());
    stubs.for_each(|entry| comparison.keep_addresses(entry, &mut total));
    total
}

/// The owner of the fields of a run of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Block(BlockIndex),
    Gap(usize),
}

/// Runs of entries in one block or gap. The linker's own stubs are in neither: they stay unchanged.
fn groups(code: &CodeSpace<'_>, partition: &Partition, entries: &[KeptEntry]) -> Vec<(Owner, Range<usize>)> {
    let mut groups: Vec<(Owner, Range<usize>)> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if code.arena_of(entry.place).is_none() {
            continue;
        }
        let block = partition.block_containing(entry.place).map(Owner::Block);
        let Some(owner) = block.or_else(|| partition.gap_containing(entry.place).map(Owner::Gap)) else {
            continue;
        };
        match groups.last_mut() {
            Some((last, range)) if *last == owner => range.end = index + 1,
            _ => groups.push((owner, index..index + 1)),
        }
    }
    groups
}

/// The data that entries are compared with.
#[derive(Clone, Copy)]
struct Comparison<'a, 'data> {
    file: &'a ElfFile<'data>,
    code: &'a CodeSpace<'data>,
    partition: &'a Partition,
    table: &'a KeptTable<'data>,
}

impl Comparison<'_, '_> {
    fn block(&self, range: Range<usize>, index: BlockIndex) -> Outcome {
        let mut outcome = Outcome::default();
        let block = self.partition.block(index);
        let Some(operands) = Operands::decode(self.code, block.code()) else {
            // Undecodable blocks are pinned anyway, with all distances that they may hold; addresses are known from entries
            // only.
            self.table.entries[range].iter().for_each(|entry| self.keep_addresses(entry, &mut outcome));
            return outcome;
        };
        for position in range {
            let entry = &self.table.entries[position];
            let Some(symbol) = self.table.symbol(entry) else { continue };
            match entry.meaning {
                Meaning::Relative(4) if !belongs_to_thread_local(&self.table.entries, position) => {
                    self.relative(entry, &symbol, &operands, index, &mut outcome);
                }
                Meaning::Absolute(_) if self.code.is_fixed_address => {
                    self.absolute(entry, &symbol, &operands, index, &mut outcome);
                }
                Meaning::Absolute(_) => self.impossible(entry, &symbol, index, &mut outcome),
                Meaning::Slot if self.code.is_fixed_address => {
                    self.slot(entry, &symbol, &operands, &mut outcome);
                }
                Meaning::Relative(8) | Meaning::FromOffsetTable => {
                    let [first, second] = self.table.values(entry, &symbol);
                    for target in [first, second, symbol.value] {
                        outcome.pin(self.partition, target, PinReason::ComputedAddress, entry.place);
                    }
                }
                _ => {}
            }
        }
        outcome
    }

    fn relative(
        &self,
        entry: &KeptEntry,
        symbol: &Symbol<'_>,
        operands: &Operands,
        index: BlockIndex,
        outcome: &mut Outcome,
    ) {
        outcome.evaluated += 1;
        let Some(field) = operands.relative_at(entry.place) else {
            outcome.disagreeing += 1;
            outcome.distrust(index, PinReason::RelocationWithoutField, entry.place);
            return;
        };
        let bias = field.end.distance_from(field.place);
        let wanted = self.table.values(entry, symbol).map(|value| value.plus(bias));
        if !self.agrees(field, symbol, wanted) {
            let start = self.partition.block(index).start;
            outcome.disagrees(self.partition, entry, &[start, field.target, wanted[0], wanted[1]]);
        }
    }

    /// Whether the field leads to the relocation's target, or to where the linker redirects references of this kind.
    fn agrees(&self, field: &RelativeField, symbol: &Symbol<'_>, wanted: [Address; 2]) -> bool {
        if wanted.contains(&field.target) {
            return true;
        }
        let is_undefined = symbol.section == 0;
        let is_local = symbol.binding == object::elf::STB_LOCAL.0;
        let is_indirect = symbol.kind == object::elf::STT_GNU_IFUNC.0;
        match self.code.region(field.target) {
            Region::Arena => false,
            // A stub: for imports, for symbols that another image may replace, and for functions chosen by a resolver.
            Region::FixedCode => is_undefined || is_indirect || !is_local,
            // Data does not move, so it matters only that the relocation does not name code.
            Region::Data | Region::Mapped | Region::Outside => {
                is_undefined || wanted.iter().all(|target| self.code.arena_of(*target).is_none())
            }
        }
    }

    /// An operand of code at a fixed address.
    fn absolute(
        &self,
        entry: &KeptEntry,
        symbol: &Symbol<'_>,
        operands: &Operands,
        index: BlockIndex,
        outcome: &mut Outcome,
    ) {
        outcome.evaluated += 1;
        let Meaning::Absolute(width) = entry.meaning else { return };
        let Some(constant) = operands.constant_at(entry.place).filter(|constant| constant.width == width)
        else {
            // Data between instructions, which decodes as instructions; its word is never written.
            if !self.is_plain_word(entry, symbol, width) {
                outcome.disagreeing += 1;
            }
            outcome.distrust(index, PinReason::RelocationWithoutField, entry.place);
            self.keep_addresses(entry, outcome);
            return;
        };
        self.constant(entry, symbol, constant, 0, outcome);
    }

    fn is_plain_word(&self, entry: &KeptEntry, symbol: &Symbol<'_>, width: u8) -> bool {
        let stored = stored_word(self.file, entry.place, width);
        let values = self.table.values(entry, symbol);
        values.iter().any(|value| Some(truncated(value.0, width)) == stored)
    }

    fn constant(
        &self,
        entry: &KeptEntry,
        symbol: &Symbol<'_>,
        constant: &Constant,
        bias: u64,
        outcome: &mut Outcome,
    ) {
        let &Constant { place, width, role } = constant;
        let Some(stored) = stored_word(self.file, place, width) else { return };
        match judge(self.code, self.table, entry, symbol, stored, (width, bias)) {
            Verdict::Code(target) => {
                outcome.absolute.push(AbsoluteField { place, width, target, role });
            }
            Verdict::Other => {}
            Verdict::Unclear => self.keep_addresses(entry, outcome),
            Verdict::Contradiction => {
                outcome.disagrees(self.partition, entry, &[place, Address(stored)]);
                self.keep_addresses(entry, outcome);
            }
        }
    }

    /// A reference through the GOT: to the slot, whose contents have no entry, or the form that the linker relaxed it to.
    fn slot(&self, entry: &KeptEntry, symbol: &Symbol<'_>, operands: &Operands, outcome: &mut Outcome) {
        if let Some(field) = operands.relative_at(entry.place) {
            self.slot_contents(field.target, symbol, outcome);
        } else if let Some(constant) = operands.constant_at(entry.place) {
            outcome.evaluated += 1;
            self.constant(entry, symbol, constant, SLOT_BIAS, outcome);
        }
    }

    fn slot_contents(&self, slot: Address, symbol: &Symbol<'_>, outcome: &mut Outcome) {
        const WIDTH: u8 = 8;
        let target = symbol.value;
        let is_slot = self.code.region(slot) == Region::Data
            && self.table.names_code(symbol)
            && self.code.arena_of(target).is_some()
            && stored_word(self.file, slot, WIDTH) == Some(target.0);
        if is_slot {
            outcome.absolute.push(AbsoluteField { place: slot, width: WIDTH, target, role: Role::Word });
        }
    }

    /// An absolute address in code of a position-independent image: the loader would have to relocate it, but has no entry.
    fn impossible(&self, entry: &KeptEntry, symbol: &Symbol<'_>, index: BlockIndex, outcome: &mut Outcome) {
        outcome.evaluated += 1;
        let values = self.table.values(entry, symbol);
        let is_code = |value: &Address| self.code.arena_of(*value).is_some();
        if symbol.defining_section().is_some() && values.iter().any(is_code) {
            outcome.distrust(index, PinReason::RelocationDisagrees, entry.place);
            outcome.disagrees(self.partition, entry, &values);
        }
    }

    /// The entry's field is not written, so the code that it or its bytes may refer to stays.
    fn keep_addresses(&self, entry: &KeptEntry, outcome: &mut Outcome) {
        let width = match entry.meaning {
            Meaning::Absolute(width) => width,
            // In the form to which linkers relax it.
            Meaning::Slot => 4,
            _ => return,
        };
        let Some(symbol) = self.table.symbol(entry).filter(|_| self.code.is_fixed_address) else { return };
        let stored = stored_word(self.file, entry.place, width).map(Address);
        for target in stored.into_iter().chain(named_places(self.table, entry, &symbol)) {
            outcome.pin(self.partition, target, PinReason::AbsoluteAddress, entry.place);
            // An address directly after a function may be meant as its end.
            let before = Address(target.0.wrapping_sub(1));
            outcome.pin(self.partition, before, PinReason::AbsoluteAddress, entry.place);
        }
    }

    /// A gap is never written and the code to which its instructions refer stays; a word between them looks like an
    /// instruction.
    fn gap(&self, range: Range<usize>, gap: usize) -> Outcome {
        let gap = &self.partition.gaps[gap];
        let operands = match gap.content {
            GapContent::Code => Operands::decode(self.code, gap.start..gap.end).unwrap_or_default(),
            GapContent::Padding | GapContent::Opaque => Operands::default(),
        };
        let mut outcome = Outcome::default();
        for entry in &self.table.entries[range] {
            match (&entry.meaning, operands.relative_at(entry.place)) {
                (Meaning::Relative(_), None) => {
                    outcome.words.extend(relative_word(self.code, self.table, entry, entry.place));
                }
                (Meaning::Slot, Some(field)) => {
                    if let Some(symbol) = self.table.symbol(entry).filter(|_| self.code.is_fixed_address) {
                        self.slot_contents(field.target, &symbol, &mut outcome);
                    }
                }
                _ => self.keep_addresses(entry, &mut outcome),
            }
        }
        outcome
    }
}

/// Whether the entry belongs to the call of a thread-local sequence, which the linker may have replaced without its entries.
fn belongs_to_thread_local(entries: &[KeptEntry], position: usize) -> bool {
    /// Largest distance from the field of the `lea` to that of the call; the longest form has prefixes in between.
    const MAX_SEQUENCE_LENGTH: u64 = 12;
    let entry = &entries[position];
    let before = position.checked_sub(1).map(|before| &entries[before]);
    before.is_some_and(|before| {
        before.meaning == Meaning::ThreadLocalCall
            && entry.place.distance_from(before.place) <= MAX_SEQUENCE_LENGTH
    })
}
