//! Jump tables of copied code: the copy of a dispatch reads a table of its own, whose entries lead to copies.
//!
//! The table of the original keeps its contents, so whatever else reads it still finds them. That needs the address of the
//! table to be used by dispatches alone: the load of a distance, the sum, and the jump.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic,
    OpAccess, OpKind, Register,
};

use super::bodies::Body;
use super::step::{Guard, Use};
use super::tables_of_addresses as addresses;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_image::decode::x86_64::CALL_CLOBBERED;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::jump_tables::JumpTable;
use reorder_image::elf::file::ElfFile;
use reorder_verify::{TableUse, provable_tables};

/// What the entries of a table hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The distance of the target from the table.
    Distance,
    /// The address of the target: in programs at a fixed address.
    Target,
}

impl Entry {
    /// Its bytes.
    pub(super) fn size(self) -> u64 {
        match self {
            Self::Distance => 4,
            Self::Target => 8,
        }
    }
}

/// A table of which there will be a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Address of the first entry, from which entries count.
    pub base: Address,
    /// What an entry holds.
    pub entry: Entry,
    /// Where the entries lead.
    pub targets: Vec<Address>,
    /// Fields that state the address, and their instructions, which have it for dispatches alone.
    pub fields: BTreeMap<Address, Address>,
}

/// The tables of `bodies` that can have copies.
pub(super) fn of_bodies(file: &ElfFile<'_>, analysis: &Analysis<'_>, bodies: &[Body]) -> Vec<Table> {
    if analysis.code.processor != Processor::X86_64 {
        return Vec::new();
    }
    let mut by_block: BTreeMap<_, Vec<&JumpTable>> = BTreeMap::new();
    for table in &analysis.tables {
        by_block.entry(table.owner).or_default().push(table);
    }
    let mut factory = InstructionInfoFactory::new();
    let mut tables = match analysis.code.is_fixed_address {
        true => addresses::of_bodies(file, analysis, bodies),
        false => Vec::new(),
    };
    let proven: BTreeSet<Address> = analysis.tables.iter().map(|table| table.base).collect();
    let mut known = proven.clone();
    for body in bodies {
        let mut owned: Vec<JumpTable> =
            by_block.get(&body.block).into_iter().flatten().map(|table| **table).collect();
        // Each table has one copy.
        owned.extend(likely_tables(file, analysis, body, &known));
        known.extend(owned.iter().map(|table| table.base));
        if owned.is_empty() {
            continue;
        }
        let code = Code::new(body, analysis, &owned, file);
        let forming = forming(body);
        let mut users: BTreeMap<usize, BTreeSet<Address>> = BTreeMap::new();
        let mut found = Vec::new();
        for table in &owned {
            let mut fields = BTreeMap::new();
            for &position in forming.get(&table.base).into_iter().flatten() {
                let dispatches = code.dispatches(position, &mut factory);
                let (offset, step) = &body.walk.steps[position];
                let Some(reference) = step.reference else { continue };
                let instruction = body.range.start.plus(u64::from(*offset));
                for &dispatch in &dispatches {
                    users.entry(dispatch).or_default().insert(table.base);
                }
                fields.extend((!dispatches.is_empty()).then_some((reference.place, instruction)));
            }
            if !fields.is_empty() {
                let targets = table.targets(file).collect();
                found.push(Table { base: table.base, entry: Entry::Distance, targets, fields });
            }
        }
        // A dispatch that may read one of several tables reads them all where they are.
        let mut shared = BTreeSet::new();
        for bases in users.into_values().filter(|bases| bases.len() > 1) {
            let (certain, likely): (Vec<Address>, Vec<Address>) =
                bases.into_iter().partition(|base| proven.contains(base));
            shared.extend(likely);
            shared.extend(certain.iter().filter(|_| certain.len() > 1));
        }
        tables.extend(found.into_iter().filter(|table| !shared.contains(&table.base)));
    }
    tables
}

/// Positions of the instructions that keep an address, by the address.
fn forming(body: &Body) -> BTreeMap<Address, Vec<usize>> {
    let mut forming: BTreeMap<Address, Vec<usize>> = BTreeMap::new();
    for (position, (_, step)) in body.walk.steps.iter().enumerate() {
        if let Some(reference) = step.reference.filter(|reference| reference.usage == Use::Value) {
            forming.entry(reference.target).or_default().push(position);
        }
    }
    forming
}

/// What may be tables of `body` besides the `known` ones. No proof of their ends is needed: if the copy of a table has too few
/// entries, a guard leads to the original for the others; if it has too many, nothing reads these.
fn likely_tables(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    body: &Body,
    known: &BTreeSet<Address>,
) -> Vec<JumpTable> {
    /// Few switches have more cases, and few functions more switches.
    const MAX_ENTRIES: usize = 1024;
    const MAX_TABLES: usize = 256;
    let has_computed_jump =
        body.walk.steps.iter().any(|(_, step)| !step.continues && step.reference.is_none());
    let kept = body.walk.steps.iter().filter_map(|(_, step)| step.reference);
    let kept = kept.filter(|reference| has_computed_jump && reference.usage == Use::Value);
    let mut bases: Vec<Address> = kept.map(|reference| reference.target).collect();
    bases.sort_unstable();
    bases.dedup();
    bases.retain(|base| base.0.is_multiple_of(4) && !known.contains(base));
    let table = |base: Address| {
        let is_entry = |number: &u64| {
            let place = base.0.checked_add(4 * number).map(Address)?;
            let distance = i32::from_le_bytes(*file.bytes_at(place, 4)?.first_chunk()?);
            let target = base.plus(i64::from(distance) as u64);
            body.range.contains(&target).then_some(())
        };
        let is_data = analysis.code.arena_of(base).is_none();
        let entries =
            (0..MAX_ENTRIES as u64).take_while(|number| is_data && is_entry(number).is_some()).count();
        (entries > 0).then_some(JumpTable { base, entries: entries as u32, owner: body.block })
    };
    bases.into_iter().filter_map(table).take(MAX_TABLES).collect()
}

/// The `tables` that the verifier can follow, with only the fields that it can follow: it would refuse the image for any other.
/// Also the guards that it needs, by the instruction that each comes before.
///
/// # Errors
/// An image that the verifier cannot read.
pub(super) fn provable(
    file: &ElfFile<'_>,
    found: &[Range<Address>],
    mut tables: Vec<Table>,
) -> Result<(Vec<Table>, BTreeMap<Address, Guard>)> {
    let mut guards = BTreeMap::new();
    let uses_of = |table: &Table| {
        let (base, entry, count) = (table.base, table.entry.size(), table.targets.len() as u64);
        let uses =
            table.fields.values().map(move |place| TableUse { place: *place, table: base, entry, count });
        uses.collect::<Vec<_>>()
    };
    let uses: Vec<TableUse> = tables.iter().flat_map(uses_of).collect();
    if uses.is_empty() {
        return Ok((tables, guards));
    }
    let mut provable = provable_tables(file.bytes, found, &uses)?.into_iter();
    for table in &mut tables {
        let mut used = 0;
        table.fields.retain(|_, instruction| {
            let Some(proven) = provable.next().flatten() else { return false };
            used = used.max(proven.entries);
            let limit = u32::try_from(proven.entries).ok();
            let guard = proven.guarded_register.zip(limit).map(|(register, limit)| Guard { register, limit });
            guards.extend(guard.map(|guard| (*instruction, guard)));
            true
        });
        // Other tables may follow one of addresses.
        table.targets.truncate(usize::try_from(used).unwrap_or(usize::MAX));
    }
    tables.retain(|table| !table.fields.is_empty());
    Ok((tables, guards))
}

/// The instructions of a body, and where control goes from each.
struct Code {
    instructions: Vec<Instruction>,
    /// Positions after each; jumps through a register may lead to all entries of all tables.
    successors: Vec<Vec<usize>>,
    entries: Vec<usize>,
}

/// Steps from one instruction to the next for each place that forms an address; a bound for hostile code.
const MAX_VISITS: usize = 1 << 18;

/// Registers, each as a bit by its number.
type Registers = u16;

/// What registers hold that came from the address of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    table: Registers,
    /// Distances that were loaded from it.
    distance: Registers,
    /// Sums of both.
    target: Registers,
}

impl Held {
    fn any(self) -> Registers {
        self.table | self.distance | self.target
    }

    fn joined(self, other: Self) -> Self {
        Self {
            table: self.table | other.table,
            distance: self.distance | other.distance,
            target: self.target | other.target,
        }
    }

    fn without(self, registers: Registers) -> Self {
        Self {
            table: self.table & !registers,
            distance: self.distance & !registers,
            target: self.target & !registers,
        }
    }
}

fn bit(register: Register) -> Registers {
    match register.full_register() {
        full if full.is_gpr64() => 1 << full.number(),
        _ => 0,
    }
}

impl Code {
    fn new(body: &Body, analysis: &Analysis<'_>, tables: &[JumpTable], file: &ElfFile<'_>) -> Self {
        let bytes = analysis.code.bytes(body.range.clone());
        let steps = &body.walk.steps;
        let position_of = |address: Address| {
            let distance = address.0.checked_sub(body.range.start.0)?;
            steps.binary_search_by_key(&distance, |(offset, _)| u64::from(*offset)).ok()
        };
        let mut entries: Vec<usize> =
            tables.iter().flat_map(|table| table.targets(file)).filter_map(position_of).collect();
        entries.sort_unstable();
        entries.dedup();
        let decode = |offset: u32| {
            let address = body.range.start.plus(u64::from(offset));
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            Decoder::with_ip(64, rest, address.0, DecoderOptions::NONE).decode()
        };
        let instructions: Vec<Instruction> = steps.iter().map(|(offset, _)| decode(*offset)).collect();
        let successors = steps
            .iter()
            .map(|(offset, step)| {
                let after = body.range.start.plus(u64::from(*offset) + u64::from(step.length));
                let next = step.continues.then(|| position_of(after)).flatten();
                let jump = step.reference.filter(|reference| reference.usage == Use::Jump);
                let target = jump.and_then(|jump| position_of(jump.target));
                next.into_iter().chain(target).collect()
            })
            .collect();
        Self { instructions, successors, entries }
    }

    /// Positions of the dispatches that use the address that the instruction at `start` forms.
    fn dispatches(&self, start: usize, factory: &mut InstructionInfoFactory) -> BTreeSet<usize> {
        let mut dispatches = BTreeSet::new();
        let instruction = &self.instructions[start];
        if instruction.mnemonic() != Mnemonic::Lea || !instruction.is_ip_rel_memory_operand() {
            return dispatches;
        }
        let formed = Held { table: bit(instruction.op0_register()), ..Held::default() };
        let mut before: BTreeMap<usize, Held> = BTreeMap::new();
        let mut waiting = vec![(start, formed)];
        let mut budget = MAX_VISITS;
        // Ends: each round adds to what registers may hold before an instruction.
        while let Some((position, after)) = waiting.pop() {
            let is_computed = self.instructions[position].flow_control() == FlowControl::IndirectBranch;
            let computed = if is_computed { self.entries.as_slice() } else { &[] };
            for &next in self.successors[position].iter().chain(computed) {
                let Some(rest) = budget.checked_sub(1) else { return BTreeSet::new() };
                budget = rest;
                let known = before.get(&next).copied();
                let joined = known.unwrap_or_default().joined(after);
                if joined.any() == 0 || known == Some(joined) {
                    continue;
                }
                before.insert(next, joined);
                let after = step(&self.instructions[next], joined, factory);
                if is_dispatch(&self.instructions[next], joined) {
                    dispatches.insert(next);
                }
                waiting.push((next, after));
            }
        }
        dispatches
    }
}

/// A jump to the sum of a table and a distance.
fn is_dispatch(instruction: &Instruction, held: Held) -> bool {
    instruction.flow_control() == FlowControl::IndirectBranch
        && instruction.op0_kind() == OpKind::Register
        && held.target & bit(instruction.op0_register()) != 0
}

/// What registers hold after an instruction. The verifier decides whether some instruction uses a table as no dispatch does.
fn step(instruction: &Instruction, held: Held, factory: &mut InstructionInfoFactory) -> Held {
    let is_register = |operand: u32| instruction.op_kind(operand) == OpKind::Register;
    let register = |operand: u32| bit(instruction.op_register(operand));
    let is_whole = instruction.op0_register().is_gpr64();
    match instruction.mnemonic() {
        Mnemonic::Movsxd if instruction.op1_kind() == OpKind::Memory && is_whole => {
            let base = bit(instruction.memory_base());
            let is_entry = held.table & base != 0
                && held.any() & bit(instruction.memory_index()) == 0
                && instruction.memory_index_scale() == 4
                && instruction.memory_displacement64() == 0
                && instruction.memory_size() == MemorySize::Int32;
            if is_entry {
                let mut after = held.without(register(0));
                after.distance |= register(0);
                return after;
            }
        }
        Mnemonic::Add if is_whole && is_register(1) && register(0) != register(1) => {
            let is_sum =
                |one: Registers, other: Registers| held.table & one != 0 && held.distance & other != 0;
            if is_sum(register(0), register(1)) || is_sum(register(1), register(0)) {
                let mut after = held.without(register(0));
                after.target |= register(0);
                return after;
            }
        }
        Mnemonic::Mov if is_whole && is_register(1) => {
            let copied = |registers: Registers| if registers & register(1) != 0 { register(0) } else { 0 };
            let mut after = held.without(register(0));
            after.table |= copied(held.table);
            after.distance |= copied(held.distance);
            after.target |= copied(held.target);
            return after;
        }
        _ if is_dispatch(instruction, held) => return held,
        _ => {}
    }
    let mut written = 0;
    for used in factory.info(instruction).used_registers() {
        if used.access() == OpAccess::Write && used.register().size() >= 4 {
            written |= bit(used.register());
        }
    }
    let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    let lost = if is_call { CALL_CLOBBERED.into_iter().map(bit).fold(0, |all, one| all | one) } else { 0 };
    held.without(written | lost)
}
