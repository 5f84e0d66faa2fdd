//! Follows the address of a copied table from the instruction that forms it, through all code of the old image that control
//! may reach with it: only jumps through the table use it, and none reads a word that the copy does not have.
//!
//! Calls lose the address in the registers of results, and functions that are called instead of returning get none as an
//! argument: compilers do not pass addresses of jump tables, nor return them.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind};

use super::guarded::Sequence;
use super::registers::Registers;
use crate::elf::clones::copies::bytes_from;
use crate::elf::clones::record::CopiedTable;
use crate::elf::dispatch::{RegisterSet, number_of};
use crate::elf::tables::{Dispatches, Jump, KnownJump};
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use reorder_base::address::Address;

/// Instructions that one walk may visit, each several times; a bound for hostile code.
const MAX_VISITS: usize = 1 << 21;

/// What is known of the old image.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) image: &'a ElfView<'a>,
    pub(super) functions: &'a AddressMoves,
    pub(super) dispatches: &'a Dispatches<'a>,
    /// Addresses inside of functions that data or code holds, so that a jump through a pointer may lead there; ascending.
    pub(super) held: &'a [Address],
}

/// Why the address of a copied table may not stand for that of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// The instruction at this place uses it in another way.
    Use(Address),
    /// Nothing is known of the jump at this place.
    Jump(Address),
    /// Nothing is certain of the jump at this place, because another jump of its function is unknown.
    Beside(Address),
    /// The jump at this place may read the entry at this index, which the copy does not have.
    Bound(Address, u64),
    /// The jump at this place reads the table at the second address.
    Other(Address, Address),
    /// Control goes from this place to an unknown one.
    Lost(Address),
    /// No jump uses it.
    Unused,
}

impl Fault {
    /// In words.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Use(place) => format!("another use at {place}"),
            Self::Jump(place) => format!("a jump of unknown range at {place}"),
            Self::Beside(place) => {
                format!("a jump at {place}, in a function with another jump that is unknown")
            }
            Self::Bound(place, last) => format!("a jump at {place} that may read entry {last}"),
            Self::Other(place, table) => format!("a jump at {place} that reads the table at {table}"),
            Self::Lost(place) => format!("code that cannot be followed from {place}"),
            Self::Unused => "no jump".to_owned(),
        }
    }
}

/// Follows the address of `table` from the instruction at `seed`; gives the number of entries that jumps use with it. A guard may
/// come before the `guarded` dispatch that begins there.
///
/// # Errors
/// The first use that only the original table allows.
pub(super) fn check_uses(
    around: Surroundings<'_>,
    table: &CopiedTable,
    seed: Address,
    guarded: Option<&Sequence>,
) -> Result<u64, Fault> {
    let mut walk = Walk {
        around,
        table,
        seed,
        guarded: guarded.map(|sequence| (sequence, [Jump::Known(sequence.known.clone())])),
        states: BTreeMap::new(),
        work: BTreeSet::new(),
        pads: BTreeMap::new(),
        factory: InstructionInfoFactory::new(),
        entries: 0,
    };
    let first = walk.decode(seed).ok_or(Fault::Lost(seed))?;
    if first.flow_control() == FlowControl::IndirectBranch {
        // The address is in no register: only this jump has the entry.
        let jumps = around.dispatches.at(seed);
        return if jumps.is_empty() { Err(Fault::Jump(seed)) } else { walk.check_jump(jumps, seed) };
    }
    walk.after_seed(&first, Registers::default());
    let mut budget = MAX_VISITS;
    while let Some(place) = walk.work.pop_first() {
        budget = budget.checked_sub(1).ok_or(Fault::Lost(seed))?;
        let Some(state) = walk.states.get(&place).copied() else { continue };
        walk.instruction(place, state)?;
    }
    if walk.entries > 0 { Ok(walk.entries) } else { Err(Fault::Unused) }
}

struct Walk<'a> {
    around: Surroundings<'a>,
    table: &'a CopiedTable,
    seed: Address,
    /// The dispatch that a guard bounds, and its jump.
    guarded: Option<(&'a Sequence, [Jump; 1])>,
    /// What registers hold before each instruction that control reaches with the address in one of them.
    states: BTreeMap<Address, Registers>,
    work: BTreeSet<Address>,
    /// Where functions catch exceptions, by their starts.
    pads: BTreeMap<Address, Vec<Address>>,
    factory: InstructionInfoFactory,
    /// Entries that jumps through the table use.
    entries: u64,
}

impl Walk<'_> {
    fn decode(&self, place: Address) -> Option<Instruction> {
        let section = self.around.image.section_at(place.0).filter(|section| section.is_code())?;
        let bytes = bytes_from(section, place.0)?;
        let instruction = Decoder::with_ip(64, bytes, place.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Control reaches `place`. Where all values are the original's, nothing is to be shown.
    fn arrive(&mut self, place: Address, state: &Registers) {
        let known = self.states.get(&place);
        if known.is_none() && state.are_originals() {
            return;
        }
        let joined = known.map_or(*state, |known| known.joined(state));
        if known != Some(&joined) {
            self.states.insert(place, joined);
            self.work.insert(place);
        }
    }

    /// A direct jump reaches `target`, which is a place in the same function, or a function that is called instead of
    /// returning.
    fn arrive_in_function(
        &mut self,
        place: Address,
        target: Address,
        mut state: Registers,
    ) -> Result<(), Fault> {
        self.check_entry(place, target, &state)?;
        let is_start = self.around.functions.starting_at(target).is_some();
        if is_start && self.around.dispatches.is_called(target) {
            state.pass_arguments();
        }
        self.arrive(target, &state);
        Ok(())
    }

    /// Control goes from `place` to `target`. If it enters a guarded dispatch after the first instruction, no guard compared the index.
    fn arrive_from(&mut self, place: Address, target: Address, state: &Registers) -> Result<(), Fault> {
        self.check_entry(place, target, state)?;
        self.arrive(target, state);
        Ok(())
    }

    fn check_entry(&self, place: Address, target: Address, state: &Registers) -> Result<(), Fault> {
        let is_entered = |(sequence, _): &(&Sequence, _)| sequence.is_entered(place, target);
        match self.guarded.as_ref().is_some_and(is_entered) && !state.are_originals() {
            true => Err(Fault::Jump(target)),
            false => Ok(()),
        }
    }

    fn after_seed(&mut self, seed: &Instruction, mut state: Registers) {
        if let Some(number) = number_of(seed.op0_register()) {
            match self.table.entry {
                CopiedTable::ADDRESS => state.load_target(number),
                _ => state.form(number),
            }
        }
        self.arrive(Address(seed.next_ip()), &state);
    }

    /// Applies the instruction at `place`, before which registers hold `state`.
    fn instruction(&mut self, place: Address, mut state: Registers) -> Result<(), Fault> {
        let instruction = self.decode(place).ok_or(Fault::Lost(place))?;
        let flow = instruction.flow_control();
        let next = Address(instruction.next_ip());
        let target = || Address(instruction.near_branch_target());
        let is_through_register =
            flow == FlowControl::IndirectBranch && instruction.op0_kind() == OpKind::Register;
        if is_through_register {
            return self.jump(place, number_of(instruction.op0_register()), &state);
        }
        if !state.apply(&instruction, &mut self.factory) {
            return Err(Fault::Use(place));
        }
        if place == self.seed {
            // The guard may branch to the original here, so the registers must hold its values.
            if self.guarded.as_ref().is_some_and(|(sequence, _)| !state.are_originals_after(sequence)) {
                return Err(Fault::Jump(place));
            }
            self.after_seed(&instruction, state);
            return Ok(());
        }
        match flow {
            FlowControl::ConditionalBranch => {
                self.arrive_from(place, next, &state)?;
                self.arrive_in_function(place, target(), state)?;
            }
            FlowControl::UnconditionalBranch => match self.around.dispatches.thunk(target()) {
                Some(number) => return self.jump(place, Some(number), &state),
                None => self.arrive_in_function(place, target(), state)?,
            },
            FlowControl::IndirectBranch => return self.jump(place, None, &state),
            FlowControl::Call | FlowControl::IndirectCall => {
                let is_direct = flow == FlowControl::Call;
                if is_direct && self.is_inside(place, target()) {
                    return Err(Fault::Lost(target()));
                }
                let thunk = self.around.dispatches.thunk(target()).filter(|_| is_direct);
                if thunk.is_some_and(|number| state.holds_other(number) || state.is_sum(number)) {
                    return Err(Fault::Use(place));
                }
                let kept = match is_direct && thunk.is_none() {
                    true => self.around.dispatches.kept_by(target()),
                    false => 0,
                };
                self.call(&instruction, &state, kept)?;
            }
            FlowControl::XbeginXabortXend => return Err(Fault::Lost(place)),
            FlowControl::Return | FlowControl::Exception => {}
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => {}
            FlowControl::Next | FlowControl::Interrupt => {
                if instruction.mnemonic() != Mnemonic::Hlt {
                    self.arrive_from(place, next, &state)?;
                }
            }
        }
        Ok(())
    }

    /// Whether code calls its own middle.
    fn is_inside(&self, place: Address, target: Address) -> bool {
        let home = self.around.functions.containing(place);
        home.is_some_and(|home| home.old_start < target && target < home.old_end())
    }

    fn call(&mut self, call: &Instruction, state: &Registers, kept: RegisterSet) -> Result<(), Fault> {
        let (mut caught, mut returned) = (*state, *state);
        caught.call(0);
        returned.call(kept);
        let place = Address(call.ip());
        let home = self.around.functions.containing(place).map_or(place, |home| home.old_start);
        let dispatches = self.around.dispatches;
        let pads = self.pads.entry(home).or_insert_with(|| dispatches.pads(place)).clone();
        for pad in pads {
            self.arrive_from(place, pad, &caught)?;
        }
        if !dispatches.is_last(call) {
            self.arrive_from(place, Address(call.next_ip()), &returned)?;
        }
        Ok(())
    }

    /// A computed jump; through the register `number`, if it is one.
    fn jump(&mut self, place: Address, number: Option<usize>, state: &Registers) -> Result<(), Fault> {
        let is_sum = number.is_some_and(|number| state.is_sum(number));
        if number.is_some_and(|number| state.holds_other(number)) {
            return Err(Fault::Use(place));
        }
        let is_here = |(sequence, _): &&(&Sequence, [Jump; 1])| sequence.jump == place;
        let guarded = self.guarded.as_ref().filter(is_here).map(|(_, jump)| jump.clone());
        // The end of a found function is a guess, so value analysis of its jumps proves nothing.
        let home = self.around.functions.containing(place);
        let is_known = guarded.is_some() || home.is_some() && !self.around.functions.is_found(place);
        if !is_known && !state.are_originals() {
            return Err(Fault::Jump(place));
        }
        let jumps = guarded.as_ref().map_or_else(|| self.around.dispatches.at(place), |jump| jump.as_slice());
        if jumps.is_empty() {
            // Only value analysis knows that this reads no table, and it is not needed for a guard.
            if self.guarded.is_some() && !state.are_originals() {
                return Err(Fault::Jump(place));
            }
            // A call in place of a return, or a jump to a place whose address data holds.
            if is_sum {
                return Err(Fault::Jump(place));
            }
            for target in self.held_inside(place) {
                self.arrive_from(place, target, state)?;
            }
            return Ok(());
        }
        if is_sum {
            self.entries = self.entries.max(self.check_jump(jumps, place)?);
        }
        for jump in jumps {
            for target in &known(jump, place)?.targets {
                self.arrive_from(place, *target, state)?;
            }
        }
        Ok(())
    }

    /// Checks that all of `jumps`, which are at `place`, read entries that the copy has; gives how many these are.
    fn check_jump(&self, jumps: &[Jump], place: Address) -> Result<u64, Fault> {
        let mut entries = 0;
        for jump in jumps {
            let KnownJump { table, entry, last, .. } = known(jump, place)?;
            let last = last.ok_or(Fault::Jump(place))?;
            if (*table, *entry) != (self.table.original, self.table.entry) {
                return Err(Fault::Other(place, *table));
            }
            if last >= self.table.count {
                return Err(Fault::Bound(place, last));
            }
            entries = entries.max(last + 1);
        }
        Ok(entries)
    }

    /// Addresses in the function that contains `place` that data or code holds.
    fn held_inside(&self, place: Address) -> Vec<Address> {
        let Some(home) = self.around.functions.containing(place) else { return Vec::new() };
        let (from, to) = (
            self.around.held.partition_point(|held| *held <= home.old_start),
            self.around.held.partition_point(|held| *held < home.old_end()),
        );
        self.around.held[from..to].to_vec()
    }
}

fn known(jump: &Jump, place: Address) -> Result<&KnownJump, Fault> {
    match jump {
        Jump::Known(known) => Ok(known),
        Jump::Unknown => Err(Fault::Jump(place)),
        Jump::Beside => Err(Fault::Beside(place)),
    }
}
