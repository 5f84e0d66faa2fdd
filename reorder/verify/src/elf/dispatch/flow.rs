//! Forward value analysis of one region: what is in registers and on the stack at every computed jump and call.
//!
//! ```text
//! start ─> block ─> block ─> computed jump ─> hub of its table ─> the places that its words lead to
//!            └────── calls of a call site ─> its landing pad
//! ```
//!
//! A block starts with what is known on all ways that lead there; if there is only one way, with its latest values. Code
//! without a known way in is treated as entered from anywhere, unless branches that are never taken lead to it. Bounds that
//! keep changing are dropped, so the analysis ends; a budget bounds the cost of hostile code.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::catching::Catching;
use super::condition::{learn, opposite};
use super::formed::RegisterSet;
use super::found::{Computed, Follow, Found, Surroundings};
use super::hub::{Hub, MAX_CHANGES, Source};
use super::region::Region;
use super::state::{Place, STACK_POINTER, State};
use super::step::{operand, push, step};
use super::sums::counted;
use super::targets::{MAX_WORDS, targets};
use super::value::{Symbol, Value, Word};
use crate::elf::view::ElfView;
use crate::exception_table::CallSite;

/// How often the values of the only way to a place may change before they are joined with the earlier ones: two places of a
/// loop may give each other new values for ever.
const MAX_REPLACEMENTS: u32 = 32;
/// How often the analysis may visit an instruction, on average.
const MAX_VISITS: usize = 64;

/// Analyses `region`; `sites` say where exceptions are caught.
pub(crate) fn analyse(
    region: &Region,
    image: &ElfView<'_>,
    around: Surroundings<'_>,
    sites: &[CallSite],
) -> Found {
    let count = region.instructions.len();
    let pads: Vec<u64> = sites.iter().map(|site| site.pad).collect();
    let flow = |enters_all| Flow {
        region,
        image,
        around,
        enters_all,
        catching: Catching::of(region, sites),
        states: vec![None; count],
        is_leader: region.leaders(&pads),
        is_reached: vec![false; count],
        denied: BTreeSet::new(),
        passes_over_jump: false,
        work: BTreeSet::new(),
        hubs: BTreeMap::new(),
        computed: BTreeMap::new(),
        loaded: BTreeMap::new(),
        tables: BTreeMap::new(),
        is_elsewhere: BTreeMap::new(),
        reads: BTreeMap::new(),
        factory: InstructionInfoFactory::new(),
    };
    let budget = || count.saturating_mul(MAX_VISITS).saturating_add(MAX_VISITS);
    let mut live = flow(false);
    let is_complete = live.run(budget());
    let mut computed = live.computed;
    if is_complete && live.passes_over_jump {
        // The compiler wrote tables for these jumps, which are never executed. What the code before them compares says how
        // long the tables are. Nothing else that is found on the way counts.
        let mut all = flow(true);
        if all.run(budget()) {
            all.computed.retain(|_, found| !found.sums.is_empty());
            all.computed.append(&mut computed);
            computed = all.computed;
        }
    }
    Found {
        computed: computed.into_values().collect(),
        loaded: live.loaded.into_values().collect(),
        jumps_elsewhere: live.is_elsewhere.into_values().any(|is_elsewhere| is_elsewhere),
        reads: live.reads.into_values().flatten().collect(),
        is_complete,
    }
}

/// Whether all words of a table of addresses that may be read lead to code and cannot be written.
fn all_words_lead(image: &ElfView<'_>, word: Word) -> bool {
    let count = word.index.most.saturating_sub(word.index.least);
    word.width == 8
        && count < MAX_WORDS
        && (word.index.least..=word.index.most).all(|number| {
            let place = word.table.wrapping_add(number.wrapping_mul(8));
            let target = image.word_at(place).filter(|_| !image.is_writable(place));
            target.is_some_and(|target| image.code_at(target, target).is_some())
        })
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

struct Flow<'a> {
    region: &'a Region,
    image: &'a ElfView<'a>,
    around: Surroundings<'a>,
    /// Whether branches count that are never taken.
    enters_all: bool,
    catching: Catching,
    /// What is known where a block starts.
    states: Vec<Option<Box<Hub>>>,
    is_leader: Vec<bool>,
    is_reached: Vec<bool>,
    /// Targets of branches that are never taken.
    denied: BTreeSet<usize>,
    /// Whether some code that is never executed jumps through a register or a table.
    passes_over_jump: bool,
    work: BTreeSet<usize>,
    hubs: BTreeMap<(u64, u64), (usize, Option<Hub>)>,
    computed: BTreeMap<usize, Computed>,
    loaded: BTreeMap<usize, (u64, Option<Word>)>,
    /// By address and indices: whether all words of a table lead to code.
    tables: BTreeMap<(u64, u64, u64), bool>,
    /// Of each computed jump, whether it leads to a place that no table is known to hold.
    is_elsewhere: BTreeMap<usize, bool>,
    reads: BTreeMap<usize, Vec<Word>>,
    factory: InstructionInfoFactory,
}

impl Flow<'_> {
    /// Runs until nothing changes; `false` when the budget was too small.
    fn run(&mut self, mut budget: usize) -> bool {
        let outside: Vec<u64> =
            self.region.starts().take(1).chain(self.region.entries.iter().copied()).collect();
        for address in outside {
            if let Some(position) = self.region.position(address) {
                self.arrive(position, &State::unknown(), Source::Several);
            }
        }
        for pad in self.catching.open.clone() {
            self.arrive(pad, &State::unknown(), Source::Several);
        }
        let mut unreached = 0;
        loop {
            while let Some(position) = self.work.pop_first() {
                if !self.block(position, &mut budget) {
                    return false;
                }
            }
            while unreached < self.is_reached.len()
                && (self.is_reached[unreached] || is_padding(&self.region.instructions[unreached]))
            {
                unreached += 1;
            }
            if unreached == self.is_reached.len() {
                return true;
            }
            if self.denied.contains(&unreached) && !self.enters_all {
                self.pass_over(unreached);
                continue;
            }
            self.arrive(unreached, &State::unknown(), Source::Several);
        }
    }

    /// Marks the code from `start` on as reached, although no analysed way enters it. If one does later, the code is
    /// analysed then.
    fn pass_over(&mut self, start: usize) {
        let region = self.region;
        let mut next = Some(start);
        while let Some(position) = next.filter(|&position| !self.is_reached[position]) {
            // A place that other branches lead to starts a block of its own.
            if position != start && self.is_leader[position] && !self.denied.contains(&position) {
                return;
            }
            self.is_reached[position] = true;
            let instruction = &region.instructions[position];
            self.passes_over_jump |= instruction.flow_control() == FlowControl::IndirectBranch
                || self.around.thunks.register(instruction.near_branch_target()).is_some();
            if instruction.op0_kind() == OpKind::NearBranch64 {
                self.denied.extend(region.position(instruction.near_branch_target()));
            }
            let is_end = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
            let stops = matches!(instruction.mnemonic(), Mnemonic::Int3 | Mnemonic::Hlt);
            let is_end = is_end || stops || self.around.endings.is_last(instruction);
            next = region.next(position).filter(|_| !is_end);
        }
    }

    fn arrive(&mut self, position: usize, state: &State, source: Source) {
        if !self.is_leader[position] {
            self.is_leader[position] = true;
            if self.is_reached[position] {
                // The block that ran over this place ends here from now on.
                let before = (0..position).rev().find(|&at| self.is_leader[at]);
                self.work.extend(before);
            }
        }
        let has_changed = match &mut self.states[position] {
            // The only way in has new values, which replace its earlier ones.
            Some(hub)
                if hub.source == source && source != Source::Several && hub.changes < MAX_REPLACEMENTS =>
            {
                let has_changed = hub.state != *state;
                hub.state.clone_from(state);
                hub.changes += u32::from(has_changed);
                has_changed
            }
            Some(hub) => {
                if hub.source != source && hub.source != Source::Several {
                    hub.changes = 0;
                }
                hub.source = Source::Several;
                let has_changed = hub.state.join(state, position, hub.changes >= MAX_CHANGES);
                hub.changes += u32::from(has_changed);
                has_changed
            }
            empty => {
                *empty = Some(Box::new(Hub { state: state.clone(), changes: 0, source }));
                true
            }
        };
        if has_changed {
            self.work.insert(position);
        }
    }

    /// Starts the block of `position` without knowledge of its values, so that its branches can go both ways.
    fn forget_before(&mut self, position: usize) {
        if let Some(start) = (0..=position).rev().find(|&at| self.is_leader[at]) {
            self.arrive(start, &State::unknown(), Source::Several);
        }
    }

    fn arrive_at(&mut self, address: u64, state: &State, source: Source) {
        if let Some(position) = self.region.position(address) {
            self.arrive(position, state, source);
        }
    }

    /// Analyses one block; `false` when the budget is used up.
    fn block(&mut self, start: usize, budget: &mut usize) -> bool {
        let Some(hub) = &self.states[start] else { return true };
        let mut state = hub.state.clone();
        let mut position = start;
        loop {
            let Some(left) = budget.checked_sub(1) else { return false };
            *budget = left;
            self.is_reached[position] = true;
            let region = self.region;
            let goes_on = self.instruction(&region.instructions[position], position, &mut state);
            let Some(next) = region.next(position).filter(|_| goes_on) else { return true };
            let before = position;
            position = next;
            if self.is_leader[position] {
                self.arrive(position, &state, Source::Before(before));
                return true;
            }
        }
    }

    /// Applies one instruction; gives whether control reaches the next one.
    fn instruction(&mut self, instruction: &Instruction, position: usize, state: &mut State) -> bool {
        match instruction.flow_control() {
            FlowControl::ConditionalBranch => {
                let condition = instruction.condition_code();
                let target = instruction.near_branch_target();
                let mut taken = state.clone();
                let is_taken = learn(&mut taken, condition);
                match is_taken {
                    true => self.arrive_at(target, &taken, Source::Branch(position)),
                    false => self.denied.extend(self.region.position(target)),
                }
                let goes_on = condition == ConditionCode::None || learn(state, opposite(condition));
                if !goes_on {
                    self.denied.extend(self.region.next(position));
                }
                if self.enters_all && !(is_taken && goes_on) {
                    self.forget_before(position);
                }
                goes_on
            }
            FlowControl::UnconditionalBranch => {
                let target = instruction.near_branch_target();
                match self.around.thunks.register(target) {
                    Some(number) => self.jump(instruction.ip(), position, state.register(number), state),
                    None => self.arrive_at(target, state, Source::Branch(position)),
                }
                false
            }
            FlowControl::IndirectBranch => {
                let value = operand(state, instruction, position);
                self.jump(instruction.ip(), position, value, state);
                false
            }
            FlowControl::Call => {
                let target = instruction.near_branch_target();
                if let Some(number) = self.around.thunks.register(target) {
                    self.call(instruction.ip(), position, state.register(number), state);
                } else if self.region.position(target).is_some()
                    && self.region.starts().all(|start| start != target)
                {
                    self.push_and_arrive(instruction, target, state);
                }
                let kept = if self.around.thunks.register(target).is_some() {
                    0
                } else {
                    self.around.kept.by(target)
                };
                self.return_from_call(instruction, state, kept);
                // Whether the call returns matters only where another way leads to the instruction after it.
                let next = self.region.instructions.get(position + 1);
                let is_joined = self.is_leader.get(position + 1).is_some_and(|&is_leader| is_leader);
                !(is_joined || next.is_some_and(is_padding)) || !self.around.endings.is_last(instruction)
            }
            FlowControl::IndirectCall => {
                let value = operand(state, instruction, position);
                self.call(instruction.ip(), position, value, state);
                // `-mforce-indirect-call` calls known functions through a register.
                // A callee may have changed what other code knows the place of.
                let is_kept = instruction.op0_kind() == OpKind::Register || state.shared_from.is_none();
                let target = value.as_constant().filter(|_| is_kept);
                let kept = target.map_or(0, |target| self.around.kept.by(target));
                self.return_from_call(instruction, state, kept);
                let endings = self.around.endings;
                let is_last = || {
                    endings.is_last(instruction)
                        || target.is_some_and(|target| endings.never_returns_from(target))
                };
                !is_last()
            }
            FlowControl::Return => {
                if let Value::Symbol(Symbol { root, add, bits: 64 }) = state.register(STACK_POINTER) {
                    let top = Place { root: Some(root), displacement: add, size: 8 };
                    let value = state.load(top).unwrap_or(Value::UNKNOWN);
                    self.jump(instruction.ip(), position, value, state);
                }
                false
            }
            FlowControl::Exception => false,
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => false,
            _ => {
                let words = step(state, instruction, position, &mut self.factory);
                if !words.is_empty() {
                    self.reads.insert(position, words);
                }
                true
            }
        }
    }

    /// Follows a call to a place in the same function, as in a retpoline.
    fn push_and_arrive(&mut self, instruction: &Instruction, target: u64, state: &State) {
        let mut inside = state.clone();
        push(&mut inside, instruction);
        self.arrive_at(target, &inside, Source::Several);
    }

    /// Keeps, after a call, the registers that the convention preserves and the registers `kept`. A landing pad gets only
    /// the former.
    fn return_from_call(&mut self, call: &Instruction, state: &mut State, kept: RegisterSet) {
        if let Some(pad) = self.catching.pad(call) {
            let mut unwound = state.clone();
            unwound.call(0);
            self.arrive(pad, &unwound, Source::Several);
        }
        state.call(kept);
    }

    fn call(&mut self, place: u64, position: usize, value: Value, state: &State) {
        self.note(place, position, value, state, true);
    }

    fn jump(&mut self, place: u64, position: usize, value: Value, state: &State) {
        let mut leads = self.note(place, position, value, state, false);
        if self.around.follow == Follow::Addresses {
            let known = match value {
                Value::Word { base: None, word } => {
                    let key = (word.table, word.index.least, word.index.most);
                    let leads = || all_words_lead(self.image, word);
                    Some((*self.tables.entry(key).or_insert_with(leads)).then_some(word))
                }
                Value::Word { .. } | Value::PerhapsWord { .. } => Some(None),
                _ if leads.is_empty() && self.reads_fixed_place(position) => Some(None),
                _ => None,
            };
            self.is_elsewhere.insert(position, known.is_none() && leads.is_empty());
            match known {
                Some(word) => _ = self.loaded.insert(position, (place, word)),
                None => _ = self.loaded.remove(&position),
            }
            leads.extend(known.flatten().map(|word| (0, word)));
        }
        for (anchor, word) in leads {
            // Names that a hub makes when it joins states belong to no block.
            let number = self.region.instructions.len() + self.hubs.len();
            let (number, hub) = self.hubs.entry((anchor, word.table)).or_insert((number, None));
            if Hub::join(hub, state, *number) {
                let state = hub.as_ref().map_or_else(State::unknown, |hub| hub.state.clone());
                // All words of a table of addresses are known to lead to code: it ends at no start of another.
                let starts = if anchor == 0 { &[] } else { self.around.starts };
                for target in targets(self.image, (anchor, word), starts) {
                    self.arrive_at(target, &state, Source::Several);
                }
            }
        }
    }

    /// Whether the jump at `position` reads a word whose place it states, alone or with an index, and that leads into the region: a
    /// jump through a table at a constant index.
    fn reads_fixed_place(&self, position: usize) -> bool {
        let instruction = &self.region.instructions[position];
        let is_memory = instruction.op0_kind() == OpKind::Memory;
        if is_memory && instruction.memory_index() != Register::None {
            return true;
        }
        let place = match instruction.memory_base() {
            Register::RIP => instruction.ip_rel_memory_address(),
            Register::None => instruction.memory_displacement64(),
            _ => return false,
        };
        is_memory && self.image.word_at(place).is_some_and(|target| self.region.contains(target))
    }

    /// Records a jump or call to `value`; gives the sums that it may be.
    fn note(
        &mut self,
        place: u64,
        position: usize,
        value: Value,
        state: &State,
        is_call: bool,
    ) -> Vec<(u64, Word)> {
        let sums = match value {
            Value::Sum { base, anchor, word } => counted(state, base, anchor, word),
            Value::PerhapsSum { .. } => Vec::new(),
            // If another way had a sum here, the value would be `PerhapsSum`.
            _ => return Vec::new(),
        };
        let is_from_anywhere = value.is_from_anywhere();
        let found = Computed { place, sums: sums.clone(), index: value.index(), is_call, is_from_anywhere };
        self.computed.insert(position, found);
        sums
    }
}
